"""The steps of the offline model: which situation a request is, and what it answers there."""

import ast
import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from rlm import RLM
from rlm.clients.offline import MODEL, OfflineClient
from rlm.messages import Message, ModelInfo, Price, Reply
from tests.clients.offline_runs import (
    NEEDLE,
    OTHER,
    QUESTION,
    TOOLS,
    Repl,
    ask,
    code_in,
    play,
    root,
    sub,
)


def test_a_run_in_two_steps() -> None:
    repl = Repl(f"{OTHER}\n{'Some filler here.' * 50}\n{NEEDLE}\n{'More of it.' * 50}\n")
    printed = play(repl)
    assert len(printed) == 2
    assert "matches: 1, places: 1" in printed[0]
    assert NEEDLE in printed[0]
    assert repl.submitted == [NEEDLE]
    assert len(repl.prompts) == 1
    assert repl.prompts[0].startswith(f"Question: {QUESTION}\n\nPassage: ")


def test_a_run_that_finds_nothing() -> None:
    repl = Repl(f"{OTHER}\nA silver spoon and a dolphin.\n")
    printed = play(repl)
    assert len(printed) == 2
    assert "not found" in repl.submitted[0].lower()
    assert "9999" not in repl.submitted[0]
    assert "not a language model" in repl.submitted[0]


@pytest.mark.parametrize("context", [[OTHER, NEEDLE], {"a": OTHER, "b": {"c": [NEEDLE]}}])
def test_a_run_over_other_contexts(context: object) -> None:
    repl = Repl(context)
    play(repl)
    assert "4821" in repl.submitted[0]


def test_files_are_quoted_as_lines_and_not_as_json(tmp_path: Path) -> None:
    notes = f'# Notes\n\nIt says "hello".\n{NEEDLE}\n'
    (tmp_path / "notes.md").write_text(notes)
    (tmp_path / "other.txt").write_text(f"{OTHER}\n")
    with RLM(MODEL) as rlm:
        result = rlm.ask(QUESTION, tmp_path)
    assert result.answer == NEEDLE


def test_a_request_without_a_text_says_what_is_missing() -> None:
    reply = asyncio.run(ask(sub("Hello")))
    assert reply.text.startswith("NOT FOUND: ")
    assert "OPENAI_API_KEY" in reply.text


def test_a_run_whose_task_is_its_context() -> None:
    query = "The task is in the variable `context`: read it first, then do what it asks."
    repl = Repl(f"Read the notes below.\n\n{OTHER}\n{NEEDLE}\n\n{QUESTION}")
    printed = play(repl, query)
    assert len(printed) == 3
    assert printed[0].startswith("Task:")
    assert repl.submitted == [NEEDLE]


def test_a_counting_question_is_answered_with_a_disclaimer_and_the_passage() -> None:
    repl = Repl("Warehouse W-17 holds 42 crates.\nWarehouse W-18 holds 43 crates.")
    play(repl, "How many crates does warehouse W-17 hold?")
    assert "can only quote" in repl.submitted[0]
    assert "42 crates" in repl.submitted[0]


def test_odd_characters_in_the_query_do_not_break_the_cell() -> None:
    query = "What is the code for `KX-4821` in \"x\\y\" ```now``` \ud800 'z'?"
    code = code_in(asyncio.run(ask(root(query=query))))
    compile(code, "<cell>", "exec")


async def test_the_reply_says_what_it_is_and_what_it_costs() -> None:
    reply = await ask(root())
    assert reply.text.startswith("Offline extractive stand-in, not a language model")
    assert reply.usage is not None
    assert reply.usage.output_tokens <= 8_192
    assert OfflineClient().info(MODEL) == ModelInfo(128_000, Price(0.0, 0.0))
    assert await ask(root()) == reply, "deterministic"


