"""`environment="auto"`: what it chooses, what it says where nothing works, and what is recorded."""

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.cli._progress import Complaints
from rlm.environments import auto
from rlm.environments.auto import CANDIDATES, AutoEnvironment
from rlm.environments.local import LocalEnvironment, zygotes
from rlm.environments.wasm import WasmEnvironment
from rlm.errors import ConfigError, ModelError
from rlm.protocols import BaseEnvironment, BaseSession, Host
from rlm.wiring.registry import make_environment

ANSWER = ["```repl\nFINAL('here')\n```"]


class Fake(BaseEnvironment):
    """An environment that may refuse when it is tried."""

    def __init__(self, name: str, refusal: str | None = None) -> None:
        self.name = name
        self.refusal = refusal
        self.tries = 0
        self.is_closed = False

    async def open(self, host: Host, options: dict[str, Any]) -> BaseSession:
        raise AssertionError(f"{self.name} was opened")

    async def describe(self) -> dict[str, Any]:
        self.tries += 1
        if self.refusal is not None:
            raise ConfigError(self.refusal)
        return {"isolation": self.name}

    async def not_ready(self) -> str | None:
        await self.describe()
        return "an image has to be fetched"

    async def close(self) -> None:
        self.is_closed = True


def fakes(**refusals: str) -> dict[str, Fake]:
    return {name: Fake(name, refusals.get(name)) for name in CANDIDATES}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets what is known about candidates without a trial."""

    def set_problems(**problems: str) -> None:
        monkeypatch.setattr(auto, "known_problem", problems.get)

    return set_problems


def elsewhere(monkeypatch: pytest.MonkeyPatch, system: str = "darwin") -> None:
    monkeypatch.setattr(sys, "platform", system)


# -- what it chooses -------------------------------------------------------------------------------


async def test_the_first_that_works_is_chosen_and_tried_once(known: Callable[..., None]) -> None:
    known()
    made = fakes()
    environment = AutoEnvironment(made.__getitem__)
    assert (environment.name, made["local"].tries) == ("local", 0)
    assert await environment.decide() is made["local"]
    assert await environment.decide() is made["local"]
    assert made["local"].tries == 1
    assert (await environment.describe())["chosen"] == "local"
    await environment.close()
    assert [each.is_closed for each in made.values()] == [True, False, False]


async def test_a_local_sandbox_whose_layers_do_not_hold_is_passed_over(
    known: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    known()
    made = fakes(local="no sandbox for model-written code here: seccomp is denied")
    environment = AutoEnvironment(made.__getitem__)
    assert environment.name == "local"
    assert await environment.decide() is made["wasm"]
    assert environment.name == "wasm"
    (line,) = caplog.messages
    assert line.startswith("environment='auto' chose 'wasm': it passes over 'local': no sandbox")
    described = await environment.describe()
    assert (described["chosen"], described["reason"]) == ("wasm", environment.reason)
    assert environment.reason.startswith("passes over 'local': no sandbox")


async def test_docker_is_chosen_if_an_engine_answers(known: Callable[..., None]) -> None:
    known(local="no Linux", wasm="no wheel")
    made = fakes()
    environment = AutoEnvironment(made.__getitem__)
    assert (environment.name, made["docker"].tries) == ("auto", 0)
    assert await environment.decide() is made["docker"]
    assert (environment.name, made["docker"].tries) == ("docker", 1)


async def test_where_nothing_works_one_line_says_what_to_do(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(local="no Linux", wasm="no pyeryx")
    environment = AutoEnvironment(fakes(docker="no engine answers").__getitem__)
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(ConfigError) as caught:
        await environment.decide()
    told = str(caught.value)
    assert "\n" not in told
    assert "run: pip install 'recursivelm[wasm]'" in told
    assert "local: no Linux; wasm: no pyeryx; docker: no engine answers" in told
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(ConfigError, match=r"Python 3\.12 or newer \(uv venv.*recursivelm\[wasm"):
        await environment.decide()
    elsewhere(monkeypatch)
    with pytest.raises(ConfigError, match=r"use Python 3\.12 or newer, where recursivelm brings"):
        await environment.decide()


def test_it_never_means_inprocess() -> None:
    assert CANDIDATES == ("local", "wasm", "docker")


def test_a_system_without_any_is_known_beforehand(known: Callable[..., None]) -> None:
    known(local="a", wasm="b", docker="c")
    assert "local: a; wasm: b; docker: c" in (AutoEnvironment.problem() or "")
    known(local="a", wasm="b")
    assert AutoEnvironment.problem() is None


@pytest.mark.parametrize(
    ("machine", "status", "problem"),
    [
        ("riscv64", "Seccomp:\t0\n", "need a 64-bit x86_64 or aarch64, and this is riscv64"),
        ("x86_64", "\nUid:\t0\n", "need seccomp, which this kernel lacks"),
        ("aarch64", "Uid:\t0\nSeccomp:\t0\n", None),
    ],
)
def test_what_a_kernel_says_about_itself_is_enough_to_pass_it_over(
    machine: str, status: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlm.environments import local

    class Names:
        def __init__(self) -> None:
            self.machine = machine

    monkeypatch.setattr("os.uname", Names)
    monkeypatch.setattr(Path, "read_text", lambda *_: status)
    local._missing_in_kernel.cache_clear()
    try:
        found = LocalEnvironment.problem()
        assert found is None if problem is None else problem in (found or "")
    finally:
        local._missing_in_kernel.cache_clear()


# -- options and sizes -----------------------------------------------------------------------------


def test_options_are_those_of_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="'local' has no option 'image'"):
        make_environment("auto", {"image": "x"})
    elsewhere(monkeypatch)
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    with pytest.raises(ConfigError) as caught:
        RLM("offline/extractive", environment_kwargs={"packages": ["numpy"]})
    told = str(caught.value)
    assert "environment='auto' chose 'wasm' here (local: environment='local' can't" in told
    assert "'wasm' has no option 'packages'; options: warm_sessions" in told


async def test_a_context_too_large_for_webassembly_is_refused_before_any_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere(monkeypatch)
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    monkeypatch.setattr("rlm.environments.wasm._MAX_CONTEXT_BYTES", 1 << 20)
    model = ScriptedClient(ANSWER)
    async with RLM(model) as rlm:
        with pytest.raises(ConfigError, match="up to 1 MiB, and this one has 3 MiB"):
            await rlm.aask("Where?", "x" * (3 << 20))
    assert not model.requests


# -- as the default --------------------------------------------------------------------------------


def test_making_an_object_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygotes, "_started", lambda *_: pytest.fail("a process was started"))
    rlm = RLM("offline/extractive")
    assert isinstance(rlm.runner.resources.environment, AutoEnvironment)
    assert rlm.runner.resources.environment.name == rlm.environment_type == "local"


async def test_a_run_that_needs_no_cells_needs_no_environment(
    known: Callable[..., None],
) -> None:
    known(local="a", wasm="b", docker="c")
    async with RLM(ScriptedClient(["plain"]), strategy="direct") as rlm:
        assert (await rlm.aask("Where?")).answer == "plain"
    model = ScriptedClient(ANSWER)
    async with RLM(model) as rlm:
        with pytest.raises(ConfigError, match="no environment here can isolate"):
            await rlm.aask("Where?")
    assert not model.requests


async def test_an_operator_starts_no_environment(known: Callable[..., None]) -> None:
    from rlm import operators

    known(local="a", wasm="b", docker="c")
    model = ScriptedClient(["1: yes", "1: yes"])
    found = await operators.aclassify(["one"], ["yes", "no"], model=model)
    assert list(found) == ["yes"]


async def test_what_was_chosen_is_recorded_and_resumed(tmp_path: Path) -> None:
    async with RLM(ScriptedClient(ANSWER), journal=tmp_path) as rlm:
        result = await rlm.aask("Where?", run_id="first")
        archive = rlm.runner.resources.archive
        assert archive is not None
        (facts,) = [archive.facts(each) for each in archive.places.listed()]
    assert [each.environment for each in result.events if hasattr(each, "environment")] == [
        "local",
        "local",
    ]
    assert facts.settings["environment"] == "local"


async def test_a_run_is_not_resumed_in_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RLM(ScriptedClient([]), journal=tmp_path) as rlm:
        with pytest.raises(ModelError, match="used up"):
            await rlm.aask("Where?", run_id="cut-off")
    elsewhere(monkeypatch)
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    model = ScriptedClient(ANSWER)
    async with RLM(model, journal=tmp_path) as rlm:
        with pytest.raises(ConfigError, match=r"began in the environment 'local'.*chooses 'wasm'"):
            await rlm.aask("Where?", run_id="cut-off")
    assert not model.requests


# -- `local` off Linux -----------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["darwin", "win32"])
async def test_our_own_spelling_refuses_local_elsewhere_and_names_auto(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedClient(ANSWER)
    async with RLM(model, environment="local") as rlm:
        elsewhere(monkeypatch, system)
        with pytest.raises(ConfigError, match=r"need Linux.*Use environment='auto'"):
            await rlm.aask("Where?")
    assert not model.requests


def test_the_references_spelling_means_auto_elsewhere_and_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {"backend": "openai", "backend_kwargs": {"model_name": "gpt-5-mini"}}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RLM(**given, environment="local").environment_type == "local"
    elsewhere(monkeypatch)
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    with pytest.warns(UserWarning, match="'auto' is used in its place") as told:
        assert RLM(**given, environment="local").environment_type == "wasm"
    assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RLM(**given).environment_type == "wasm"


def test_the_references_repl_means_auto_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlm.environments.local_repl import LocalREPL

    elsewhere(monkeypatch)
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    with pytest.warns(UserWarning, match="'auto' is used in its place"):
        repl: Any = LocalREPL()
    assert repl._environment.name == "wasm"
    repl.cleanup()


def test_the_command_line_says_what_was_chosen_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complaints = Complaints()
    complaints.listen()
    text = "environment='auto' chose 'wasm': it passes over 'local': too many processes"
    logging.getLogger("rlm.environments.auto").warning(text)
    logging.getLogger("rlm.other").warning("not for users")
    complaints.close()
    assert capsys.readouterr().err == f"{text}\n"


async def test_the_reason_is_recorded_with_the_run(known: Callable[..., None]) -> None:
    known()
    made = fakes(local="too many processes")
    environment = AutoEnvironment(made.__getitem__)
    engine = RLM(ScriptedClient([]), environment=environment)
    resources = engine.runner.resources
    assert "environment_reason" not in resources.settings(engine.config, None)
    await environment.decide()
    settings = resources.settings(engine.config, None)
    assert settings["environment"] == "wasm"
    assert settings["environment_reason"] == "auto passes over 'local': too many processes"
    await engine.aclose()
