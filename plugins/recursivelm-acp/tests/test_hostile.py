"""Clients that send anything: each message is answered or ignored, and the next one works."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import RequestError
from editor import MODEL, PROGRAM, cell, editor, variables
from hypothesis import given
from hypothesis import strategies as st
from recursivelm_acp.folder import Changes, Folder
from recursivelm_acp.prompts import read_prompt
from recursivelm_acp.saved import SessionStore
from recursivelm_acp.transport import MAX_LINE_BYTES, read_message

from rlm.testing.fake_server import FakeServer

SECONDS = 60
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "start",
    "method": "initialize",
    "params": {"protocolVersion": 1},
}


def exchange(home: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines and the end of input to `rlm acp`, and return what it prints, all of it JSON."""
    with FakeServer(["unused"]) as server:
        done = subprocess.run(
            (PROGRAM, "acp", "-m", MODEL),
            input=b"\n".join(lines) + b"\n",
            env=variables(server, home),
            capture_output=True,
            timeout=SECONDS,
        )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stdout
    return [json.loads(line, parse_constant=_refuse) for line in done.stdout.splitlines()]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def call(number: Any, method: Any, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def _nested(value: str) -> bytes:
    """A value that the SDK repeats in its error, and that JSON can't hold."""
    start = '{"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": '
    return f'{start}{value}, "mcpServers": []}}}}'.encode()


def test_every_invalid_message_is_answered_and_the_next_one_works(tmp_path: Path) -> None:
    wrong: list[tuple[bytes, int]] = [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[1, 2]", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"id": [], "result": 1}', -32600),
        (b'{"id": null, "error": 5}', -32600),
        (call(1, 5), -32600),
        (call(1, ["x"]), -32600),
        (call({}, "initialize"), -32600),
        (call(1, "initialize", [1]), -32602),
        (call(1, "no/such/method"), -32601),
        (call(1, "session/new", {"cwd": 5, "mcpServers": []}), -32602),
        (call(1, "session/prompt", {"sessionId": "x", "prompt": "x"}), -32602),
        (call(1, "session/prompt", {"sessionId": {}, "prompt": []}), -32602),
        (b"x" * (MAX_LINE_BYTES + 5), -32600),
        (_nested("1e999"), -32602),
    ]
    harmless = [b"", b'{"id": 7, "result": 1}', b'{"id": 8, "error": "x"}']
    lines = [line for line, _ in wrong]
    found = exchange(tmp_path, *harmless, *lines, json.dumps(INITIALIZE).encode())
    codes = sorted(each["error"]["code"] for each in found if "error" in each)
    assert codes == sorted(code for _, code in wrong)
    [ready] = [each for each in found if "result" in each]
    assert ready["id"] == "start"
    assert all(len(json.dumps(each)) < 5_000 for each in found), "nothing large is repeated"


def test_a_message_that_is_too_long_is_answered_by_its_id(tmp_path: Path) -> None:
    rest = b"x" * MAX_LINE_BYTES + b'"}'
    starts = (
        (b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":"', 7),
        (b'{"id": "a-7", "x": "', "a-7"),
        (b'{"method": "session/prompt", "params": {"id": 7, "x": "', None),
    )
    found = exchange(tmp_path, *(start + rest for start, _ in starts))
    assert [each["id"] for each in found] == [number for _, number in starts]


def test_nested_messages_are_answered_at_any_depth(tmp_path: Path) -> None:
    depths = (100, 900, 950, 980, 985, 990, 995, 1_000, 5_000)
    lines = [_nested("[" * depth + "]" * depth) for depth in depths]
    found = exchange(tmp_path, *lines)
    assert len(found) == len(depths)
    assert {each["error"]["code"] for each in found} <= {-32602, -32700}


@pytest.mark.parametrize("cwd", ["relative", "/nonexistent", "/etc/passwd", "", "a\0b"])
async def test_a_session_needs_a_folder(tmp_path: Path, cwd: str) -> None:
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path) as client:
            with pytest.raises(RequestError, match="absolute path of a folder") as caught:
                await client.agent.new_session(cwd=cwd, mcp_servers=[])
    assert caught.value.code == -32602


async def test_sessions_come_after_initialize_and_have_one_folder(tmp_path: Path) -> None:
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path, ready=False) as client:
            with pytest.raises(RequestError, match="send `initialize` first"):
                await client.new(tmp_path)
            await client.agent.initialize(protocol_version=1)
            with pytest.raises(RequestError, match="one folder"):
                await client.agent.new_session(
                    cwd=str(tmp_path), mcp_servers=[], additional_directories=["/etc"]
                )
            for wrong in ("x", "x" * 100_000):
                with pytest.raises(RequestError, match="no open session") as caught:
                    await client.ask(wrong, "hello")
                assert len(str(caught.value)) < 500


async def test_meta_does_not_replace_parameters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path) as client:
            made: Any = await client.agent._conn.send_request(
                "session/new",
                {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"cwd": "/nonexistent"}},
            )
    assert made["sessionId"]


