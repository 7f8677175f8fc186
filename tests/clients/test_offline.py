"""The offline model's turns: which situation a request is, and what it answers there."""

import ast
import asyncio
import contextlib
import io
import sys
from typing import Any

import pytest

from rlm.clients import offline_cells
from rlm.clients.offline import MODEL, OfflineClient
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolSpec

SYSTEM = "You answer a query. Write code in a ```repl block. Names: llm_query, FINAL."
QUESTION = "What is the access code for silver-dolphin?"
NEEDLE = "The access code for silver-dolphin is 4821."
OTHER = "The access code for amber-falcon is 9999."
TOOLS = (ToolSpec("execute_python", "", {}), ToolSpec("submit_answer", "", {}))


def root(*turns: tuple[Any, str], query: str = QUESTION, **facts: Any) -> Request:
    """A step of a run: the standing messages, then (role, text) turns."""
    first = f"Query: {query}\n\nContext: str, 10,485,760 characters\n\nYou have 30 steps. Begin."
    messages = [Message("system", SYSTEM), Message("user", first)]
    messages += [Message(role, text) for role, text in turns]
    given: dict[str, Any] = {
        "model": MODEL,
        "messages": tuple(messages),
        "max_output_tokens": 8_192,
    }
    return Request(**{**given, **facts})


def sub(prompt: str, system: str = "You are a sub-LLM. Answer from the text.") -> Request:
    messages = (Message("system", system), Message("user", prompt))
    return Request(model=MODEL, messages=messages, max_output_tokens=4_096)


async def ask(request: Request) -> Reply:
    return await OfflineClient().complete(request, timeout_seconds=5)


def code_in(reply: Reply) -> str:
    """The one cell of a reply."""
    assert reply.text.count("```") == 2, "one cell, and no fence inside it"
    return reply.text.split("```repl\n")[1].split("\n```")[0]


class Repl:
    """Just enough of a REPL to run what the model writes; calls go to the model itself."""

    def __init__(self, context: object) -> None:
        self.prompts: list[str] = []
        self.submitted: list[str] = []
        self.names: dict[str, Any] = {
            "context": context,
            "llm_query": self.llm_query,
            "FINAL": self.submitted.append,
            "__name__": "__main__",
        }

    def llm_query(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return asyncio.run(ask(sub(prompt))).text

    def run(self, code: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "<cell>", "exec"), self.names)
        return out.getvalue()


def play(repl: Repl, query: str = QUESTION, most_steps: int = 6) -> list[str]:
    """A whole run without an engine; returns what was printed at each step."""
    turns: list[tuple[str, str]] = []
    printed: list[str] = []
    while not repl.submitted and len(printed) < most_steps:
        reply = asyncio.run(ask(root(*turns, query=query)))
        printed.append(repl.run(code_in(reply)))
        shown = f"{printed[-1]}stdout 1.2K chars | 0.1 s | 28 steps left"
        turns += [("assistant", reply.text), ("user", shown)]
    return printed


def test_a_run_in_two_steps() -> None:
    repl = Repl(f"{OTHER}\n{'Some filler here.' * 50}\n{NEEDLE}\n{'More of it.' * 50}\n")
    printed = play(repl)
    assert len(printed) == 2
    assert "offline-search: 1 passages, 1 that qualify" in printed[0]
    assert f"> {NEEDLE}" in printed[0]
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


def test_a_run_whose_task_is_its_context() -> None:
    query = "The task is in the variable `context`: read it first, then do what it asks."
    repl = Repl(f"Read the notes below.\n\n{OTHER}\n{NEEDLE}\n\n{QUESTION}")
    printed = play(repl, query)
    assert len(printed) == 3
    assert printed[0].startswith("offline-task:")
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


def test_the_cell_needs_only_the_standard_library_of_any_supported_python() -> None:
    tree = ast.parse(offline_cells.search_cell(QUESTION), feature_version=(3, 9))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names
    unions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign | ast.arg)
        and node.annotation is not None
        and any(isinstance(part, ast.BitOr) for part in ast.walk(node.annotation))
    ]
    assert unions == [], "`X | Y` in an annotation fails before Python 3.10"


async def test_a_submission_that_was_not_taken_is_tried_once_more_then_written_out() -> None:
    searched = [("assistant", "cell"), ("user", f"offline-search: 1\n> {NEEDLE}\n28 steps left")]
    submitted = [("assistant", offline_cells.submit_cell()), ("user", "[error]\nNameError")]
    assert "conclude(" in code_in(await ask(root(*searched)))
    assert "conclude(" in code_in(await ask(root(*searched, *submitted)))
    last = await ask(root(*searched, *submitted, *submitted))
    assert last.text == f"Final Answer: {NEEDLE}"


async def test_a_search_that_fails_twice_ends_in_not_found() -> None:
    failed = [("assistant", "offline_hits = report(offline_plan"), ("user", "[error]\nMemoryError")]
    assert "report(" in code_in(await ask(root(*failed)))
    reply = await ask(root(*failed, *failed))
    assert reply.text.startswith("Final Answer: Not found")


@pytest.mark.parametrize(
    "order",
    [
        f"Stop here. Answer the query now, in plain text, without code.\n\nQuery: {QUESTION}",
        "Give your final answer. No more code.",
    ],
)
async def test_answering_now_from_what_was_printed(order: str) -> None:
    searched = [("assistant", "cell"), ("user", f"offline-search: 2\n> {OTHER}\n> {NEEDLE}\n")]
    assert (await ask(root(*searched, ("user", order)))).text == NEEDLE
    nothing = await ask(root(("assistant", "cell"), ("user", f"> {OTHER}"), ("user", order)))
    assert nothing.text.startswith("Not found")


async def test_a_passage_that_talks_of_code_is_no_order_to_stop() -> None:
    shown = "offline-search: 1\n> It can be opened without code by silver-dolphin.\n28 steps left"
    assert "conclude(" in code_in(await ask(root(("assistant", "cell"), ("user", shown))))


async def test_native_tools() -> None:
    first = await ask(root(tools=TOOLS))
    (call,) = first.tool_calls
    assert (call.name, first.finish_reason) == ("execute_python", "tool_calls")
    assert "report(offline_plan, context)" in call.arguments["code"]
    assert first.usage is not None
    assert first.usage.output_tokens > 1_000
    searched = (
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", f"offline-search: 1\n> {NEEDLE}", tool_call_id=call.id),
    )
    standing = root(tools=TOOLS).messages
    second = await ask(root(tools=TOOLS, messages=standing + searched))
    assert second.tool_calls[0].arguments == {"code": offline_cells.submit_cell()}
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
