"""The one paid-call path: its order, its retries, its store, its events."""

import asyncio
import io
import time
from typing import Any

import pytest

from rlm.api import RLM
from rlm.calls.calls import Calls, Route
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, Tree
from rlm.errors import CallRefused, ConfigError, ModelError, UnknownPriceError
from rlm.events import CallEnded, CallRetried, CallStarted, ModelAsked, ModelReplied
from rlm.limits import Budget, Limits
from rlm.messages import Message, ModelInfo, Price, Reply, ReplyKey, Request, Usage
from rlm.protocols import MAX_ATTEMPTS, ReplyStore
from rlm.records.recorders.console import ConsoleRecorder
from rlm.records.recorders.in_process import MemoryRecorder
from rlm.testing.scripted import ScriptedClient
from tests.stores import MemoryStore
from tests.virtual_time import now, run

BUSY = ModelError("busy", retryable=True, retry_after_seconds=0.0)
CUT_OFF = ModelError("cut off", retryable=True, ambiguous=True, retry_after_seconds=0.0)


class House:
    """Calls over a scripted client, with everything that a test examines."""

    def __init__(
        self,
        script: list[Any],
        limits: Limits | None = None,
        *,
        store: ReplyStore | None = None,
        price: Price | None = None,
        width: int = 64,
    ) -> None:
        self.client = ScriptedClient(script, price=price)
        info = ModelInfo(price=price)
        self.calls = Calls(lambda _: Route(self.client, "wire", info), Scheduler(width))
        self.tree = Tree(16, store)
        self.recorder = MemoryRecorder()
        self.budget = Budget(limits or Limits())
        self.scope = self.new_scope()

    def new_scope(self) -> Scope:
        return Scope(run_id="run", budget=self.budget, recorders=(self.recorder,), tree=self.tree)

    async def call(self, prompt: str = "hello") -> Reply:
        return await self.calls.counted_call(self.scope, request(prompt))

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.recorder.events if isinstance(event, kind)]


def request(prompt: str = "hello", cap: int = 100) -> Request:
    return Request(model="m", messages=(Message("user", prompt),), max_output_tokens=cap)


async def test_a_call_is_billed_once_and_reported_as_started_and_ended() -> None:
    house = House(["hi"])
    assert (await house.call()).text == "hi"
    assert [type(e) for e in house.recorder.events] == [CallStarted, CallEnded]
    ended = house.events(CallEnded)[0]
    assert (ended.reply, ended.retries, ended.stored, ended.error) == ("hi", 0, False, None)
    assert house.budget.used.calls == 1
    assert house.budget.used.tokens == ended.usage.total_tokens
    assert house.budget.reserved.tokens == house.budget.in_flight == 0


async def test_requests_of_the_engine_itself_do_not_count_as_calls() -> None:
    house = House(["hi"])
    await house.calls.run_request(house.scope, request(), purpose="step")
    assert [type(e) for e in house.recorder.events] == [ModelAsked, ModelReplied]
    assert house.budget.used.calls == 0


async def test_a_retry_does_not_count_as_another_call() -> None:
    house = House([BUSY, BUSY, "hi"], Limits(max_calls=1))
    assert (await house.call()).text == "hi"
    assert house.events(CallEnded)[0].retries == 2
    assert house.budget.used.calls == 1


async def test_every_retry_is_reported_as_soon_as_it_is_decided() -> None:
    house = House([CUT_OFF, BUSY, "hi", BUSY, "hi"])
    await house.call()
    assert [type(e) for e in house.recorder.events] == [
        *(CallStarted, CallRetried, CallRetried, CallEnded)
    ]
    told = [(e.attempt, e.error, e.wait_seconds, e.call_id) for e in house.events(CallRetried)]
    call_id = house.events(CallStarted)[0].call_id
    assert told == [(1, "cut off", 0.0, call_id), (2, "busy", 0.0, call_id)]
    await house.calls.run_request(house.scope, request(), purpose="step")
    assert house.events(CallRetried)[-1].call_id is None