async def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("x")
    (tmp_path / "outside.txt").write_text("private")
    (project / "link.txt").symlink_to(tmp_path / "outside.txt")
    os.mkfifo(project / "pipe")
    links = [
        "file:///etc/passwd",
        "file://elsewhere/etc/passwd",
        f"file://{project}/../outside.txt",
        f"file://{project}/%2e%2e/outside.txt",
        f"file://{project}/link.txt",
        f"file://{project}/pipe",
        f"file://{tmp_path}",
        f"file://{project}/missing",
        "file:///a%00b",
        "file://[",
    ]
    with FakeServer([cell("FINAL(repr(context))")]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            for link in links:
                with pytest.raises(RequestError) as caught:
                    await client.ask(session, "Read ", acp.resource_link_block("it", link))
                assert caught.value.code == -32602, link
            assert server.count == 0
            await client.ask(session, "All?")
    assert client.said == "{'a.txt': 'x'}"


async def test_a_session_answers_one_prompt_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with FakeServer([{"behaviour": "never"}]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(tmp_path)
            first = asyncio.create_task(client.ask(session, "One?"))
            while not server.count:
                await asyncio.sleep(0.01)
            with pytest.raises(RequestError, match="busy with another prompt"):
                await client.ask(session, "Two?")
            await client.agent.cancel(session_id="unknown")
            await client.agent.cancel(session_id=session)
            assert (await first).stop_reason == "cancelled"


@pytest.mark.parametrize("how", ["close", "terminate"])
async def test_the_process_ends_with_its_client_in_the_middle_of_a_prompt(
    tmp_path: Path, how: str
) -> None:
    (tmp_path / "a.txt").write_text("x")
    endless = cell("while True: pass")
    with FakeServer([endless]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(tmp_path)
            asking = asyncio.create_task(client.ask(session, "One?"))
            while not client.updates:
                await asyncio.sleep(0.01)
            assert client.process.stdin is not None
            if how == "close":
                client.process.stdin.close()
            else:
                client.process.terminate()
            assert await asyncio.wait_for(client.process.wait(), SECONDS) == 0
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


def test_what_libraries_print_is_not_on_stdout(tmp_path: Path) -> None:
    """A plugin that prints when it is loaded, as a stand-in for any library."""
    code = (
        "import threading, os\n"
        "from click.testing import CliRunner\n"
        "from recursivelm_acp.command import acp\n"
        "import recursivelm_acp.agent as agent\n"
        "plain = agent.EditorAgent.initialize\n"
        "async def noisy(self, protocol_version, **rest):\n"
        "    print('noise'); os.write(1, b'more noise\\n')\n"
        "    return await plain(self, protocol_version, **rest)\n"
        "agent.EditorAgent.initialize = noisy\n"
        "acp(['-m', 'openai/gpt-5-mini'], standalone_mode=False)\n"
    )
    with FakeServer(["unused"]) as server:
        done = subprocess.run(
            (sys.executable, "-c", code),
            input=json.dumps(INITIALIZE).encode() + b"\n",
            env=variables(server, tmp_path),
            capture_output=True,
            timeout=SECONDS,
        )
    [line] = done.stdout.splitlines()
    assert json.loads(line)["id"] == "start"
    assert b"noise" in done.stderr


def test_a_client_that_does_not_read_does_not_block_the_process(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    flood = cell("for i in range(400):\n    print('x' * 1000)\nFINAL(1)")
    with FakeServer([flood], loop=True) as server:
        process = subprocess.Popen(
            (PROGRAM, "acp", "-m", MODEL),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables(server, tmp_path),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.write(
            call(1, "session/new", {"cwd": str(tmp_path), "mcpServers": []}) + b"\n"
        )
        process.stdin.flush()
        process.stdout.readline()
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        block = {"type": "text", "text": "One?"}
        for number in range(2, 4):
            params = {"sessionId": session, "prompt": [block]}
            process.stdin.write(call(number, "session/prompt", params) + b"\n")
        process.stdin.flush()
        while not server.count:
            time.sleep(0.01)
        process.stdin.close()
        try:
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.stdout.close()


# -- parsers --------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
NAMES = st.sampled_from(["id", "method", "params", "result", "error", "_meta", "jsonrpc"])


@given(st.binary() | JSON.map(json.dumps) | st.dictionaries(NAMES, JSON).map(json.dumps))
def test_any_message_is_valid_or_refused(line: bytes | str) -> None:
    try:
        message = read_message(line)
    except RequestError:
        return
    if "method" in message:
        assert isinstance(message["method"], str)
        assert not {"_meta", "field_meta"} & message["params"].keys()
    else:
        assert isinstance(message["id"], int)
        assert message.get("error") is None or isinstance(message["error"]["code"], int)
        assert not (message.get("error") and "result" in message)


@given(st.text())
def test_a_link_names_a_file_inside_the_folder_or_is_refused(uri: str) -> None:
    folder = Folder(str(Path(__file__).parent))
    for each in (uri, f"file://{uri}", f"file://{folder.path}/{uri}"):
        try:
            name = folder.linked(each)
        except RequestError:
            continue
        assert name is None or (folder.path / name).resolve().is_relative_to(folder.path)


@given(st.text())
def test_a_session_id_cannot_be_a_path(session_id: str) -> None:
    with pytest.raises(RequestError):
        SessionStore(None).chat_path(session_id)


@given(st.lists(st.text(), max_size=5))
def test_any_texts_become_a_query(texts: list[str]) -> None:
    blocks = [acp.text_block(text) for text in texts]
    try:
        prompt = read_prompt(blocks, Folder(str(Path(__file__).parent)))
    except RequestError:
        assert not "".join(texts).strip()
        return
    assert prompt.query == "".join(texts).strip()


STATES = st.dictionaries(st.text(max_size=3), st.tuples(st.integers(), st.integers()))


@given(STATES, STATES)
def test_changes_are_exactly_the_difference(before: Any, now: Any) -> None:
    changes = Changes.between(before, now)
    kept = {name: facts for name, facts in before.items() if name not in changes.deleted}
    assert {**kept, **{name: now[name] for name in changes.changed}} == now
