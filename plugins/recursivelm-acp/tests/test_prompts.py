"""Prompts of an editor: what is streamed, in which order, and what the model is shown."""

import asyncio
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import RequestError
from editor import Editor, cell, editor, shown

from rlm.testing.fake_server import FakeServer

TEXT = "The tide gate opens at 06:15.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "gate.txt").write_text(TEXT)
    (folder / "secret.env").write_text("KEY=1\n")
    (folder / "plan.txt").write_text("none\n")
    (folder / ".gitignore").write_text("secret.env\n")
    return folder


async def test_a_prompt_streams_thoughts_cells_calls_and_the_answer(
    tmp_path: Path, project: Path
) -> None:
    replies = [
        "I look for the gate.\n" + cell("print(sorted(context))\nprint(llm_query('Say hi'))"),
        "hi",
        "FINAL(The gate opens at 06:15, as the file in docs says.)",
    ]
    with FakeServer(replies) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            ended = await client.ask(session, "When does the gate open?")
    assert ended.stop_reason == "end_turn"
    assert ended.usage.total_tokens > 0
    assert server.count == 3
    order = [kind for kind in client.kinds if kind != "agent_message_chunk"]
    assert order == [
        "agent_thought_chunk",
        "tool_call",  # the cell
        "tool_call",  # its call
        "tool_call_update",  # the call is over
        "tool_call_update",  # what the cell printed
        "tool_call_update",  # the cell is over
        "usage_update",
        "session_info_update",
    ]
    assert client.kinds.index("agent_message_chunk") > client.kinds.index("tool_call_update")
    assert client.updates[0].content.text == "I look for the gate."
    assert client.said == "The gate opens at 06:15, as the file in docs says."
    run, ask = "Run code: print(sorted(context))", "Ask a model: Say hi"
    assert client.tool_calls == [
        (run, "in_progress"),
        (ask, "in_progress"),
        (ask, "completed"),
        (run, None),
        (run, "completed"),
    ]
    last = [u for u in client.updates if u.session_update == "tool_call_update"][-1]
    texts = [part.content.text for part in last.content]
    assert texts[0].startswith("```python\nprint(sorted(context))")
    assert "['.gitignore', 'docs/gate.txt', 'plan.txt']\nhi" in texts[1]


def test_a_second_prompt_can_use_variables_and_history(tmp_path: Path, project: Path) -> None:
    async def converse() -> Editor:
        replies = [
            cell("n = 41\nFINAL('first')"),
            cell("FINAL(f'{n + 1} {history[0][\"answer\"]}')"),
        ]
        with FakeServer(replies) as server:
            async with editor(server, tmp_path) as client:
                session = await client.new(project)
                await client.ask(session, "One?")
                await client.ask(session, "Two?")
        return client

    assert asyncio.run(converse()).said == "first42 first"


async def test_files_that_changed_are_read_again(tmp_path: Path, project: Path) -> None:
    replies = [
        cell("FINAL(len(context))"),
        cell("FINAL(repr(context_1))"),
        cell("FINAL('context_2' in globals())"),
    ]
    with FakeServer(replies) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            await client.ask(session, "One?")
            (project / "docs" / "gate.txt").write_text("closed\n")
            (project / "new[1].txt").write_text("new\n")
            (project / "data.bin").write_bytes(bytes(range(256)))
            (project / "plan.txt").unlink()
            await client.ask(session, "Two?")
            asked = shown(server, 1)
            await client.ask(session, "Three?")
    changed = {"docs/gate.txt": "closed\n", "new[1].txt": "new\n"}
    assert client.said == f"3{changed!r}False", "nothing changed before the third prompt"
    assert "(Deleted in the meantime: 'plan.txt'.)" in asked
    assert "`context_1` contains their current versions" in asked


async def test_links_and_embedded_files_are_contexts(tmp_path: Path, project: Path) -> None:
    code = "FINAL(repr((context_1, context_2, context_3)))"
    blocks = [
        "Compare ",
        acp.resource_link_block("gate", (project / "docs" / "gate.txt").as_uri()),
        acp.resource_link_block("secret", (project / "secret.env").as_uri()),
        acp.resource_link_block("page", "https://example.com/page"),
        acp.resource_block(acp.embedded_text_resource("zed:///buffer", "unsaved text")),
        acp.resource_block(acp.embedded_blob_resource("zed:///blob", "/wAB")),
    ]
    with FakeServer([cell(code)]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project), *blocks)
    assert client.said == repr(("KEY=1\n", {"zed:///buffer": "unsaved text"}, b"\xff\x00\x01"))
    asked = shown(server, 0)
    assert "Compare  `docs/gate.txt`  `secret.env`  [page](https://example.com/page)" in asked
    assert "(`context_1` contains 'secret.env'.)" in asked
    assert "unsaved text" not in asked


