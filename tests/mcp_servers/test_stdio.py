"""Tools of a real MCP server in a child process, called from cells of real sessions."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="MCP is an extra: pip install 'recursivelm[mcp]'")

from rlm import Limits
from rlm.tools import McpServer
from tests.mcp_servers.harbour import Asked, hostile, run, sample, wait_for


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    """One process for all tests of this file: `keeper` holds it while RLMs come and go."""
    made = sample(timeout_seconds=20)
    keeper = made.lease()
    yield made
    del keeper
    made.close()


def ask(server: McpServer, *cells: str, **options: Any) -> Asked:
    return run([server], *cells, **options)


def test_each_tool_is_a_function_with_a_signature(server: McpServer) -> None:
    asked = ask(server, "FINAL([add(1), add(1, b=5), add(1, 7), add({'a': 2}), add(a=3)])")
    assert json.loads(asked.result.answer_json) == [3, 6, 8, 4, 5]
    assert asked.line_of("add") == (
        "- `add(a: int, b: int = 2) -> int`: "
        "Add two numbers. There is more to say. (b: the other one)"
    )


def test_tool_names_invalid_in_python_are_replaced_and_described(server: McpServer) -> None:
    asked = ask(server, "FINAL(berth_of(berth={'number': 7}, tags=['a'])['side'])")
    assert asked.answer == "port"
    line = asked.line_of("berth_of")
    assert line.startswith("- `berth_of(berth: {'number': int, 'side'?: Literal['port'")
    assert line.endswith("Look at a berth. [the server calls it berth-of]")


def test_wrong_arguments_are_reported_with_the_usage_and_not_sent(server: McpServer) -> None:
    asked = ask(
        server,
        "add('one')",
        "add()",
        "add(1, c=2)",
        "add(1, 2, 3)",
        "berth_of(berth={'number': 41})",
        "berth_of(berth={'side': 'port'})",
        "berth_of({'number': 1, 'side': 'keel'})",
        "FINAL(add(1))",
        limits=Limits(max_errors=20),
    )
    usage = "; usage: add(a: int, b: int = 2) -> int"
    assert asked.failure(0) == f"add: argument 'a': expected int, got 'one'{usage}"
    assert asked.failure(1) == f"add: 'a' is missing{usage}"
    assert asked.failure(2) == f"add: unknown argument 'c'{usage}"
    assert asked.failure(3) == f"add: it takes 2 arguments, not 3{usage}"
    assert "argument 'berth': 'number': must be at most 40, got 41" in asked.failure(4)
    assert "argument 'berth': 'number' is missing" in asked.failure(5)
    assert "to pass a dict as a value, write berth={...}" in asked.failure(6)
    assert asked.answer == "3"


def test_a_tools_error_message_reaches_the_model(server: McpServer) -> None:
    asked = ask(server, "refuse('low tide')", "FINAL(1)")
    assert asked.failure(0).startswith("refuse failed: ")
    assert asked.failure(0).endswith("it can't be done: low tide")


def test_results_keep_their_types(server: McpServer) -> None:
    asked = ask(
        server,
        "kinds = [berth_of({'number': 1}), letters(2), letters(0), picture(), add(1)]\n"
        "FINAL(kinds)",
    )
    berth, letters, nothing, picture, number = json.loads(asked.result.answer_json)
    assert berth == {"berth": 1, "side": "port", "tags": []}
    assert letters == "letter 0\nletter 1"
    assert (nothing, number) == (None, 3)
    assert picture[0] == "a boat"
    assert picture[1]["type"] == "image"
    assert picture[1]["mimeType"] == "image/png"
    assert base64.b64decode(picture[1]["data"]).startswith(b"\x89PNG")


@pytest.mark.heavy
def test_an_oversized_result_is_refused_and_the_server_keeps_running(server: McpServer) -> None:
    asked = ask(server, "large(17 << 20)", "x = large(9_000_000)", "FINAL(len(x))")
    assert asked.failure(0).endswith("larger than 16 MiB as JSON; ask for less")
    assert asked.answer == "9000000"


def test_a_call_that_times_out_is_cancelled_at_the_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    asked = run([sample(timeout_seconds=1)], f"slow({str(notes)!r})", "FINAL(add(1))")
    assert asked.failure(0) == (
        "slow failed: no result within 1 s; it had done 3 of 10 (still at it)"
    )
    assert asked.answer == "3"
    assert notes.read_text("utf-8") == "cancelled"


def test_stopping_a_cell_cancels_its_calls_at_the_server(server: McpServer, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    asked = run([server], f"slow({str(notes)!r})", limits=Limits(max_seconds=2.0))
    assert asked.result.stop_reason == "limit"
    wait_for(lambda: notes.read_text("utf-8") == "cancelled")


@pytest.mark.heavy
def test_a_changed_tool_list_takes_effect_with_the_next_call() -> None:
    server = sample()
    keeper = server.lease()
    asked = run([server], "letters(1)", "learn()", "letters(1)", "FINAL(add(1))")
    assert asked.failure(2) == "letters failed: the server no longer has this tool"
    assert asked.answer == "3"
    again = run([server], "FINAL(sing('la'))")
    assert again.answer == "la"
    assert not [line for line in again.lines if line.startswith("- `letters(")]
    del keeper
    server.close()


@pytest.mark.heavy
def test_only_and_prefix_choose_the_offered_tools() -> None:
    given = sample(only=["add", "berth-of"], prefix="dock")
    asked = run([given], "FINAL(dock_add(1))")
    assert asked.answer == "3"
    names = [line.partition("(")[0] for line in asked.lines]
    assert names[-2:] == ["- `dock_add", "- `dock_berth_of"]

    asked = run({"quay": hostile("names", without=["print"]), "a_b": len}, "FINAL(quay_a_b())")
    assert asked.answer == "hello"
    assert not [line for line in asked.lines if "print" in line.partition("(")[0]]


def test_a_server_does_not_get_our_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ours")
    monkeypatch.setenv("SOMETHING", "private")
    given = sample(env={"TOKEN": "theirs"}, cwd=tmp_path)
    asked = run([given], "FINAL([variables(), here()[1]])")
    seen, folder = json.loads(asked.result.answer_json)
    assert seen["TOKEN"] == "theirs"
    assert "PATH" in seen
    assert not {"OPENAI_API_KEY", "SOMETHING"} & seen.keys()
    assert folder == str(tmp_path)
