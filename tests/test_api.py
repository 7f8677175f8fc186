"""The door most people use: blocking, async, streaming; and what it refuses."""

import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlm
from rlm import RLM, ConfigError, Limits, ScriptedClient
from rlm.context import StoredContext
from rlm.errors import CancellationError, PortalError, SessionError, UnknownPriceError
from rlm.events import Event, RunEnded, RunStarted
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import ContextSource
from tests.fakes import PlanEnvironment, cell


def engine(*script: str, **more: Any) -> RLM:
    client = ScriptedClient(script or (), () if script else [("", cell(["final", "42"]))])
    return RLM(client, environment=PlanEnvironment(), **more)


def test_ask_in_its_blocking_form() -> None:
    with engine() as one:
        assert one.ask("What?", "context").answer == "42"
        assert one.ask("Again?", "context").answer == "42"


async def test_aask_with_an_async_context_manager() -> None:
    async with engine() as one:
        assert (await one.aask("What?", "context")).answer == "42"


async def test_the_blocking_form_works_inside_a_running_loop() -> None:
    assert engine().ask("What?", "context").answer == "42"


def test_the_blocking_form_works_in_threads() -> None:
    one, answers = engine(), []
    threads = [
        threading.Thread(target=lambda: answers.append(one.ask("What?", "c").answer))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["42"] * 8


def _ask_in_child(pipe: Any) -> None:
    pipe.send(engine().ask("What?", "c").answer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_blocking_form_works_after_a_fork() -> None:
    engine().ask("What?", "c")  # the portal exists before the fork
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_ask_in_child, args=(theirs,))
    process.start()
    assert ours.poll(20)
    assert ours.recv() == "42"
    process.join(120)
    assert process.exitcode == 0


def test_the_blocking_form_refuses_to_wait_for_itself() -> None:
    async def inside() -> None:
        engine().ask("What?", "c")

    with pytest.raises(PortalError, match="aask"):
        portal().call(inside)


async def test_one_object_serves_several_loops() -> None:
    one = engine()
    assert (await one.aask("What?", "c")).answer == "42"
    assert one.ask("What?", "c").answer == "42"


async def test_completion_makes_the_prompt_the_context() -> None:
    client = ScriptedClient(["FINAL(x)", "FINAL(y)"])
    one = RLM(client, environment=PlanEnvironment())
    assert (await one.acompletion("Print the powers of two.")).response == "x"
    assert (await one.acompletion(["a", "b"], root_prompt="How many?")).response == "y"
    first, second = (str(request.messages[1].content) for request in client.requests)
    assert f"Query: {FIXED_QUERY}" in first
    assert "powers of two" not in first
    assert "Query: How many?" in second
    assert "a list of 2 items" in second


async def test_a_stream_yields_every_event_during_the_run() -> None:
    events = [event async for event in engine().stream("What?", "c")]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].answer == "42"


async def test_leaving_a_stream_cancels_its_run() -> None:
    environment = PlanEnvironment()
    one = RLM(ScriptedClient([cell(["sleep"])]), environment=environment)
    stream = one.stream("What?", "c")
    async for _ in stream:
        if environment.sessions:
            break
    await stream.aclose()
    assert environment.sessions[0].closed


async def test_a_stream_raises_the_error_of_its_run() -> None:
    one = RLM(ScriptedClient([]), environment=PlanEnvironment())
    with pytest.raises(rlm.ModelError, match="exhausted"):
        [event async for event in one.stream("What?", "c")]


async def test_recorders_receive_the_same_events_as_the_result() -> None:
    heard: list[Event] = []
    recorder = type("Recorder", (), {"record": lambda self, event: heard.append(event)})()
    result = await engine(recorders=(recorder,)).aask("What?", "c")
    assert tuple(heard) == result.events


async def test_a_sub_model_answers_calls_and_the_root_model_steps() -> None:
    root = ScriptedClient([cell(["llm", 1]), cell(["final", "done"])])
    sub = ScriptedClient(["from the sub-model"])
    result = await RLM(root, sub_model=sub, environment=PlanEnvironment()).aask("What?", "c")
    assert (len(root.requests), len(sub.requests)) == (2, 1)
    assert "from the sub-model" in str(root.requests[1].messages[-1].content)
    assert set(result.usage.by_model) == {"ScriptedClient", "ScriptedClient-1"}
    assert (result.steps, result.calls, result.usage.total.requests) == (2, 1, 3)


async def test_a_money_limit_works_with_given_prices() -> None:
    with pytest.raises(UnknownPriceError, match="prices="):
        await engine(limits=Limits(max_cost_usd=1.0)).aask("What?", "c")
    prices = {"ScriptedClient": (1.0, 2.0)}
    result = await engine(limits=Limits(max_cost_usd=1.0), prices=prices).aask("What?", "c")
    assert result.cost_usd is not None
    assert 0 < result.cost_usd < 1.0