async def test_the_console_shows_that_a_step_is_being_retried() -> None:
    shown = io.StringIO()
    house = House([BUSY, "hi", BUSY, "hi"])
    house.scope.recorders = (ConsoleRecorder(shown),)
    await house.calls.run_request(house.scope, request(), purpose="step")
    await house.call()  # of a thousand calls, nobody wants to read each retry
    assert shown.getvalue() == "  asking m again in 0.0 s: busy\n"


async def test_a_call_gives_up_after_max_attempts_and_frees_its_reservation() -> None:
    house = House([BUSY] * 10, Limits(max_tokens=10_000))
    with pytest.raises(ModelError, match="busy"):
        await house.call()
    assert len(house.client.requests) == MAX_ATTEMPTS
    assert house.budget.used.tokens == house.budget.reserved.tokens == 0
    assert house.events(CallEnded)[0].error == "busy"


async def test_a_client_can_set_its_own_max_attempts() -> None:
    class Impatient(ScriptedClient):
        max_attempts = 2

    client = Impatient([BUSY] * 10)
    rlm = RLM(client)
    with pytest.raises(ModelError, match="busy"):
        await rlm.aask("Anything?", "a text")
    await rlm.aclose()
    assert len(client.requests) == 2


async def test_a_permanent_error_is_not_retried() -> None:
    house = House([ModelError("no such model", status=404), "never"])
    with pytest.raises(ModelError, match="no such model"):
        await house.call()
    assert len(house.client.requests) == 1


async def test_every_ambiguous_attempt_counts_as_billed() -> None:
    house = House([CUT_OFF, CUT_OFF, "hi"], Limits(max_tokens=10_000))
    await house.call()
    worst = 5 + 16 + 100
    usage = house.events(CallEnded)[0].usage
    assert house.budget.used.tokens == 2 * worst + usage.total_tokens


async def test_without_budget_for_a_retry_the_original_failure_is_raised() -> None:
    house = House([CUT_OFF, "never"], Limits(max_tokens=150))
    with pytest.raises(ModelError, match="cut off"):
        await house.call()
    assert len(house.client.requests) == 1


async def test_a_reply_is_committed_before_it_is_used() -> None:
    seen: list[str] = []

    class Store(MemoryStore):
        async def put(self, key: ReplyKey, reply: Reply) -> None:
            seen.append("committed")
            await super().put(key, reply)

    house = House(["hi"], store=Store())
    await house.call()
    seen.append("used")
    assert seen == ["committed", "used"]


async def test_a_stored_reply_is_not_requested_again() -> None:
    store = MemoryStore()
    house = House(["a", "b", "c"], store=store)
    first = [(await house.call("same")).text, (await house.call("same")).text]
    assert first == ["a", "b"]  # equal prompts are separate samples
    house.scope = house.new_scope()  # the same run, executed again
    again = [(await house.call("same")).text, (await house.call("same")).text]
    assert again == first
    assert len(house.client.requests) == 2
    assert [e.stored for e in house.events(CallEnded)] == [False, False, True, True]


async def test_a_failed_commit_raises_and_is_still_billed() -> None:
    class Broken(MemoryStore):
        async def put(self, key: ReplyKey, reply: Reply) -> None:
            raise OSError("disk full")

    house = House(["hi"], Limits(max_tokens=1_000), store=Broken())
    with pytest.raises(OSError, match="disk full"):
        await house.call()
    assert house.budget.used.tokens == 5 + 16 + 100  # it was paid for


async def test_a_batch_uses_the_full_width() -> None:
    house = House([f"reply {n}" for n in range(50)], width=8)
    house.client.delay_seconds = 0.001
    replies = await asyncio.gather(*(house.call(f"p{n}") for n in range(50)))
    assert len({reply.text for reply in replies}) == 50
    assert house.client.max_in_flight == 8


async def test_a_call_cancelled_on_the_wire_is_billed_but_one_in_the_queue_is_not() -> None:
    house = House(["a", "b"], Limits(max_tokens=10_000), width=1)
    house.client.delay_seconds = 60
    tasks = [asyncio.create_task(house.call(f"p{n}")) for n in range(2)]
    while not house.client.in_flight:
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert house.budget.used.tokens == 2 + 16 + 100
    assert house.budget.in_flight == house.budget.reserved.tokens == 0
    assert house.client.in_flight == 0
    assert house.calls.scheduler.free_slot(id(house.client)) is not None


