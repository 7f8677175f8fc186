"""Mistakes of a caller are raised from the public call, at the caller's line, with a suggestion."""

import asyncio
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlm
from rlm import RLM, ConfigError, Guards, Limits, Price, RateLimit, ScriptedClient
from rlm.errors import RLMError, UnknownPriceError
from rlm.records.journal import Places


def engine(**options: Any) -> Any:
    return RLM(ScriptedClient(["FINAL(1)"] * 20), **options)


UNKNOWN = "got an unexpected keyword argument"
any_limits: Any = Limits  # called as type checkers forbid
any_guards: Any = Guards
any_price: Any = Price
any_rate_limit: Any = RateLimit

NAMES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: any_limits(max_cost=1),
        f"Limits() {UNKNOWN} 'max_cost'; did you mean 'max_cost_usd'?",
    ),
    (lambda: any_guards(min_step=1), f"Guards() {UNKNOWN} 'min_step'; did you mean 'min_steps'?"),
    (lambda: any_price(input=1), f"Price() {UNKNOWN} 'input'"),
    (lambda: any_rate_limit(tokens_per_min=1), "did you mean 'tokens_per_minute'?"),
    (lambda: any_limits(3), "Limits() accepts only keyword arguments, as in max_steps=…"),
    (lambda: engine(submodel="m"), f"RLM() {UNKNOWN} 'submodel'; did you mean 'sub_model'?"),
    (lambda: engine(max_cost=1), "'max_cost'; did you mean limits=Limits(max_cost_usd=...)?"),
    (lambda: engine(max_iteration=1), "'max_iteration'; did you mean 'max_iterations'?"),
    (lambda: engine(zzz=1), f"RLM() {UNKNOWN} 'zzz'"),
    (
        lambda: engine().ask("q", contxt="x"),
        f"RLM.ask() {UNKNOWN} 'contxt'; did you mean 'context'?",
    ),
    (lambda: engine().ask("q", max_steps=3), "'max_steps': pass limits=Limits(max_steps=...)"),
    (lambda: engine().chat(max_cost=1), "'max_cost'; did you mean 'max_cost_usd'?"),
    (lambda: engine().completion("q", rot_prompt="x"), "did you mean 'root_prompt'?"),
    (lambda: rlm.completion("q", ScriptedClient([]), submodel=1), "did you mean 'sub_model'?"),
]
VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: engine(strategy="mapredce"), "unknown strategy 'mapredce'; did you mean 'mapreduce'?"),
    (lambda: engine(environment="dockr"), "unknown environment 'dockr'; did you mean 'docker'?"),
    (
        lambda: engine(environment="local", environment_kwargs={"warm_session": 1}),
        "the environment 'local' has no option 'warm_session'; did you mean 'warm_sessions'?",
    ),
    (lambda: engine(guards={"min_steps": 1}), "guards must be Guards(…), not dict"),
    (lambda: engine(seed="1"), "seed must be an integer, not str"),
    (lambda: engine(preview_chars=True), "preview_chars must be an integer, not bool"),
    (lambda: engine().ask("q", limits={"max_cost": 1}), "did you mean 'max_cost_usd'?"),
    (lambda: engine().ask(None, "x"), "the query must be a non-empty string, not None"),
]
MISTAKES = [(TypeError, *each) for each in NAMES] + [(ConfigError, *each) for each in VALUES]


@pytest.mark.parametrize(("kind", "call", "text"), MISTAKES)
def test_a_wrong_argument_gives_one_short_message(
    kind: type[Exception], call: Callable[[], object], text: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).endswith(text)
    assert len(str(caught.value)) < 120
    # This function, the lambda, the public call, and what it consists of: nothing of a run.
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 6
    assert caught.value.__cause__ is None


async def test_async_methods_raise_when_called_too() -> None:
    with engine() as one, pytest.raises(TypeError, match="did you mean 'context'"):
        one.aask("q", contxt="x")  # before it is awaited, as Python does
    with engine() as one, pytest.raises(ConfigError, match="non-empty") as caught:
        await one.aask("", "x")
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 2
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(RLM.aask)
    assert "context" in inspect.signature(RLM.aask).parameters


def warned_at(call: Callable[[], object]) -> tuple[str, str]:
    """Return the file and the text of the line that a warning names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    own = [each for each in caught if "of that name" in str(each.message)]
    assert len(own) == 1, [str(each.message) for each in caught]
    lines = Path(own[0].filename).read_text("utf-8").splitlines()
    return Path(own[0].filename).name, lines[own[0].lineno - 1].strip()


def asks(one: Any) -> dict[str, Callable[[], object]]:
    name = "contract.pdf"

    async def streams() -> None:
        async for _ in one.stream("q", name):  # stream
            pass

    async def gathers() -> None:
        await asyncio.gather(one.aask("q", name))  # gathered

    async def awaits() -> None:
        await one.acompletion(name, "q")  # acompletion

    chat = one.chat()
    return {
        "ask": lambda: one.ask("q", name),  # ask
        "gathered": lambda: asyncio.run(gathers()),
        "acompletion": lambda: asyncio.run(awaits()),
        "stream": lambda: asyncio.run(streams()),
        "iter": lambda: list(one.iter("q", name)),  # iter
        "completion": lambda: one.completion(name, "q"),  # completion
        "chat": lambda: one.chat(name).close(),  # chat
        "turn": lambda: chat.ask("q", name),  # turn
    }


@pytest.mark.parametrize(
    "form", ["ask", "gathered", "acompletion", "stream", "iter", "completion", "chat", "turn"]
)
def test_a_warning_points_at_the_callers_line(form: str) -> None:
    with engine() as one:
        file, line = warned_at(asks(one)[form])
    assert file == Path(__file__).name
    assert line.endswith(f"# {form}")


def test_a_run_refused_for_its_price_leaves_no_journal(tmp_path: Path) -> None:
    limits = Limits(max_cost_usd=1)
    with engine(journal=tmp_path, limits=limits) as one:
        for run_id in (None, "mine"):
            with pytest.raises(UnknownPriceError):
                one.ask("q", "x", run_id=run_id)
    assert list(Places(tmp_path).listed()) == []
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_existing_journal_is_kept_when_resuming_is_refused(tmp_path: Path) -> None:
    with engine(journal=tmp_path) as one:
        one.ask("q", "x", run_id="mine", limits={"max_steps": 1})
    script = ScriptedClient(["nothing"] * 3)
    with (
        RLM(script, journal=tmp_path, limits={"max_cost_usd": 1.0}) as one,
        pytest.raises(RLMError),
    ):
        one.ask("another", "x", run_id="mine")
    assert [each.run_id for each in Places(tmp_path).listed()] == ["mine"]


class ClosingClient(ScriptedClient):
    """Counts how often it was closed."""

    closings = 0

    async def close(self) -> None:
        self.closings += 1


def test_a_closed_object_can_be_used_and_closed_again() -> None:
    client = ClosingClient(["FINAL(1)", "FINAL(2)"])
    one = RLM(client)
    one.close()
    assert client.closings == 1
    assert not one.runner.resources._finalizer.alive
    assert one.ask("q", "x").answer == "1"
    assert one.runner.resources._finalizer.alive  # otherwise nothing would close it at the end
    assert one.ask("q", "x").answer == "2"
    one.close()
    assert client.closings == 2
