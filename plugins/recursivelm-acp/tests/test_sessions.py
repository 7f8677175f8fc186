"""Sessions: several at once, saved and loaded, listed, closed, with another model."""

import asyncio
from pathlib import Path

import acp
import pytest
from acp import RequestError
from editor import cell, editor, shown

from rlm.testing.fake_server import FakeServer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


async def test_capabilities_match_what_is_supported(tmp_path: Path) -> None:
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path, "--no-save", ready=False) as client:
            told = await client.agent.initialize(protocol_version=99)
            assert told.protocol_version == acp.PROTOCOL_VERSION
            able = told.agent_capabilities
            assert able is not None
            assert able.session_capabilities is not None
            assert able.load_session is False
            assert able.session_capabilities.list is None
            assert able.session_capabilities.close is not None
            for unsupported in (
                client.agent.set_session_mode(session_id="x", mode_id="x"),
                client.agent.authenticate(method_id="x"),
                client.agent.fork_session(session_id="x", cwd="/", mcp_servers=[]),
            ):
                with pytest.raises(RequestError, match="Method not found"):
                    await unsupported


async def test_sessions_have_their_own_folders_and_variables(tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("beta\n")
    rules = [
        ("beta?", cell("FINAL(list(context.values())[0].strip())")),
        ("", cell("FINAL(list(context))")),
    ]
    with FakeServer(rules=rules) as server:
        async with editor(server, tmp_path) as client:
            first, second = await client.new(project), await client.new(other)
            ended = await asyncio.gather(client.ask(first, "names?"), client.ask(second, "beta?"))
            assert [each.stop_reason for each in ended] == ["end_turn"] * 2
            said = {
                message["params"]["sessionId"]: message["params"]["update"]["content"]["text"]
                for who, message in client.messages
                if who == "incoming" and "agent_message_chunk" in str(message)
            }
    assert said == {first: "['a.txt']", second: "beta"}


async def test_a_saved_session_is_listed_loaded_and_resumed(tmp_path: Path, project: Path) -> None:
    with FakeServer([cell("n = 41\nFINAL('first')")]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            await client.ask(session, "What is it?")
    (project / "a.txt").write_text("changed\n")
    replies = [cell("FINAL(f'{n + 1} {context_1}')"), cell("FINAL(n)")]
    with FakeServer(replies) as server:
        async with editor(server, tmp_path) as client:
            listed = (await client.agent.list_sessions(cwd=str(project))).sessions
            assert [(each.session_id, each.title) for each in listed] == [(session, "What is it?")]
            assert (await client.agent.list_sessions(cwd="/")).sessions == []
            with pytest.raises(RequestError, match="belongs to the folder"):
                await client.agent.load_session(
                    cwd=str(tmp_path), session_id=session, mcp_servers=[]
                )
            await client.agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
            assert client.kinds == ["user_message_chunk", "agent_message_chunk"]
            assert [each.content.text for each in client.updates] == ["What is it?", "first"]
            client.updates.clear()
            await client.ask(session, "And now?")
            assert client.said == "42 {'a.txt': 'changed\\n'}"
            with pytest.raises(RequestError, match="already open"):
                await client.agent.resume_session(
                    cwd=str(project), session_id=session, mcp_servers=[]
                )
            await client.agent.close_session(session_id=session)
            with pytest.raises(RequestError, match="no open session"):
                await client.ask(session, "Still?")
            client.updates.clear()
            await client.agent.resume_session(cwd=str(project), session_id=session, mcp_servers=[])
            assert client.updates == []
            await client.ask(session, "n?")
    assert client.said == "41"
    folder = tmp_path / "state" / "acp"
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".rlm"]
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_saved_sessions_that_are_damaged_or_of_other_users_are_not_loaded(
    tmp_path: Path, project: Path
) -> None:
    folder = tmp_path / "state" / "acp"
    folder.mkdir(parents=True)
    name = "0" * 32
    (folder / f"{name}.rlm").write_bytes(b"PK damaged")
    for text in ("{", "[]", '{"session_id": "../../x"}'):
        (folder / f"{name}.json").write_text(text)
        with FakeServer(["unused"]) as server:
            async with editor(server, tmp_path) as client:
                assert (await client.agent.list_sessions()).sessions == []
                for wrong in (name, "../../../etc/passwd", "x" * 5_000, "1" * 32):
                    with pytest.raises(RequestError, match="unknown session"):
                        await client.agent.load_session(
                            cwd=str(project), session_id=wrong, mcp_servers=[]
                        )
    sound = f'{{"session_id": "{name}", "cwd": "{project}", "updated": 1}}'
    (folder / f"{name}.json").write_text(sound)
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path) as client:
            with pytest.raises(RequestError, match="saved chat"):
                await client.agent.load_session(cwd=str(project), session_id=name, mcp_servers=[])
            assert await client.new(project)


async def test_nothing_is_saved_with_no_save(tmp_path: Path, project: Path) -> None:
    with FakeServer([cell("FINAL(1)")]) as server:
        async with editor(server, tmp_path, "--no-save") as client:
            await client.ask(await client.new(project), "One?")
    assert not (tmp_path / "state" / "acp").exists()


async def test_another_model_continues_with_the_variables(tmp_path: Path, project: Path) -> None:
    with FakeServer([cell("n = 41\nFINAL(1)"), cell("FINAL(n)")]) as server:
        async with editor(server, tmp_path, "-m", "openai/gpt-5") as client:
            made = await client.agent.new_session(cwd=str(project), mcp_servers=[])
            assert made.config_options is not None
            [choice] = made.config_options
            assert choice.type == "select"
            assert [each.value for each in choice.options] == [
                "openai/gpt-5-mini",
                "openai/gpt-5",
            ]
            await client.ask(made.session_id, "One?")
            changed = await client.agent.set_config_option(
                config_id="model", session_id=made.session_id, value="openai/gpt-5"
            )
            assert changed.config_options[0].current_value == "openai/gpt-5"
            await client.ask(made.session_id, "Two?")
            for config_id, value in (("model", "openai/o1"), ("mode", "openai/gpt-5")):
                with pytest.raises(RequestError, match="no such option"):
                    await client.agent.set_config_option(
                        config_id=config_id, session_id=made.session_id, value=value
                    )
    assert client.said == "141"
    models = [each.asked.model for each in server.requests if each.asked is not None]
    assert models == ["gpt-5-mini", "gpt-5"]


async def test_user_settings_apply_as_limits(tmp_path: Path, project: Path) -> None:
    (tmp_path / "config" / "rlm").mkdir(parents=True)
    (tmp_path / "config" / "rlm" / "config.toml").write_text("[limits]\nmax_steps = 1\n")
    with FakeServer([cell("print(1)"), "perhaps"]) as server:
        async with editor(server, tmp_path) as client:
            ended = await client.ask(await client.new(project), "One?")
    assert ended.stop_reason == "max_turn_requests"
    assert "One?" in shown(server, 0)
