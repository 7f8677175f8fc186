"""Lifetime of a server: one process for all users, restarted once, never left behind."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="MCP is an extra: pip install 'recursivelm[mcp]'")

from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError
from rlm.tools import McpServer, as_tools, mcp, release_tools
from tests.mcp_servers.harbour import HERE, cell, hostile, run, sample, wait_for
from tests.processes import is_running, running_below


def asked(rlm: RLM) -> int:
    """The server's process, as a cell sees it."""
    answer = rlm.ask("Which process?").answer
    return int(str(answer))


def model() -> ScriptedClient:
    return ScriptedClient([cell("FINAL(here())")] * 5)


def test_one_process_serves_all_and_ends_with_the_last() -> None:
    server = hostile("pid")
    first, second = RLM(model(), tools=[server]), RLM(model(), tools=[server], sub_tools=[server])
    process = asked(first)
    assert asked(second) == process
    first.close()
    assert is_running(process)
    assert asked(second) == process
    second.close()
    assert not is_running(process)


def test_a_server_that_died_is_restarted() -> None:
    cells = ["print(here()[0])", "die()", "print(here()[0])", "FINAL(add(1))"]
    result = run([sample()], *cells)
    assert (
        result.failure(1)
        == "die failed: the server has ended with status 3; it wrote: the tide is out"
    )
    first, second = (int(result.outputs[index].split()[0]) for index in (0, 2))
    assert first != second
    assert result.answer == "3"
    assert not is_running(first)
    assert not is_running(second)


def test_a_server_that_cannot_be_restarted_is_an_error_the_model_can_handle(
    tmp_path: Path,
) -> None:
    script = tmp_path / "server.py"
    script.write_text((HERE / "hostile.py").read_text("utf-8"), "utf-8")
    rlm = RLM(
        ScriptedClient([cell("hello()"), cell("FINAL('done')")]),
        tools=[server := mcp([sys.executable, str(script), "plain"])],
    )
    server.close()
    script.write_text("raise SystemExit('not today')", "utf-8")
    with rlm:
        result = rlm.ask("What?")
    assert result.answer == "done"
    (event,) = [each for each in result.events if getattr(each, "name", "") == "hello"]
    assert str(getattr(event, "error", "")).endswith("it wrote: not today")


def test_an_unclosed_rlm_ends_its_server_when_collected() -> None:
    rlm = RLM(model(), tools=[hostile("pid")])
    process = asked(rlm)
    del rlm
    gc.collect()
    wait_for(lambda: not is_running(process))


def test_a_closed_rlm_that_is_used_again_restarts_its_server() -> None:
    rlm = RLM(model(), tools=[hostile("pid")])
    first = asked(rlm)
    rlm.close()
    assert not is_running(first)
    second = asked(rlm)
    rlm.close()
    assert first != second
    assert not is_running(second)


def test_a_server_killed_from_outside_is_noticed_between_calls() -> None:
    with RLM(model(), tools=[hostile("pid")]) as rlm:
        first = asked(rlm)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not is_running(first))
        second = asked(rlm)
    assert first != second


def test_child_processes_of_a_server_end_with_it(tmp_path: Path) -> None:
    notes = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {notes}; exec {sys.executable} {HERE / 'hostile.py'} plain"
    with RLM(ScriptedClient([cell("FINAL(hello())")]), tools=[mcp(["sh", "-c", script])]) as rlm:
        assert rlm.ask("What?").answer == "hello"
        child = int(notes.read_text("utf-8"))
        assert is_running(child)
    wait_for(lambda: not is_running(child))


PROGRAM = """
import sys
from rlm import RLM, ScriptedClient
from rlm.tools import mcp

code = "```repl\\nFINAL(here())\\n```"
rlm = RLM(ScriptedClient([code]), tools=[mcp([sys.executable, sys.argv[1], "pid"])])
print(rlm.ask("Which process?").answer)
"""


@pytest.mark.heavy
def test_the_server_ends_with_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(HERE / "hostile.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not is_running(int(done.stdout))
    assert done.stderr == ""


async def test_inside_a_run_only_an_opened_server_can_be_used() -> None:
    server = hostile("plain")

    async def ask_another() -> str:
        """Ask another RLM."""
        inner = RLM(ScriptedClient([cell("FINAL(hello())")]), tools=[server])
        answer = (await inner.aask("What?")).answer
        await inner.aclose()
        return str(answer)

    cells = ["ask_another()", "FINAL('no')"]
    outer = RLM(ScriptedClient([cell(each) for each in cells]), tools=[ask_another])
    keeper = server.lease()
    result = await asyncio.to_thread(outer.ask, "What?")
    errors = [str(getattr(each, "error", None)) for each in result.events]
    assert any("`await server.open()` first" in error for error in errors)
    await server.open()
    again = RLM(ScriptedClient([cell("FINAL(ask_another())")]), tools=[ask_another])
    assert (await again.aask("What?")).answer == "hello"
    await outer.aclose()
    await again.aclose()
    del keeper
    await server.aclose()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.heavy
def test_opening_a_server_many_times_leaks_nothing() -> None:
    run([hostile("plain")], "FINAL(hello())")
    before = open_files()
    for _ in range(20):
        tools, _ = as_tools([hostile("plain")])
        assert running_below("hostile.py")
        asyncio.run(release_tools(tools))
    assert running_below("hostile.py") == set()
    # The pool may be making its next session ready; twenty openings would leave more than that.
    assert open_files() < before + 20


def test_if_one_server_fails_to_start_the_others_are_closed() -> None:
    with pytest.raises(ConfigError):
        as_tools([hostile("plain"), hostile("none")])
    wait_for(lambda: not running_below("hostile.py"))


def test_two_servers_with_tools_of_the_same_name_do_not_clash() -> None:
    def hello() -> str:
        """Ours comes first."""
        return "ours"

    asked = run(
        [hostile("plain"), hello, hostile("plain")], "FINAL([hello(), hello_2(), hello_3()])"
    )
    assert asked.answer == "['ours', 'hello', 'hello']"
    assert isinstance(hostile("plain"), McpServer)
