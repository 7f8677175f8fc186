"""What cells send is read, hashed and encoded in threads if it is long, so other runs go on."""

from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.clients.compatible import OpenAICompatClient
from rlm.messages import Message, Reply, Request
from rlm.testing.fake_server import FakeServer
from tests.loop_thread import LoopThread

CHARS = 3_000_000
LONG = f"'é' * {CHARS}"
TEXTS = f"['é' * 1_000] * {CHARS // 1_000}"
ROWS = f"[{{'a': 'é' * 1_000}}] * {CHARS // 1_000}"


class Model(ScriptedClient):
    """Runs one cell in the root run, submits in child runs, and answers all other calls."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell = cell

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        self.requests.append(request)
        first = str(request.messages[0].content)
        if "sub-LLM" in first:
            return Reply(text="ok")
        is_root = "the root query" in str(request.messages[1].content)
        return Reply(text=f"```repl\n{self.cell if is_root else 'FINAL(len(str(context)))'}\n```")


def echo(value: Any) -> Any:
    """Return the same value."""
    return value


async def work_of(cell: str, **options: Any) -> tuple[str, list[tuple[str, str]]]:
    """Run one cell; return its answer, and the long work that was done on the loop."""
    async with RLM(Model(cell), tools=[echo], **options) as rlm:
        with LoopThread() as thread:
            result = await rlm.aask("the root query", "a context")
    return str(result.answer), thread.work


@pytest.mark.parametrize("depth", [2, 1], ids=["child runs", "calls at the depth limit"])
@pytest.mark.parametrize("context", [LONG, TEXTS, ROWS], ids=["text", "texts", "rows"])
async def test_the_context_of_a_child_is_stored_in_a_thread(context: str, depth: int) -> None:
    cell = f"FINAL(rlm_query('How long?', context={context}))"
    answer, work = await work_of(cell, max_depth=depth)
    assert answer == ("ok" if depth == 1 else answer)
    assert depth == 1 or int(answer) >= CHARS
    assert work == []


@pytest.mark.parametrize("arguments", [LONG, f"{LONG}, context='short'"], ids=["alone", "beside"])
async def test_the_query_of_a_child_is_hashed_in_a_thread(arguments: str) -> None:
    _, work = await work_of(f"FINAL(rlm_query({arguments}))", max_depth=2)
    assert {caller for _, caller in work} <= {"surely"}  # It looks at the ends of the query.


@pytest.mark.parametrize(
    "call",
    [
        f"llm_query({LONG})",
        f"llm_query({LONG} + chr(0xD800))",
        f"llm_query_batched([{LONG}] * 2)[0]",
    ],
    ids=["one", "with a lone surrogate", "batch"],
)
async def test_a_long_prompt_is_measured_and_hashed_in_a_thread(call: str) -> None:
    answer, work = await work_of(f"FINAL({call})", strategy="rlm")
    assert answer == "ok"
    assert work == []


async def test_the_body_of_a_long_request_is_encoded_in_a_thread() -> None:
    request = Request(
        model="m", messages=(Message("user", "é" * CHARS),), max_output_tokens=100, sampling={}
    )
    async with FakeServer(["ok"]) as server:
        client = OpenAICompatClient(server.openai_url)
        with LoopThread() as thread:
            reply = await client.complete(request, timeout_seconds=30)
        await client.close()
    assert reply.text == "ok"
    assert "body" not in {caller.rpartition(".")[2] for _, caller in thread.work}
    assert "dump" not in {caller for _, caller in thread.work}


@pytest.mark.parametrize(
    "cell",
    [
        "FINAL(len(echo('é' * 1_000_000)))",
        "FINAL(len(echo(['é' * 1_000] * 1_000)))",
        "FINAL('é' * 3_000_000)",
        "FINAL('He said “' + 'é' * 3_000_000 + '”')",
        "FINAL(['é' * 1_000] * 3_000)",
        "answer['content'] = 'é' * 3_000_000\nanswer['ready'] = True",
        "found = 'é' * 3_000_000\nFINAL_VAR('found')",
        "print('é' * 900_000)\nFINAL(1)",
        "classify([str(n) + 'é' * 1_000 for n in range(1_000)], ['a', 'b'])\nFINAL(1)",
        "filter_pairs = pairs(['é' * 500_000], ['è' * 500_000], 'both vowels')\nFINAL(1)",
    ],
    ids=[
        *("text to a tool", "list to a tool", "answer", "quote", "list as an answer"),
        *("`answer`", "variable", "output", "operator", "pairs"),
    ],
)
async def test_long_arguments_answers_and_output_are_handled_in_threads(cell: str) -> None:
    answer, work = await work_of(cell)
    assert answer
    assert work == []