async def test_a_tight_budget_lowers_the_output_cap() -> None:
    house = House(["hi"], Limits(max_tokens=1_000))
    await house.calls.counted_call(house.scope, request(cap=4_096))
    assert house.client.requests[0].max_output_tokens == 1_000 - 5 - 16


async def test_a_cap_too_small_to_be_useful_is_refused() -> None:
    house = House(["hi"], Limits(max_tokens=200))
    with pytest.raises(CallRefused):
        await house.calls.counted_call(house.scope, request(cap=4_096))
    assert house.client.requests == []


async def test_a_money_limit_lowers_the_output_cap() -> None:
    house = House(["hi"], Limits(max_cost_usd=0.01), price=Price(1.0, 10.0))
    await house.calls.counted_call(house.scope, request(cap=4_096))
    sent = house.client.requests[0].max_output_tokens
    assert (sent, house.budget.overshoot.picodollars) == ((10**10 - 21 * 10**6) // 10**7, 0)


async def test_a_reply_without_usage_is_billed_at_the_bound() -> None:
    house = House([Reply(text="four")], Limits(max_tokens=1_000))
    await house.call("héllo")
    assert house.budget.used.tokens == 6 + 16 + 4


async def test_the_price_comes_from_the_provider_or_the_table_and_never_defaults_to_zero() -> None:
    usage = Usage(10, 5)
    house = House([Reply(text="x", usage=usage)])
    await house.call()
    assert house.events(CallEnded)[0].usage.cost_usd is None
    house = House([Reply(text="x", usage=usage)], price=Price(1.0, 2.0))
    await house.call()
    assert house.events(CallEnded)[0].usage.cost_usd == pytest.approx(20e-6)
    house = House([Reply(text="x", usage=Usage(10, 5, cost_usd=0.5))])
    await house.call()
    assert house.events(CallEnded)[0].usage.cost_usd == 0.5


def test_a_money_limit_needs_a_price() -> None:
    house = House([])
    with pytest.raises(UnknownPriceError, match="prices="):
        house.calls.check_prices(("m",), Limits(max_cost_usd=1.0))
    house.calls.check_prices(("m",), Limits())
    House([], price=Price(1.0, 1.0)).calls.check_prices(("m",), Limits(max_cost_usd=1.0))


async def test_whatever_a_client_raises_is_a_model_error() -> None:
    house = House([ZeroDivisionError("bug in a client")])
    with pytest.raises(ModelError, match="ZeroDivisionError: bug in a client"):
        await house.call()


async def test_a_client_that_returns_no_reply_gets_an_error_and_is_billed() -> None:
    house = House([], Limits(max_tokens=1_000))

    async def wrong(request: Request, *, timeout_seconds: float) -> Any:
        return "just text"

    vars(house.client)["complete"] = wrong
    with pytest.raises(ModelError, match="it returned str, not a Reply"):
        await house.call()
    assert house.budget.used.tokens == 5 + 16 + 100
    assert house.budget.reserved.tokens == 0


async def test_a_config_error_of_a_client_costs_nothing_and_is_raised_unchanged() -> None:
    house = House([ConfigError("n must be 1")], Limits(max_tokens=1_000))
    with pytest.raises(ConfigError, match="n must be 1"):
        await house.call()
    assert house.budget.used.tokens == house.budget.reserved.tokens == 0


async def test_output_caps_shrink_when_concurrent_calls_use_the_budget_first() -> None:
    house = House([Reply(text="x", usage=Usage(10, 700))] * 4, Limits(max_tokens=2_000))
    calls = [house.calls.counted_call(house.scope, request(cap=4_096)) for _ in range(4)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    # 2,000 - 21 of input, then 710 less each time, until less than the smallest cap is left.
    assert [one.max_output_tokens for one in house.client.requests] == [1_979, 1_269, 559]
    assert [isinstance(one, Reply) for one in done] == [True, True, True, False]


async def test_lone_surrogates_in_parts_are_replaced_and_pictures_stay_out_of_events() -> None:
    house = House(["hi"])
    parts = [
        {"type": "text", "text": "what is\ud800 this?"},
        {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="},
    ]
    seen = Request(model="m", messages=(Message("user", parts),), max_output_tokens=100)
    await house.calls.counted_call(house.scope, seen)
    assert house.client.requests[0].messages[0].content == [
        {"type": "text", "text": "what is� this?"},
        parts[1],
    ]
    assert house.events(CallStarted)[0].prompt == (
        "what is\ud800 this?\n[image: image/png, 8 bytes, sha256 4c4b6a3be1314ab8]"
    )


async def test_lone_surrogates_are_replaced_before_sending() -> None:
    house = House(["hi"], store=MemoryStore())
    await house.call("a\ud800b\udfffc😀")
    assert house.client.requests[0].messages[-1].content == "a�b�c😀"


async def test_a_failing_recorder_is_reported_and_does_not_end_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def record(self, event: object) -> None:
            raise RuntimeError("I am broken")

    house = House(["hi"])
    house.scope.recorders = (Broken(), house.recorder)
    assert (await house.call()).text == "hi"
    assert len(house.recorder.events) == 2
    assert "I am broken" in caplog.text


# -- what a server tells one call concerns the others; in virtual time ----------------------------


class Server:
    """Answers in a second; until `busy_until` it refuses, and says for how long."""

    def __init__(self, busy_until: float) -> None:
        self.busy_until = busy_until
        self.asked: list[float] = []

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        self.asked.append(now())
        await asyncio.sleep(0)
        if now() < self.busy_until:
            seconds = self.busy_until - now()
            raise ModelError("busy", status=429, retryable=True, retry_after_seconds=seconds)
        await asyncio.sleep(1)
        return Reply(text="hi", usage=Usage(1, 1))

    def stream(self, request: Request, *, timeout_seconds: float) -> Any:
        raise NotImplementedError

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        pass


def served(client: Any, limits: Limits, width: int = 64) -> tuple[Calls, Scope]:
    route = Route(client, "wire", ModelInfo(), "a server")
    loop = asyncio.get_running_loop()
    began = time.monotonic() // 1  # A budget uses real time; whole seconds add exactly.
    calls = Calls(lambda _: route, Scheduler(width, clock=lambda: began + loop.time()))
    return calls, Scope(run_id="run", budget=Budget(limits), recorders=(), tree=Tree(16))


def test_no_call_is_sent_while_its_server_has_asked_for_a_pause() -> None:
    async def main() -> None:
        server = Server(busy_until=30.0)
        calls, scope = served(server, Limits(max_tokens=100_000), width=2)
        await asyncio.gather(*(calls.counted_call(scope, request()) for _ in range(10)))
        # Two were sent before the pause was known. None is sent during it, and then only one.
        assert server.asked[:4] == pytest.approx([0.0, 0.0, 30.0, 31.0])
        assert len(server.asked) == 12
        assert scope.budget.in_flight == scope.budget.reserved.tokens == 0

    run(main())


def test_a_call_without_time_for_the_pause_fails_at_once_and_costs_nothing() -> None:
    async def main() -> None:
        calls, scope = served(Server(busy_until=30.0), Limits(call_seconds=20.0), width=1)
        jobs = [calls.counted_call(scope, request()) for _ in range(3)]
        errors = await asyncio.gather(*jobs, return_exceptions=True)
        assert str(errors[0]) == "busy"
        assert all("asked for a 30 s pause" in str(error) for error in errors[1:])
        assert now() == 0.0
        assert scope.budget.used.tokens == scope.budget.in_flight == 0

    run(main())


@pytest.mark.parametrize(
    ("limits", "width"), [(Limits(call_seconds=20.0), 32), (Limits(max_seconds=20.0), 64)]
)
def test_a_timeout_slows_the_lane_unless_the_run_itself_ran_out_of_time(
    limits: Limits, width: int
) -> None:
    class Silent(Server):
        """Waits for its own timeout, or for ours."""

        async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
            await asyncio.sleep(timeout_seconds * self.busy_until)
            raise ModelError("did not answer within the time", ambiguous=True, timed_out=True)

    async def main(part: float) -> None:
        calls, scope = served(Silent(part), limits)
        with pytest.raises(ModelError, match="did not answer within") as caught:
            await calls.counted_call(scope, request())
        assert caught.value.ambiguous
        assert calls.scheduler.lane("a server").width == width

    run(main(0.99))
    run(main(2.0))
