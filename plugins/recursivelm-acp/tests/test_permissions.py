"""Tools of an editor's MCP servers: nothing happens before the user has allowed it."""

import asyncio
import sys
from pathlib import Path

import pytest
from acp.schema import McpServerStdio
from editor import Editor, cell, editor

from rlm.testing.fake_server import FakeServer

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def notes(name: str = "notes", command: str = sys.executable) -> McpServerStdio:
    return McpServerStdio(name=name, command=command, args=[SERVER], env=[])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


async def asked(
    home: Path, project: Path, answers: list[str | None], code: str, prompts: int = 1
) -> Editor:
    with FakeServer([cell(code)] * prompts) as server:
        async with editor(server, home) as client:
            client.answers = answers
            session = await client.new(project, [notes()])
            for _ in range(prompts):
                await client.ask(session, "Write!")
    return client


CALL = """
try:
    FINAL(notes_write_note(text='hello'))
except Exception as error:
    FINAL(f'{type(error).__name__}: {error}')
"""


async def test_an_allowed_tool_runs_after_the_permission_request(
    tmp_path: Path, project: Path
) -> None:
    client = await asked(tmp_path, project, ["allow_once"], CALL)
    assert client.said == "written: hello"
    assert (project / "note.txt").read_text() == "hello\n"
    [(tool_call, number)] = client.asked
    title = "notes_write_note"
    assert tool_call.title == title
    statuses = [status for name, status in client.tool_calls if name == title]
    assert statuses[1:] == ["in_progress", "completed"]
    before = client.updates[number - 1]
    assert (before.session_update, before.tool_call_id) == ("tool_call", tool_call.tool_call_id)
    assert before.content[0].content.text == "notes_write_note(text='hello')"


@pytest.mark.parametrize("answer", ["reject_once", "reject_always", None, "something else"])
async def test_without_permission_nothing_happens(
    tmp_path: Path, project: Path, answer: str | None
) -> None:
    client = await asked(tmp_path, project, [answer], CALL)
    assert "the user did not allow notes_write_note" in client.said
    assert not (project / "note.txt").exists()
    assert client.tool_calls[-2:] != [], "the cell ends"
    statuses = [status for name, status in client.tool_calls if name == "notes_write_note"]
    assert statuses[-1] == "failed"
    assert "in_progress" not in statuses


@pytest.mark.parametrize(("answer", "lines"), [("allow_always", 4), ("reject_always", 0)])
async def test_an_answer_of_always_is_remembered_for_the_session(
    tmp_path: Path, project: Path, answer: str, lines: int
) -> None:
    client = await asked(tmp_path, project, [answer], CALL.replace("FINAL(n", "print(n") + CALL, 2)
    assert len(client.asked) == 1
    note = project / "note.txt"
    assert (note.read_text().count("hello") if note.exists() else 0) == lines


async def test_a_server_that_does_not_start_is_omitted_and_named(
    tmp_path: Path, project: Path
) -> None:
    servers = [notes("broken", "/nonexistent/program"), notes()]
    with FakeServer([cell("FINAL('notes_write_note' in globals())")]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project, servers), "Which?")
    assert client.said == "True"
    assert client.updates[0].session_update == "agent_thought_chunk"
    assert "The MCP server 'broken' is left out" in client.updates[0].content.text


@pytest.mark.parametrize("chars", [5_000, 500_000])
async def test_permission_requests_show_all_arguments(
    tmp_path: Path, project: Path, chars: int
) -> None:
    text = f"'o' * {chars} + ' MIDDLE ' + 'k' * {chars}"
    client = await asked(tmp_path, project, ["allow_once"], CALL.replace("'hello'", text))
    if chars == 500_000:
        assert "too long to show to the user" in client.said
        assert (client.asked, (project / "note.txt").exists()) == ([], False)
        return
    [(tool_call, _)] = client.asked
    assert " MIDDLE " in tool_call.content[0].content.text


async def test_a_session_can_be_opened_only_once(tmp_path: Path, project: Path) -> None:
    with FakeServer([cell("FINAL(1)")]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            await client.ask(session, "One?")
            await client.agent.close_session(session_id=session)
            opened = await asyncio.gather(
                *(
                    client.agent.resume_session(
                        cwd=str(project), session_id=session, mcp_servers=[notes()]
                    )
                    for _ in range(3)
                ),
                return_exceptions=True,
            )
    problems = [str(each) for each in opened if isinstance(each, Exception)]
    assert problems == ["this session is already open"] * 2
