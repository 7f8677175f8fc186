"""Limits hold whatever a server or a client reports: what it leaves out is booked as a bound."""

import math
from decimal import Decimal
from typing import Any

import pytest

from rlm.api import RLM
from rlm.calls.billing import FREE, ReportedPrefix, bill, checked_usage
from rlm.calls.calls import Calls, Route
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, Tree
from rlm.limits import Amount, Budget, Limits
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolCall, Usage
from rlm.results import RunResult
from rlm.testing import ScriptedClient
from rlm.testing.fake_server import FakeServer
from tests.stores import MemoryStore

PRICE = Price(1.0, 2.0, cache_write_per_million=4.0)
REQUEST = Request(model="m", messages=(Message("user", "u" * 6_384),), max_output_tokens=100)
BOUND = REQUEST.bound_tokens
RESERVED = Amount(tokens=BOUND + 100)
CELL = "```repl\nprint({})\n```"


def billed(usage: Usage | None, price: Price | None = None, **reply: Any) -> Usage:
    reply = {"text": "t" * 40, **reply}
    return bill(REQUEST, Reply(usage=usage, **reply), ModelInfo(price=price), RESERVED)[0]


def sides(usage: Usage) -> tuple[int, int]:
    return usage.input_tokens, usage.output_tokens


@pytest.mark.parametrize("told", [0, 1, BOUND // 64 - 1])
def test_input_that_cannot_be_all_of_it_is_booked_as_the_bound(told: int) -> None:
    assert sides(billed(Usage(input_tokens=told, output_tokens=7))) == (BOUND, 7)
    assert sides(billed(Usage(input_tokens=BOUND // 64, output_tokens=7))) == (BOUND // 64, 7)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"text": "", "reasoning": "r" * 40},
        {"text": "", "tool_calls": (ToolCall("1", "python", {"code": "c" * 40}),)},
    ],
)
def test_output_that_is_not_reported_is_booked_by_its_bytes(reply: dict[str, Any]) -> None:
    used = billed(Usage(input_tokens=2_000, requests=1), **reply)
    assert used.input_tokens == 2_000
    assert 40 <= used.output_tokens <= 100
    assert sides(billed(None, **reply)) == (BOUND, used.output_tokens)


def test_an_empty_reply_may_have_no_output() -> None:
    assert sides(billed(Usage(input_tokens=2_000, requests=1), text="")) == (2_000, 0)


def test_what_was_not_reported_has_its_dearest_price() -> None:
    for usage in (None, Usage(requests=1), Usage(cost_usd=0.0, requests=1)):
        assert billed(usage, PRICE).cost_usd == (BOUND * 4 + 40 * 2) / 1e6
    assert billed(Usage(requests=1)).cost_usd is None
    assert billed(Usage(cost_usd=0.0, requests=1)).cost_usd is None
    assert billed(Usage(cost_usd=0.5, requests=1), PRICE).cost_usd == 0.5  # a program's own charge
    whole = Usage(input_tokens=2_000, output_tokens=7, cost_usd=0.0)
    assert billed(whole, PRICE).cost_usd == 0  # a free model


def test_a_cached_reply_is_free() -> None:
    assert billed(checked_usage(FREE), PRICE) == FREE


def test_a_conversation_with_a_partial_report_is_counted_in_bytes_from_then_on() -> None:
    known, messages, booked = ReportedPrefix(), REQUEST.messages, []
    for told in (2_000, 300, 3_000):
        request = Request(model="m", messages=messages, max_output_tokens=100)
        reserved = Amount(tokens=known.bound(request) + 100)
        reply = Reply(text="t", usage=Usage(input_tokens=told, output_tokens=1))
        booked.append(bill(request, reply, ModelInfo(), reserved, known)[0].input_tokens)
        known.note(request, reply.usage)
        messages = (*messages, Message("assistant", "a" * 84))
    assert booked == [2_000, 2_100, BOUND + 200]


def usage_with(name: str, value: Any) -> Usage:
    told: dict[str, Any] = {"input_tokens": 2_000, "output_tokens": 5, name: value}
    return Usage(**told)


def test_a_reply_that_was_free_says_nothing_about_others() -> None:
    """A forked run begins with replies that the first run has paid for."""
    known = ReportedPrefix()
    known.note(REQUEST, FREE)
    assert known.believes(REQUEST, Usage(input_tokens=2_000, output_tokens=1))
    assert known.bound(REQUEST) == BOUND


IMPOSSIBLE: list[Any] = [
    "usage",
    {"input_tokens": 2_000},
    *(
        usage_with(name, value)
        for name in (
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
        )
        for value in (-1, 1.5, math.nan, "7", True, None, 10**30)
    ),
    *(
        usage_with("cost_usd", cost)
        for cost in (-1.0, -1, math.nan, math.inf, -math.inf, 1e300, "1", True, Decimal(1))
    ),
]


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
def test_an_impossible_report_of_a_client_counts_as_none(usage: Any) -> None:
    assert checked_usage(usage) is None


def test_what_is_part_of_a_side_is_counted_with_it() -> None:
    usage = Usage(cached_tokens=3_000, cache_write_tokens=500, reasoning_tokens=70, output_tokens=5)
    checked = checked_usage(usage)
    assert checked is not None
    assert sides(checked) == (3_500, 70)


def looping(usage: Any, limits: Limits) -> tuple[RunResult, int]:
    """Run a model that only ever writes cells; return how it ended, and the bytes it was sent."""
    script = [CELL.format(f"'{number}' * 300") for number in range(60)]
    client = ScriptedClient(script, price=Price(1.0, 2.0), usage=lambda *_: usage)
    with RLM(client, limits=limits) as rlm:
        result = rlm.ask("What?", "context")
    return result, sum(each.bound_tokens for each in client.requests)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(requests=1),
        Usage(output_tokens=5, requests=1),
        Usage(input_tokens=-5_000, output_tokens=-5_000),
        Usage(input_tokens=500, output_tokens=5, cost_usd=-1.0),
        Usage(input_tokens=500, output_tokens=5, cost_usd=math.nan),
        Usage(input_tokens=500, output_tokens=5, cost_usd=math.inf),
        usage_with("input_tokens", "many"),
        {"input_tokens": 1},
    ],
    ids=repr,
)
@pytest.mark.parametrize("limits", [{"max_tokens": 40_000}, {"max_cost_usd": 0.04}], ids=repr)
def test_a_limit_holds_whatever_a_client_reports(usage: Any, limits: dict[str, Any]) -> None:
    result, sent = looping(usage, Limits(max_steps=60, call_output_tokens=1_000, **limits))
    assert result.stop_reason == "limit"
    assert sent <= 40_000
    assert result.usage.total.input_tokens == sent
    assert 0 < (result.cost_usd or 0) <= 0.04


@pytest.mark.parametrize("told", [(0, 0), (0, 5), (1, 1)])
def test_a_limit_holds_for_a_server_that_reports_zeros(told: tuple[int, int]) -> None:
    usage = {"input_tokens": told[0], "output_tokens": told[1]}
    script = [{"reply": CELL.format(number), "usage": usage} for number in range(60)]
    with FakeServer(script) as server:
        options = {"openai/m": {"base_url": server.openai_url, "api_key": "k"}}
        limits = Limits(max_steps=60, max_tokens=40_000)
        with RLM("openai/m", client_options=options, limits=limits) as rlm:
            result = rlm.ask("What?", "context")
        bodies = [each.asked.body for each in server.requests if each.asked]
    sent = sum(len(each["content"]) for body in bodies for each in body["messages"])
    assert (result.stop_reason, result.limit) == ("limit", "tokens")
    assert sent <= result.usage.total.input_tokens <= 40_000


def test_a_reply_whose_text_is_no_text_is_an_error_of_its_client() -> None:
    no_text: Any = None
    client = ScriptedClient([Reply(text=no_text)])
    with RLM(client) as rlm, pytest.raises(Exception, match="text of its Reply is NoneType"):
        rlm.ask("What?", "context")


async def test_a_bound_that_was_booked_is_no_report_when_the_run_is_resumed() -> None:
    store = MemoryStore()
    usages = iter([None, Usage(input_tokens=2_000, output_tokens=1)])
    client = ScriptedClient(["one", "two"], usage=lambda *_: next(usages))
    calls = Calls(lambda model: Route(client, model, ModelInfo()), Scheduler(4))
    longer = Request(model="m", messages=(*REQUEST.messages, *TURN), max_output_tokens=100)
    for asked in ((REQUEST,), (REQUEST, longer)):
        tree = Tree(1, store)
        scope = Scope(run_id="r", budget=Budget(Limits()), recorders=(), tree=tree)
        for request in asked:
            await calls.run_request(scope, request, purpose="step")
    assert scope.budget.used.tokens == BOUND + len("one") + 2_000 + 1


TURN = (Message("assistant", "one"), Message("user", "and now?"))
