"""The steps of the offline model: which situation a request is, and what it answers there."""

import ast
import asyncio
from pathlib import Path

import pytest

from rlm import RLM
from rlm.clients.offline import MODEL, NO_PASSAGES, PASSAGES, OfflineClient, search_query
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


def test_a_run_takes_two_steps() -> None:
    text = f"{OTHER}\n{'Some filler here. ' * 50}\n{NEEDLE}\n{'More of it. ' * 50}\n"
    repl = Repl(text)
    printed = play(repl)
    assert len(printed) == 2
    assert printed[0] == f"passages found: 1\n1. line 3\n   {NEEDLE}\n"
    assert repl.submitted == [f"{PASSAGES}\n\n1. line 3\n   {NEEDLE}"]
    start = text.index(NEEDLE)
    assert repl.cited == [(start, start + len(NEEDLE), None)]
    assert repl.prompts == [], "no call pretends to understand the passage"


def test_a_run_without_matches_says_so_and_invents_nothing() -> None:
    repl = Repl(f"{OTHER}\nA silver spoon and a dolphin.\n")
    printed = play(repl)
    assert len(printed) == 2
    assert repl.submitted == [NO_PASSAGES]
    assert repl.cited == []


@pytest.mark.parametrize(
    ("context", "place"),
    [
        ([OTHER, NEEDLE], "[1]:1"),
        ({"a": OTHER, "b": {"c": [NEEDLE]}}, "b:1"),
        ({"a.md": f"# Codes\n\n{OTHER}\n\n{NEEDLE}\n", "b.md": "x"}, "a.md:5"),
    ],
)
def test_lists_and_dicts_can_be_searched(context: object, place: str) -> None:
    repl = Repl(context)
    play(repl)
    assert f"1. {place}\n" in repl.submitted[0]
    assert "4821" in repl.submitted[0]