async def test_a_custom_provider_can_be_given() -> None:
    root, sub = ScriptedClient([cell(["llm", 1]), cell(["final", "ok"])]), ScriptedClient(["hi"])
    clients = {"mine": root, "other": sub}
    one = RLM("mine/large", sub_model="other/small", clients=clients, environment=PlanEnvironment())
    assert (await one.aask("What?", "c")).answer == "ok"
    assert {r.model for r in root.requests} == {"large"}
    assert [r.model for r in sub.requests] == ["small"]


def test_a_price_for_an_unused_model_is_an_error() -> None:
    with pytest.raises(ConfigError, match="prices= names 'typo'; models: ScriptedClient"):
        engine(prices={"typo": (1.0, 2.0)})


def test_a_missing_model_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLM_MODEL", raising=False)
    with pytest.raises(ConfigError, match="RLM_MODEL"):
        RLM()
    monkeypatch.setenv("RLM_MODEL", "offline/extractive")
    assert RLM().config.model == "offline/extractive"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RLM("nowhere/model"), "there is no provider 'nowhere'; providers: .*openai"),
        (lambda: RLM("gpt-oss"), None),
        (lambda: RLM("llama3"), "does not name a provider"),
        (lambda: RLM(""), "e.g. openai/gpt-5-mini"),
        (lambda: RLM("groq/llama"), "set GROQ_API_KEY"),
        (lambda: RLM("openai-compatible/m"), "set LLM_BASE_URL"),
        (lambda: RLM("offline/extractive", environment="moon"), "choose one of auto, local"),
        (lambda: engine(preview_chars=-1), "preview_chars"),
        (lambda: engine(strategy="magic"), "unknown strategy 'magic'; choose one of rlm, direct"),
        (lambda: engine(protocol="smoke"), "unknown protocol 'smoke'; choose one of fences, tools"),
        (lambda: engine(profile="giant"), "unknown profile 'giant'; choose one of frontier"),
    ],
)
def test_wrong_options_are_refused_before_a_run(make: Callable[[], RLM], told: str | None) -> None:
    if told is None:
        with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
            make()
    else:
        with pytest.raises(ConfigError, match=told):
            make()


@pytest.mark.parametrize("query", ["", "  \n", None, 5])
async def test_an_empty_query_is_refused(query: Any) -> None:
    with pytest.raises(ConfigError, match="the query must be a non-empty string"):
        await engine().aask(query, "c")


def interrupt_when(ready: Callable[[], bool]) -> None:
    """A real SIGINT to the main thread, as soon as there is something to interrupt."""

    def wait_and_send() -> None:
        while not ready():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=wait_and_send, daemon=True).start()


def test_an_interrupt_cancels_the_run_of_a_blocking_call() -> None:
    environment = PlanEnvironment()
    one = RLM(ScriptedClient([cell(["sleep"])]), environment=environment)
    interrupt_when(lambda: bool(environment.sessions))
    with pytest.raises(KeyboardInterrupt):
        one.ask("What?", "c")
    for _ in range(1_000):  # the run unwinds on the portal's own thread
        if environment.sessions[0].closed:
            break
        time.sleep(0.01)
    assert environment.sessions[0].closed


def test_an_interrupt_ends_a_completion_with_its_partial_answer() -> None:
    client = ScriptedClient([cell(["set", "result", "so far 5"]), cell(["sleep"])])
    one = RLM(client, environment=PlanEnvironment())
    interrupt_when(lambda: len(client.requests) == 2)
    with pytest.raises(CancellationError) as stopped:
        one.completion("c")
    assert stopped.value.partial_answer == "so far 5"


