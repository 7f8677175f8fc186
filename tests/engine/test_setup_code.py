"""`setup_code` runs in every new session before its first cell, in every interface."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlm import RLM, AgentRLM, Limits, ScriptedClient
from rlm.cli import _serving, commands, dotenv
from rlm.errors import ConfigError, SessionError
from rlm.events import CellStarted, SessionLost

SETUP = "base = 40\ndef more(n):\n    return base + n"


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def engine(*script: str, **more: Any) -> tuple[RLM, ScriptedClient]:
    rules = more.pop("rules", ())
    client = ScriptedClient(script, rules=rules)
    return RLM(client, **more), client


async def answer_of(one: RLM, context: Any = "c") -> Any:
    try:
        return (await one.aask("q", context)).answer
    finally:
        await one.aclose()


@pytest.mark.parametrize("environment", ["local", "agent", "inprocess"])
async def test_setup_variables_exist_in_the_first_cell(environment: str) -> None:
    one, client = engine(
        code("FINAL([more(2), context])"), environment=environment, setup_code=SETUP
    )
    assert await answer_of(one) == "[42, 'c']"
    prompt = str(client.requests[0].messages[0].content)
    assert "`base`: prepared for you" in prompt
    assert "`more`: prepared for you" in prompt


async def test_setup_code_may_be_given_as_in_the_reference() -> None:
    one, _ = engine(code("FINAL(more(2))"), environment_kwargs={"setup_code": SETUP})
    assert await answer_of(one) == "42"
    with pytest.raises(ConfigError, match="given twice"):
        engine(setup_code="x = 1", environment_kwargs={"setup_code": "x = 2"})
    with pytest.raises(ConfigError, match="must be a str of Python code, not int"):
        engine(setup_code=5)


async def test_setup_code_can_use_the_context_tools_and_models() -> None:
    def double(n: int) -> int:
        return 2 * n

    setup = "size = len(context)\ntwice = double(size)\nsaid = llm_query('ask me')"
    one, client = engine(
        code("FINAL([size, twice, said])"),
        rules=[("ask me", "said it")],
        tools=[double],
        setup_code=setup,
    )
    assert await answer_of(one, "abc") == "[3, 6, 'said it']"
    assert len(client.requests) == 2


async def test_output_of_setup_code_is_dropped_and_it_is_not_a_cell() -> None:
    one, client = engine(code("FINAL(1)"), setup_code="print('NO' + 'ISE')")
    result = await one.aask("q", "c")
    await one.aclose()
    assert result.answer == "1"
    assert [type(event) for event in result.events].count(CellStarted) == 1
    assert "NOISE" not in repr(result.events)
    assert "NOISE" not in repr(client.requests)


@pytest.mark.parametrize(
    "setup",
    ["FINAL('early')", "answer['content'] = 'early'\nanswer['ready'] = True", "answer = 'early'"],
)
async def test_setup_code_cannot_answer_the_query(setup: str) -> None:
    one, _ = engine(code("FINAL(answer)"), setup_code=setup)
    assert await answer_of(one) == "{'content': '', 'ready': False}"


async def test_a_setup_variable_is_not_the_best_answer_at_a_limit() -> None:
    one, _ = engine(
        code("x = 2"), "asked", setup_code="result = 'early'", limits=Limits(max_steps=1)
    )
    assert await answer_of(one) == "asked"


async def test_an_error_in_setup_code_ends_the_run_and_shows_its_line() -> None:
    one, client = engine(code("FINAL(1)"), setup_code="x = 1\ny = x / 0")
    with pytest.raises(ConfigError, match="setup_code failed") as caught:
        await one.aask("q", "c")
    text = str(caught.value)
    assert "ZeroDivisionError: division by zero" in text
    assert "line 2" in text
    assert "y = x / 0" in text
    assert client.requests == []
    await one.aclose()


async def test_other_failures_of_setup_code() -> None:
    one, _ = engine(setup_code="def f(:")
    with pytest.raises(ConfigError, match="SyntaxError"):
        await one.aask("q", "c")
    await one.aclose()
    one, _ = engine(setup_code="import os; os._exit(3)")
    with pytest.raises(SessionError, match="setup_code ended its session"):
        await one.aask("q", "c")
    await one.aclose()
    one, _ = engine(setup_code="while True: pass", limits=Limits(cell_seconds=0.3))
    with pytest.raises(ConfigError, match="setup_code failed"):
        await one.aask("q", "c")
    await one.aclose()


async def test_a_chat_runs_setup_code_once() -> None:
    one, _ = engine(
        code("made.append(1)\nFINAL(made)"),
        code("made.append(2)\nFINAL(made)"),
        setup_code="made = [0]",
    )
    chat = one.chat("text")
    assert (await chat.aask("First?")).answer == "[0, 1]"
    assert (await chat.aask("Second?")).answer == "[0, 1, 2]"
    await chat.aclose()
    await one.aclose()


async def test_a_persistent_engine_runs_setup_code_once() -> None:
    one, _ = engine(
        code("made.append(1)\nFINAL(made)"),
        code("made.append(2)\nFINAL(made)"),
        persistent=True,
        environment_kwargs={"setup_code": "made = [0]"},
    )
    assert (await one.acompletion("a", "First?")).response == "[0, 1]"
    assert (await one.acompletion("b", "Second?")).response == "[0, 1, 2]"
    await one.aclose()


async def test_a_chat_whose_setup_failed_retries_it_in_a_new_session() -> None:
    setup = "if llm_query('may I?') != 'yes': raise ValueError('not now')\nready = True"
    one, _ = engine("no", "yes", code("FINAL(ready)"), setup_code=setup)
    chat = one.chat("text")
    with pytest.raises(ConfigError, match="not now"):
        await chat.aask("First?")
    assert (await chat.aask("Second?")).answer == "True"
    await chat.aclose()
    await one.aclose()


async def test_a_session_that_replaces_a_dead_one_runs_setup_code_too() -> None:
    one, _ = engine(
        code("mine = 1\nimport os; os._exit(1)"),
        code("FINAL([more(2), 'mine' in dir()])"),
        setup_code=SETUP,
        environment_kwargs={},
    )
    result = await one.aask("q", "c")
    await one.aclose()
    assert result.answer == "[42, False]"
    assert any(isinstance(event, SessionLost) for event in result.events)


async def test_child_runs_run_setup_code_too() -> None:
    one, _ = engine(
        code("FINAL([more(1), rlm_query('sub task', context='x')])"),
        rules=[("Query: sub task", code("FINAL(more(2))"))],
        limits=Limits(max_depth=2),
        setup_code=SETUP,
    )
    assert await answer_of(one) == "[41, '42']"


async def test_a_resumed_run_takes_its_setup_code_from_the_journal(tmp_path: Path) -> None:
    one, client = engine(
        code("first = more(2)"),
        code("import time; time.sleep(60)"),
        code("FINAL([first, more(3), said])"),
        rules=[("ask me", "said it")],
        journal=tmp_path,
        setup_code=SETUP + "\nsaid = llm_query('ask me')",
    )
    run = asyncio.create_task(one.aask("q", "c", run_id="mine"))
    while len(client.requests) < 3:
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    again, client = engine(
        code("FINAL([first, more(3), said])"),
        journal=tmp_path,
        setup_code=SETUP + "\nsaid = llm_query('ask me')",
        limits=Limits(cell_seconds=1),
    )
    result = await again.aask("q", "c", run_id="mine")
    assert result.answer == "[42, 43, 'said it']"
    assert len(client.requests) == 1
    await one.aclose()
    await again.aclose()


async def test_an_agent_accepts_setup_code() -> None:
    script = (code("FINAL(more(2))"), code("FINAL(more(3))"))
    async with AgentRLM(ScriptedClient(script), setup_code=SETUP) as agent:
        assert [piece async for piece in agent.chat("First?")] == ["42"]
        assert [piece async for piece in agent.chat("Second?")] == ["43"]
    given = {"setup_code": SETUP}
    async with AgentRLM(ScriptedClient(script), environment_kwargs=given) as agent:
        assert [piece async for piece in agent.chat("First?")] == ["42"]


def test_the_command_line_accepts_a_setup_file(tmp_path: Path) -> None:
    file = tmp_path / "setup.py"
    file.write_text("raise ValueError('from my file')", "utf-8")
    asked = ["ask", "What?", "-m", "offline/extractive", "--no-journal", "--setup-code"]

    def outcome(name: str) -> str:
        done = CliRunner().invoke(commands, [*asked, name], input="some text")
        assert done.exit_code != 0
        return f"{done.output} {done.exception}"

    assert "ValueError: from my file" in outcome(str(file))
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in outcome(str(file))
    assert "No such file" in outcome(str(tmp_path / "no"))


@pytest.mark.parametrize("how", ["--setup-code", "--environment-option"])
async def test_a_server_takes_setup_code_only_from_its_operator(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "setup.py"
    file.write_text(SETUP, "utf-8")
    given: list[_serving.Options] = []
    monkeypatch.setattr(_serving, "run_server", given.append)
    value = str(file) if how == "--setup-code" else f"setup_code={SETUP}"
    command = ["serve", "-m", "offline/extractive", how, value]
    assert CliRunner().invoke(commands, command).exit_code == 0
    settings = dotenv.settings({}, tmp_path)
    engines = _serving._engines(
        given[0], settings, _serving._choices(given[0], settings), tmp_path / "runs"
    )
    assert engines.get("offline/extractive", None).config.setup_code == SETUP
    await engines.close()


async def test_setup_code_that_cannot_be_encoded_is_an_error() -> None:
    one, client = engine(code("FINAL(1)"), setup_code="x = '\ud800'")
    with pytest.raises(ConfigError, match="setup_code failed"):
        await answer_of(one)
    assert client.requests == []


async def test_lone_surrogates_in_other_settings_do_not_stop_a_run(tmp_path: Path) -> None:
    def tool() -> int:
        return 1

    tools = {"tool": {"tool": tool, "description": "one \ud800"}}
    one, _ = engine(code("FINAL(tool())"), tools=tools, journal=tmp_path)
    assert await answer_of(one) == "1"


QUEUE = """
import queue, threading
asked, said = queue.Queue(), queue.Queue()
def work():
    while True:
        try:
            said.put(llm_query(asked.get()))
        except Exception as error:
            said.put(repr(error))
threading.Thread(target=work, daemon=True).start()
def ask(prompt):
    asked.put(prompt)
    return said.get()
"""


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_a_thread_of_setup_code_makes_calls_in_every_turn(environment: str) -> None:
    turn = code("FINAL(ask('which ' + 'city?'))")
    client = ScriptedClient([turn, turn], rules=[("which city", "Bern")])
    async with RLM(client, environment=environment, setup_code=QUEUE) as one:
        chat = one.chat()
        answers = [(await chat.aask("q")).answer for _ in range(2)]
        await chat.aclose()
    assert answers == ["Bern", "Bern"]
