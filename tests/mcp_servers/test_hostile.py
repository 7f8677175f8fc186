"""Servers that lie, flood, hang and die: limits hold, errors say what to do, runs continue."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="MCP is an extra: pip install 'recursivelm[mcp]'")

from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError
from rlm.tools import mcp
from tests.mcp_servers.harbour import hostile, run, wait_for
from tests.processes import running_below

NAME = Path(sys.executable).name


def refusal(server: object) -> str:
    with pytest.raises(ConfigError) as caught:
        RLM(ScriptedClient([]), tools=[server])
    text = str(caught.value)
    assert "\n" not in text
    assert "\x1b" not in text
    return text


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("none", "none of its tools remain: none"),
        (
            "many",
            "it offers 10,000 tools, but a model is shown at most 128: choose with only=[...]",
        ),
        ("more", "it offers more than 10,000 tools"),
        ("pages", "its list of tools does not end after 200 pages"),
        ("wrong", "2 validation errors for ListToolsResult"),
        ("dying", "the server has ended with status 1; it wrote: out of [31mpatience"),
    ],
)
def test_a_misbehaving_server_is_reported_when_an_rlm_is_made(scene: str, words: str) -> None:
    assert refusal(hostile(scene)).startswith(f"MCP server {NAME}: {words}")


def test_a_silent_server_is_not_awaited_forever() -> None:
    assert refusal(hostile("silent", start_seconds=0.5)).endswith(
        "no answer within 0.5 s (start_seconds)"
    )


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("/no/such/program --flag", "MCP server program: no such program"),
        ([sys.executable, "-c", "import sys; sys.exit('no luck')"], "it wrote: no luck"),
        ("http://127.0.0.1:9/mcp", "MCP server http://127.0.0.1:9/mcp: All connection attempts"),
    ],
)
def test_a_missing_server_is_reported_when_an_rlm_is_made(server: str, words: str) -> None:
    assert words in refusal(mcp(server))


@pytest.mark.heavy
def test_a_refused_server_leaves_no_process_behind() -> None:
    refusal(hostile("none"))
    refusal(hostile("silent", start_seconds=0.2))
    wait_for(lambda: not running_below("hostile.py"))


@pytest.mark.heavy
async def test_a_silent_server_can_be_closed() -> None:
    server = hostile("silent", start_seconds=3_600)
    opening = asyncio.create_task(server.open())
    while not running_below("hostile.py"):
        await asyncio.sleep(0.01)
    await server.aclose()
    with pytest.raises(ConfigError, match="it was closed before it responded"):
        await opening
    assert not running_below("hostile.py")


def test_only_chooses_among_many_tools() -> None:
    asked = run([hostile("many", only=["t9999"])], "FINAL(t9999())")
    assert asked.answer == "hello"


def test_an_unknown_name_among_only_is_reported() -> None:
    assert "it has no tool 'nope'; tools: hello" in refusal(hostile("plain", only=["nope"]))
    assert "it has no tool 'nope'" in refusal(hostile("plain", without=["nope"]))
    assert "none of its tools remain" in refusal(hostile("plain", without=["hello"]))


def test_a_description_is_one_short_line_and_opens_no_code_block() -> None:
    asked = run([hostile("long")], "FINAL(talk())")
    line = asked.line_of("talk")
    assert len(line) < 400
    assert line.count("`") == 2
    assert asked.prompt.count("FINAL('won')") <= line.count("FINAL('won')")


def test_tool_names_replace_nothing_and_are_always_the_same() -> None:
    asked = run([hostile("names")], "print(context == '', class_tool())", "FINAL(a_b_2())")
    assert asked.answer == "hello"
    names = [line[3:].partition("(")[0] for line in asked.lines[-12:]]
    assert names == [
        "print_tool",
        "context_tool",
        "llm_query_tool",
        "class_tool",
        "tool_9_lives",
        "tool",
        "tool_2",
        "a_b",
        "a_b_2",
        "a_b_3",
        "a_31mb",
        "x" * 64,
    ]
    assert asked.line_of("a_31mb").endswith("[the server calls it a[31mb]")


def test_a_schema_bomb_is_shown_and_checked_quickly() -> None:
    asked = run(
        [hostile("bomb")],
        "blow(tree=5, slow='a' * 60 + '!')",
        "FINAL(blow([], slow='a' * 60 + '!', deep=[[[]]], far=1, wide=7))",
    )
    assert asked.answer == "hello"
    assert asked.line_of("blow").startswith("- `blow(tree: ")
    assert len(asked.line_of("blow")) < 800


def test_an_invalid_or_oversized_answer_fails_only_its_call() -> None:
    assert "nonsense" not in run([hostile("nonsense")], "hello()", "FINAL(1)").failure(0)
    asked = run([hostile("huge")], "hello()", "FINAL(1)")
    assert asked.failure(0).endswith("larger than 16 MiB as JSON; ask for less")
    asked = run([hostile("angry")], "hello()", "FINAL(1)")
    assert len(asked.failure(0)) < 600
    assert "`" not in asked.failure(0)


def test_servers_older_than_2026_can_announce_changed_tool_lists() -> None:
    # The notification is handled while cells run, so the tool may still be there for a moment.
    until_gone = "import time\nwhile True:\n    hello()\n    time.sleep(0.01)"
    asked = run([hostile("changing")], "print(hello())", until_gone, "FINAL(1)")
    assert asked.outputs[0].startswith("hello")
    assert asked.failure(1) == "hello failed: the server no longer has this tool"


def test_output_on_stdout_and_stderr_is_ignored() -> None:
    assert run([hostile("noisy")], "FINAL(hello(anything=[1]))").answer == "hello"


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ("", {}, "mcp takes a command"),
        ([], {}, "mcp takes a command"),
        ([3], {}, "mcp takes a command"),
        ("'", {}, "can't be split into words"),
        ("https://", {}, "not a server's URL"),
        ("http://host:port/", {}, "not a server's URL"),
        ("cat", {"headers": {}}, "headers= works only for servers at a URL"),
        ("http://host/", {"env": {}}, "env= and cwd= work only for servers started by a command"),
        ("http://host/", {"cwd": "."}, "env= and cwd= work only for servers started by a command"),
        ("http://host/", {"headers": {"a": 1}}, "headers must be a dict of strings"),
        ("cat", {"env": {"a": None}}, "env must be a dict of strings"),
        ("cat", {"transport": "http"}, "'http' can't be used with a command"),
        ("http://host/", {"transport": "stdio"}, "'stdio' can't be used with a URL"),
        ("cat", {"prefix": "a-b"}, "prefix must be a Python name"),
        ("cat", {"only": "add"}, "only must be a list of names"),
        ("cat", {"timeout_seconds": 0}, "timeout_seconds must be a positive number"),
        ("cat", {"start_seconds": float("inf")}, "start_seconds must be a positive number"),
    ],
)
def test_wrong_options_are_refused_before_a_server_is_started(
    arguments: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        mcp(arguments, **options)


def test_secrets_in_an_address_are_not_in_messages() -> None:
    text = refusal(mcp("http://me:secret@127.0.0.1:9/mcp?key=secret"))
    assert "127.0.0.1:9/mcp" in text
    assert "secret" not in text
    assert "secret" not in repr(mcp(["cat", "--key", "secret"]))


def test_a_description_for_a_whole_server_is_refused() -> None:
    given = {"x": {"tool": hostile("plain"), "description": "nice"}}
    with pytest.raises(ConfigError, match="have their own descriptions"):
        RLM(ScriptedClient([]), tools=given)