def test_files_are_quoted_with_their_names_and_lines(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(f'# Notes\n\nIt says "hello".\n\n{NEEDLE}\n')
    (tmp_path / "other.txt").write_text(f"{OTHER}\n")
    with RLM(MODEL) as rlm:
        result = rlm.ask(QUESTION, tmp_path)
    assert result.answer == f"{PASSAGES}\n\n1. notes.md:5\n   {NEEDLE}"
    assert [each.label for each in result.citations] == ["notes.md:5"]
    assert (result.stop_reason, result.unsupported_quotes) == ("passages", 0)


def test_a_request_without_a_text_says_what_is_missing() -> None:
    reply = asyncio.run(ask(sub("Hello")))
    assert reply.text.startswith("No language model is configured. ")
    assert "OPENAI_API_KEY" in reply.text


def test_the_task_may_be_in_the_context() -> None:
    query = "The task is in the variable `context`: read it first, then do what it asks."
    repl = Repl(f"Read the notes below.\n\n{OTHER}\n\n{NEEDLE}\n\n{QUESTION}")
    printed = play(repl, query)
    assert len(printed) == 3
    assert printed[0].startswith("Task:")
    assert "4821" in repl.submitted[0]


@pytest.mark.parametrize("query", ["???", "—", '""'])
async def test_a_query_without_words(query: str) -> None:
    reply = await ask(root(query=query))
    assert reply.text == f"Final Answer: {NO_PASSAGES}"


def test_odd_characters_in_the_query_do_not_break_the_cell() -> None:
    query = "What is the code for `KX-4821` in \"x\\y\" ```now``` \ud800 'z'?"
    code = code_in(asyncio.run(ask(root(query=query))))
    compile(code, "<cell>", "exec")


async def test_the_reply_says_that_it_is_a_search_and_free() -> None:
    reply = await ask(root())
    assert reply.text.startswith("Search without a language model: ")
    assert reply.usage is not None
    assert reply.usage.output_tokens <= 8_192
    info = OfflineClient().info(MODEL)
    assert info == ModelInfo(128_000, Price(0.0, 0.0), is_language_model=False)
    assert await ask(root()) == reply, "deterministic"


async def test_the_cells_are_short_and_run_on_any_supported_python() -> None:
    for request in (root(), root(("assistant", "cell"), shown(NEEDLE))):
        code = code_in(await ask(request))
        assert len(code) < 400
        assert code.count("\n") < 5
        ast.parse(code, feature_version=(3, 9))


def shown(*passages: str) -> tuple[str, str]:
    """What the search cell prints."""
    listed = "\n\n".join(f"{n}. line {n}\n   {text}" for n, text in enumerate(passages, 1))
    found = f"passages found: {len(passages)}\n{listed}\n"
    return ("user", f"{found}stdout 1.2K chars | 0.1 s | 28 steps left")


IN_WORDS = f"{PASSAGES}\n\n1. line 1\n   {NEEDLE}"


async def test_a_rejected_submission_is_retried_once_then_written_out() -> None:
    searched = [("assistant", "cell"), shown(NEEDLE)]
    first = await ask(root(*searched))
    submitted = [("assistant", first.text), ("user", "[error]\nNameError")]
    assert "str(passages)" in code_in(first)
    assert "str(passages)" in code_in(await ask(root(*searched, *submitted)))
    last = await ask(root(*searched, *submitted, *submitted))
    assert last.text.startswith(f"Final Answer: {IN_WORDS}")


async def test_a_search_that_fails_twice_ends_without_passages() -> None:
    failed = [("assistant", "passages = ctx.search("), ("user", "[error]\nMemoryError")]
    assert "ctx.search(" in code_in(await ask(root(*failed)))
    reply = await ask(root(*failed, *failed))
    assert reply.text == f"Final Answer: {NO_PASSAGES}"


@pytest.mark.parametrize(
    "order",
    [
        f"Stop here. Answer the query now, in plain text, without code.\n\nQuery: {QUESTION}",
        "Give your final answer. No more code.",
    ],
)
async def test_a_request_to_answer_now_uses_the_printed_passages(order: str) -> None:
    searched = [("assistant", "cell"), shown(NEEDLE)]
    assert (await ask(root(*searched, ("user", order)))).text == IN_WORDS
    nothing = await ask(root(("assistant", "cell"), shown(), ("user", order)))
    assert nothing.text == NO_PASSAGES
    assert (await ask(root(("user", order)))).text == NO_PASSAGES


async def test_a_passage_that_mentions_code_is_not_a_request_to_stop() -> None:
    printed = shown("It can be opened without code by silver-dolphin.")
    assert "FINAL(" in code_in(await ask(root(("assistant", "cell"), printed)))


@pytest.mark.parametrize(
    ("question", "query"),
    [
        (QUESTION, 'What is the access code for "silver-dolphin"?'),
        ("Can it read PDF files?", "Can it read PDF files?"),
        ('Who said "hello there" first?', 'Who said "hello there" first?'),
        ("Who leads Project Blue Heron?", 'Who leads Project "Blue Heron"?'),
        ("?!", ""),
    ],
)
def test_names_in_a_question_are_required_words(question: str, query: str) -> None:
    assert search_query(question) == query


async def test_native_tools() -> None:
    first = await ask(root(tools=TOOLS))
    (call,) = first.tool_calls
    assert (call.name, first.finish_reason) == ("execute_python", "tool_calls")
    assert "ctx.search(" in call.arguments["code"]
    assert first.usage is not None
    assert first.usage.output_tokens > 30
    searched = (
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", shown(NEEDLE)[1], tool_call_id=call.id),
    )
    standing = root(tools=TOOLS).messages
    second = await ask(root(tools=TOOLS, messages=standing + searched))
    assert "FINAL(" in second.tool_calls[0].arguments["code"]
    again = (Message("assistant", "", tool_calls=second.tool_calls), Message("tool", "no"))
    last = await ask(root(tools=TOOLS, messages=standing + searched + again + again))
    assert (last.tool_calls[0].name, last.tool_calls[0].arguments) == (
        "submit_answer",
        {"answer": IN_WORDS},
    )


async def test_a_large_prompt_does_not_block_the_event_loop() -> None:
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


async def test_streaming_respects_the_cap() -> None:
    request = root(max_output_tokens=10)
    client = OfflineClient()
    *words, reply = [part async for part in client.stream(request, timeout_seconds=5)]
    assert isinstance(reply, Reply)
    assert "".join(map(str, words)) == reply.text
    assert (len(reply.text) < 45, reply.finish_reason) == (True, "length")
    await client.close()