async def test_a_long_message_becomes_a_context(tmp_path: Path, project: Path) -> None:
    long = "Count them. " + "word " * 5_000
    code = "FINAL(context_1['the whole message'].count('word'))"
    with FakeServer([cell(code)]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project), long)
    assert client.said == "5000"
    assert shown(server, 0).count("word ") < 2_000


async def test_a_folder_without_files_is_not_a_context(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with FakeServer([cell("FINAL(repr(context))"), cell("FINAL(repr(context_1))")]) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(empty)
            await client.ask(session, "One?")
            (empty / "a.txt").write_text("now")
            await client.ask(session, "Two?")
    assert client.said == "''{'a.txt': 'now'}"


async def test_a_prompt_is_cancelled_in_a_cell_and_in_a_request(
    tmp_path: Path, project: Path
) -> None:
    endless = cell("import time\nkept = 7\nwhile True: time.sleep(0.01)")
    replies: list[Any] = [endless, {"behaviour": "never"}, cell("FINAL(type(context).__name__)")]
    with FakeServer(replies) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            running = asyncio.Event()
            client.on_update = lambda update: running.set()
            turn = asyncio.create_task(client.ask(session, "One?"))
            await running.wait()
            await client.agent.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            assert client.tool_calls[-1] == ("Run code: import time", "failed")
            turn = asyncio.create_task(client.ask(session, "Two?"))
            while server.count < 2:
                await asyncio.sleep(0.01)
            await client.agent.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            await client.agent.cancel(session_id=session)  # nothing runs
            assert (await client.ask(session, "Three?")).stop_reason == "end_turn"
    assert client.said == "dict"


@pytest.mark.parametrize(
    ("option", "value", "reason", "requests"),
    [
        ("--max-steps", "1", "max_turn_requests", 2),
        ("--max-tokens", "20000", "max_tokens", 1),
        ("--budget-usd", "0.03", "max_tokens", 1),
    ],
)
async def test_reaching_a_limit_is_a_stop_reason_with_an_explanation(
    tmp_path: Path, project: Path, option: str, value: str, reason: str, requests: int
) -> None:
    look = {"reply": cell("print(1)"), "usage": {"input_tokens": 30_000, "output_tokens": 10_000}}
    with FakeServer([look, "It is perhaps six.", look]) as server:
        async with editor(server, tmp_path, option, value) as client:
            ended = await client.ask(await client.new(project), "When?")
    assert (ended.stop_reason, server.count) == (reason, requests)
    assert client.said, "the user is told"


async def test_a_session_whose_budget_is_used_up_says_so(tmp_path: Path, project: Path) -> None:
    reply = {"reply": cell("FINAL(1)"), "usage": {"input_tokens": 30_000, "output_tokens": 10_000}}
    with FakeServer([reply]) as server:
        async with editor(server, tmp_path, "--max-tokens", "30000") as client:
            session = await client.new(project)
            await client.ask(session, "One?")
            ended = await client.ask(session, "Two?")
    assert (ended.stop_reason, server.count) == ("max_tokens", 1)
    assert "30,000 tokens" in client.said


async def test_a_failing_model_is_an_error(tmp_path: Path, project: Path) -> None:
    with FakeServer([{"status": 401, "error": "no such key"}] * 9) as server:
        async with editor(server, tmp_path) as client:
            session = await client.new(project)
            with pytest.raises(RequestError, match="no such key") as caught:
                await client.ask(session, "When?")
    assert caught.value.code == -32603


async def test_a_refusal_is_a_stop_reason(tmp_path: Path, project: Path) -> None:
    with FakeServer([{"refusal": "I can't help with that."}] * 40) as server:
        async with editor(server, tmp_path, "--max-steps", "1") as client:
            ended = await client.ask(await client.new(project), "When?")
    assert ended.stop_reason == "refusal"


async def test_reasoning_of_a_model_is_sent_as_thoughts(tmp_path: Path, project: Path) -> None:
    reply = {"reasoning": "Let me see.", "reply": cell("FINAL(1)")}
    with FakeServer([reply]) as server:
        async with editor(server, tmp_path, model="deepseek/deepseek-reasoner") as client:
            await client.ask(await client.new(project), "When?")
    assert client.updates[0].session_update == "agent_thought_chunk"
    assert client.updates[0].content.text == "Let me see."


async def test_many_calls_are_counted_and_not_shown_individually(
    tmp_path: Path, project: Path
) -> None:
    code = "FINAL(len(llm_query_batched([f'number:{i}' for i in range(60)])))"
    with FakeServer(rules=[("How many?", cell(code)), ("number:", "ok")]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project), "How many?")
    assert client.said == "60"
    started = [u for u in client.updates if u.session_update == "tool_call"]
    assert len(started) == 1 + 50
    last = [u for u in client.updates if u.session_update == "tool_call_update"][-1]
    assert last.content[-1].content.text == "10 more model calls"