@pytest.mark.parametrize("folder", ["usual", "own"])
def test_an_interrupted_journaled_run_says_how_it_continues(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, own = tmp_path / "usual", tmp_path / "own"
    monkeypatch.setenv("RLM_STATE_DIR", str(usual))
    environment = PlanEnvironment()
    client = ScriptedClient([cell(["sleep"])])
    one = RLM(client, environment=environment, journal=True if folder == "usual" else own)
    interrupt_when(lambda: bool(environment.sessions))
    with pytest.raises(KeyboardInterrupt) as interrupted:
        one.ask("What?", "c")
    (journal,) = ((usual if folder == "usual" else own) / "runs").glob("*.sqlite")
    where = "" if folder == "usual" else f"RLM_STATE_DIR={own} "
    assert interrupted.value.__notes__ == [f"Continue with: {where}rlm resume {journal.stem}"]


def test_an_interrupted_completion_says_how_it_continues(tmp_path: Path) -> None:
    client = ScriptedClient([cell(["sleep"])])
    one = RLM(client, environment=PlanEnvironment(), journal=tmp_path)
    interrupt_when(lambda: len(client.requests) == 1)
    with pytest.raises(CancellationError) as stopped:
        one.completion("c")
    (journal,) = (tmp_path / "runs").glob("*.sqlite")
    wanted = f"Continue with: RLM_STATE_DIR={tmp_path} rlm resume {journal.stem}"
    assert stopped.value.__notes__ == [wanted]


def interrupt_at_begin(monkeypatch: pytest.MonkeyPatch, also: Callable[[Any], None]) -> None:
    """Interrupt the next blocking call when it hands its coroutine to the portal."""
    loop = portal().loop
    submit = loop.call_soon_threadsafe

    def interrupted(function: Any, *arguments: Any, **more: Any) -> Any:
        if getattr(function, "__name__", "") != "_begin":  # An engine that is collected is closed.
            return submit(function, *arguments, **more)
        monkeypatch.undo()
        also(function)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)


def test_an_interrupt_before_the_call_waits_is_no_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, a run can be in its second step before its caller waits for it."""
    client = ScriptedClient([cell(["set", "result", "so far 5"]), cell(["sleep"])])

    def until_the_second_step(begin: Any) -> None:
        portal().loop.call_soon_threadsafe(begin)
        while len(client.requests) < 2:
            time.sleep(0.01)

    one = RLM(client, environment=PlanEnvironment())
    interrupt_at_begin(monkeypatch, until_the_second_step)
    with pytest.raises(CancellationError) as stopped:
        one.completion("c")
    assert stopped.value.partial_answer == "so far 5"


@pytest.mark.parametrize("call", ["ask", "completion"])
def test_an_interrupt_before_the_run_begins_leaves_nothing_running(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ScriptedClient([cell(["sleep"])])
    one = RLM(client, environment=PlanEnvironment())
    interrupt_at_begin(monkeypatch, lambda begin: None)
    with pytest.raises(KeyboardInterrupt):
        getattr(one, call)("What?")
    one.close()  # It waits for what the portal was given before.
    assert client.requests == []


async def test_a_function_can_be_a_model() -> None:
    def root(prompt: str) -> str:
        return "```repl\nFINAL(llm_query('ping'))\n```"

    async def sub(prompt: str) -> str:
        return prompt.replace("ping", "pong").split()[-1]

    engine = RLM(root, sub_model=sub)
    result = await engine.aask("What comes back?", "nothing")
    await engine.aclose()
    assert result.answer == "pong"
    assert set(result.usage.by_model) == {"root", "sub"}


def test_given_windows_are_used_and_checked() -> None:
    made = {"openai-compatible/m": {"base_url": "http://localhost:1/v1"}}
    windows = {"openai-compatible/m": 12_345}
    with RLM("openai-compatible/m", windows=windows, client_options=made) as engine:
        assert engine.runner.resources.routes["openai-compatible/m"].info.window_tokens == 12_345
    with pytest.raises(ConfigError, match="windows= names 'other'"):
        RLM("openai-compatible/m", windows={"other": 1}, client_options=made)


# -- large contexts --------------------------------------------------------------------------

LARGE = "a line\n" * 300_000


class Prepared(PlanEnvironment):
    """Receives a context before a session needs it."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._error = error

    async def prepare(self, context: ContextSource) -> None:
        self.seen.append(context.size_bytes)
        if self._error is not None:
            raise self._error


async def test_a_large_context_is_hashed_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    make = StoredContext._hash_of_blocks

    def noted(context: StoredContext) -> str:
        threads.append(threading.get_ident())
        return make(context)

    monkeypatch.setattr(StoredContext, "_hash_of_blocks", noted)
    result = await engine().aask("What?", LARGE)
    started = next(event for event in result.events if isinstance(event, RunStarted))
    assert started.context_sha256 == hashlib.sha256(LARGE.encode()).hexdigest()
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("error", [None, SessionError("no memory is left")])
async def test_an_environment_may_prepare_a_large_context(error: Exception | None) -> None:
    """If it can't, opening the session will fail and say so."""
    place = Prepared(error)
    client = ScriptedClient(rules=[("", cell(["final", "42"]))])
    async with RLM(client, environment=place) as one:
        assert (await one.aask("What?", LARGE)).answer == "42"
        assert (await one.aask("What?", "little")).answer == "42"
    assert place.seen == [len(LARGE)]


async def test_nothing_is_prepared_for_a_run_without_a_session() -> None:
    place = Prepared()
    client = ScriptedClient(rules=[("", "NOT FOUND")])
    async with RLM(client, environment=place, strategy="mapreduce") as one:
        await one.aask("What?", LARGE)
    assert place.seen == []
