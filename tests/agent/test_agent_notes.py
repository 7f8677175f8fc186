"""Notes of cells: work for each is proportional to that note, and long ones are read in threads."""

import asyncio
import json
from typing import Any

import pytest

from rlm import AgentContext, AgentRLM, ScriptedClient
from rlm.agent.agent import _TurnMemory
from rlm.errors import ModelError
from rlm.events import OutputStreamed
from tests.loop_thread import LoopThread

NOTE = "é" * 500_000


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def agent_of(*cells: str, **more: Any) -> AgentRLM:
    return AgentRLM(ScriptedClient([code(each) for each in cells]), **more)


async def answer(agent: AgentRLM, message: str) -> str:
    return "".join([chunk async for chunk in agent.chat(message)])


async def test_no_note_is_encoded_or_decoded_on_the_loop_whatever_was_noted_before() -> None:
    """Each used to encode all notes twice, so a thousand of them held the loop for minutes."""
    agent = agent_of(
        f"for n in range(3): add_to_context(f'long{{n}}', 'é' * {len(NOTE)})\nFINAL(n)",
        "for n in range(100): add_to_context(f'short{n}', n)\nFINAL(n)",
        "FINAL(len(context_data))",
    )
    async with agent:
        with LoopThread() as thread:
            assert await answer(agent, "Note.") == "2"
            assert await answer(agent, "Note more.") == "99"
            assert await answer(agent, "How many?") == "103"
        assert agent.context.data == {
            **{f"long{n}": NOTE for n in range(3)},
            **{f"short{n}": n for n in range(100)},
        }
    assert thread.work == []


async def test_notes_of_a_program_are_encoded_in_a_thread_too() -> None:
    agent = agent_of("FINAL(len(context_data['a']))", "FINAL(len(context_data['a']))")
    agent.add_context("a", NOTE)
    async with agent:
        with LoopThread() as thread:
            assert await answer(agent, "How long?") == str(len(NOTE))
            agent.context.data["a"] += "!"
            assert await answer(agent, "And now?") == str(len(NOTE) + 1)
    assert thread.work == []


async def test_long_notes_are_in_the_new_session_after_their_worker_died() -> None:
    agent = agent_of(
        f"add_to_context('a', 'é' * {len(NOTE)})\nadd_to_context('b', 2)\nimport os; os._exit(1)",
        "FINAL([len(context_data['a']), context_data['b']])",
    )
    async with agent:
        with LoopThread() as thread:
            assert await answer(agent, "Note.") == f"[{len(NOTE)}, 2]"
    assert thread.work == []


async def test_a_tool_sees_a_long_note_at_once_and_the_newest_of_a_key_counts() -> None:
    agent = agent_of(
        f"add_to_context('a', 'é' * {len(NOTE)})\nfirst = size()\n"
        f"add_to_context('a', 'é' * {len(NOTE)})\nadd_to_context('a', 'x')\nFINAL([first, size()])",
    )
    agent.register_tool("size", lambda: len(agent.context.data["a"]))
    async with agent:
        assert await answer(agent, "Note.") == f"[{len(NOTE)}, 1]"


async def test_a_streamed_piece_is_not_joined_to_those_before_it_until_the_turn_ends() -> None:
    """A hundred thousand pieces after a long one would each have copied that."""

    class Piece(str):
        def __radd__(self, before: str) -> str:
            raise AssertionError("everything before this piece was copied")

    origin: dict[str, Any] = {"run_id": "r", "parent_id": None, "depth": 0, "step": 1}
    memory = _TurnMemory(AgentRLM(ScriptedClient()))
    for text, taken_back_chars in (("One, ", 0), ("tow", 0), ("not so: ", 3), ("two.", 0)):
        piece = OutputStreamed(**origin, text=Piece(text), taken_back_chars=taken_back_chars)
        memory.record(piece)
    assert memory.streamed() == "One, two."


def test_the_memory_holds_notes_in_any_form() -> None:
    memory = AgentContext()
    memory.note("short", "[1]")
    memory.note("long", json.dumps([NOTE]))
    memory.note("short", json.dumps(NOTE))
    memory.note("long", "2")
    assert memory.to_dict()["context_data"] == {"short": NOTE, "long": 2}
    memory.note("long", json.dumps(NOTE))
    memory.data = {"other": 1}
    assert memory.context_data == {"other": 1}


NOTING = f"add_to_context('report', 'é' * {len(NOTE)})"


async def test_a_dict_that_a_program_holds_has_the_long_notes_when_the_turn_ends() -> None:
    agent = agent_of(f"{NOTING}\nFINAL(1)")
    held = agent.context.data
    async with agent:
        with LoopThread() as thread:
            await answer(agent, "Note.")
    assert held == {"report": NOTE}
    assert agent.context.data is held
    assert thread.work == []


async def test_it_has_them_when_the_turn_fails() -> None:
    agent = AgentRLM(ScriptedClient([code(NOTING), ModelError("away"), ModelError("away")]))
    held = agent.context.data
    async with agent:
        with pytest.raises(ModelError):
            await answer(agent, "Note.")
    assert held == {"report": NOTE}


async def test_it_has_them_when_the_turn_is_cancelled() -> None:
    agent = agent_of(f"{NOTING}\nwait()")
    held, is_noted = agent.context.data, asyncio.Event()

    async def wait() -> None:
        is_noted.set()
        await asyncio.Event().wait()

    agent.register_tool("wait", wait)
    async with agent:
        turn = asyncio.create_task(answer(agent, "Note."))
        await is_noted.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert held == {"report": NOTE}


@pytest.mark.parametrize("before", [{}, {"report": "old"}])
async def test_what_a_program_writes_is_not_replaced_by_an_older_note(
    before: dict[str, Any],
) -> None:
    agent = agent_of(f"{NOTING}\nwrite()\nFINAL(1)", "FINAL(context_data['report'])")
    agent.context.data = before

    def write() -> None:
        before["report"] = "mine"

    agent.register_tool("write", write)
    async with agent:
        await answer(agent, "Note.")
        assert before == agent.context.data == {"report": "mine"}
        assert await answer(agent, "What is it?") == "mine"


def test_nor_is_what_it_writes_or_deletes_before_it_looks() -> None:
    memory = AgentContext()
    held = memory.data
    held["deleted"] = "old"
    for key in ("written", "added", "deleted", "noted"):
        memory.note(key, json.dumps(NOTE))
    held["written"] = 1
    memory.add("added", 2)
    del held["deleted"]
    held["noted"] = 3
    memory.note("noted", json.dumps(NOTE))
    expected = {"written": 1, "added": 2, "noted": NOTE}
    assert memory.snapshot() == expected
    assert memory.data == held == expected