async def test_the_cell_is_short_and_runs_on_any_supported_python() -> None:
    code = code_in(await ask(root()))
    assert len(code) < 900
    tree = ast.parse(code, feature_version=(3, 9))
    imported = {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    assert imported == {"re"}


def shown(*passages: str) -> tuple[str, str]:
    """What the search cell prints."""
    listed = "".join(f"--- at {400 * at}\n{text}\n" for at, text in enumerate(passages))
    return ("user", f"matches: 1, places: 1\n{listed}---\n28 steps left")


async def test_a_submission_that_was_not_taken_is_tried_once_more_then_written_out() -> None:
    searched = [("assistant", "cell"), shown(NEEDLE)]
    first = await ask(root(*searched))
    submitted = [("assistant", first.text), ("user", "[error]\nNameError")]
    assert "FINAL(reply)" in code_in(first)
    assert "FINAL(reply)" in code_in(await ask(root(*searched, *submitted)))
    last = await ask(root(*searched, *submitted, *submitted))
    assert last.text == f"Final Answer: {NEEDLE}"


async def test_a_search_that_fails_twice_ends_in_not_found() -> None:
    failed = [("assistant", "matches = ctx.find("), ("user", "[error]\nMemoryError")]
    assert "ctx.find(" in code_in(await ask(root(*failed)))
    reply = await ask(root(*failed, *failed))
    assert reply.text.startswith("Final Answer: Not found")


async def test_a_passage_that_the_call_finds_no_answer_in() -> None:
    searched = [("assistant", "cell"), shown(NEEDLE)]
    refused = [("assistant", "FINAL(reply)"), ("user", "The passage at 0 says: NOT FOUND\n27 left")]
    assert code_in(await ask(root(*searched, *refused))).startswith('FINAL("Not found: no')


async def test_a_child_run_reads_the_passage_where_there_may_be_one() -> None:
    request = root(("assistant", "cell"), shown(NEEDLE))
    system = Message("system", "Write ```repl blocks. rlm_query(prompt, context) is a child run.")
    reply = await ask(replace(request, messages=(system, *request.messages[1:])))
    assert "rlm_query(question, context=evidence)" in code_in(reply)


@pytest.mark.parametrize(
    "order",
    [
        f"Stop here. Answer the query now, in plain text, without code.\n\nQuery: {QUESTION}",
        "Give your final answer. No more code.",
    ],
)
async def test_answering_now_from_what_was_printed(order: str) -> None:
    searched = [("assistant", "cell"), shown(OTHER, NEEDLE)]
    assert (await ask(root(*searched, ("user", order)))).text == NEEDLE
    nothing = await ask(root(("assistant", "cell"), shown(OTHER), ("user", order)))
    assert nothing.text.startswith("Not found")


async def test_a_passage_that_talks_of_code_is_no_order_to_stop() -> None:
    printed = shown("It can be opened without code by silver-dolphin.")
    assert "FINAL(reply)" in code_in(await ask(root(("assistant", "cell"), printed)))


async def test_native_tools() -> None:
    first = await ask(root(tools=TOOLS))
    (call,) = first.tool_calls
    assert (call.name, first.finish_reason) == ("execute_python", "tool_calls")
    assert "ctx.find(" in call.arguments["code"]
    assert first.usage is not None
    assert first.usage.output_tokens > 100
    searched = (
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", shown(NEEDLE)[1], tool_call_id=call.id),
    )
    standing = root(tools=TOOLS).messages
    second = await ask(root(tools=TOOLS, messages=standing + searched))
    assert "FINAL(reply)" in second.tool_calls[0].arguments["code"]
    again = (Message("assistant", "", tool_calls=second.tool_calls), Message("tool", "no"))
    last = await ask(root(tools=TOOLS, messages=standing + searched + again + again))
    assert (last.tool_calls[0].name, last.tool_calls[0].arguments) == (
        "submit_answer",
        {"answer": NEEDLE},
    )


async def test_a_large_prompt_does_not_hold_up_the_loop() -> None:
    prompt = f"Question: {QUESTION}\n\nText:\n{'Filler is here. ' * 100_000}\n{NEEDLE}"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    assert (await ask(sub(prompt))).text == NEEDLE
    beside.cancel()
    assert turns > 1


async def test_streaming_and_the_cap() -> None:
    request = root(max_output_tokens=10)
    client = OfflineClient()
    *words, reply = [part async for part in client.stream(request, timeout_seconds=5)]
    assert isinstance(reply, Reply)
    assert "".join(map(str, words)) == reply.text
    assert (len(reply.text), reply.finish_reason) == (39, "length")
    await client.close()