async def test_an_unknown_provider_refuses_a_session(tmp_path: Path, project: Path) -> None:
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path, model="") as client:
            made = await client.new(project)  # OPENAI_API_KEY is set, so there is a model
            assert made
        async with editor(server, tmp_path, model="nobody/x") as client:
            with pytest.raises(RequestError, match="nobody"):
                await client.new(project)


async def test_editing_a_file_does_not_break_a_session(tmp_path: Path, project: Path) -> None:
    """A chat reads its contexts again to save them, and for another model or worker."""
    replies = [
        cell("n = 1\nFINAL('one')"),
        cell("FINAL('two')"),
        cell("import os\nos.kill(os.getpid(), 9)"),
        cell("FINAL(context['docs/gate.txt'] + context_1['docs/gate.txt'])"),
        cell("FINAL('four')"),
    ]
    with FakeServer(replies) as server:
        async with editor(server, tmp_path, "-m", "openai/gpt-5") as client:
            session = await client.new(project)
            await client.ask(session, "One?")
            (project / "docs" / "gate.txt").write_text("closed\n")
            await client.ask(session, "Two?")
            (project / "plan.txt").write_text("edited\n")
            await client.ask(session, "Three?")
            await client.agent.set_config_option(
                config_id="model", session_id=session, value="openai/gpt-5"
            )
            await client.ask(session, "Four?")
            await client.agent.close_session(session_id=session)
            said, client.updates = client.said, []
            await client.agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
            replayed = [each.content.text for each in client.updates]
    assert said.startswith("onetwo"), said
    assert "closed\n" in said
    assert said.endswith("four")
    assert replayed[::2] == ["One?", "Two?", "Three?", "Four?"]


async def test_backticks_in_output_neither_end_its_block_nor_slow_it_down(
    tmp_path: Path, project: Path
) -> None:
    with FakeServer([cell("print('`' * 2_000_000)\nFINAL('ok')")]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project), "Print!")
    assert client.said == "ok"
    assert max(len(str(update)) for update in client.updates) < 200_000


async def test_a_limit_reached_before_any_answer_is_reported(tmp_path: Path, project: Path) -> None:
    with FakeServer(["unused"]) as server:
        async with editor(server, tmp_path, "--max-tokens", "100") as client:
            ended = await client.ask(await client.new(project), "When?")
    assert (ended.stop_reason, server.count) == ("max_tokens", 0)
    assert client.said.startswith("No answer: ")


async def test_several_selections_of_one_file_are_kept(tmp_path: Path, project: Path) -> None:
    gate = (project / "docs" / "gate.txt").as_uri()
    blocks = [
        "Compare ",
        acp.resource_block(acp.embedded_text_resource("file:///x.py", "FIRST")),
        acp.resource_block(acp.embedded_text_resource("file:///x.py", "SECOND")),
        acp.resource_link_block("gate", f"{gate}#L10:20"),
        acp.resource_link_block("docs", (project / "docs").as_uri()),
    ]
    with FakeServer([cell("FINAL(repr(context_1))")]) as server:
        async with editor(server, tmp_path) as client:
            await client.ask(await client.new(project), *blocks)
    assert client.said == repr({"file:///x.py": "FIRST", "file:///x.py (2)": "SECOND"})
    assert "`docs/gate.txt` (L10:20)" in shown(server, 0)
    assert "[docs](file://" in shown(server, 0)
