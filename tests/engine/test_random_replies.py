"""Nothing a model writes may break the engine: ten thousand random replies through all of it."""

import random

import pytest

from rlm.api import RLM
from rlm.errors import ModelError
from rlm.limits import Limits
from rlm.messages import Request
from rlm.testing.scripted import ScriptedClient

REPLIES = 10_000
REPLIES_A_RUN = 50

PIECES = (
    "```repl\n", "```python\n", "```\n", "~~~\n", "````py\n", "   ```repl\n", "```json\n",
    "\n```\n",
    "FINAL(", ")", "FINAL_VAR(", "FINAL_VAR: x\n", "Final Answer: ", "**FINAL**", "FINAL: 7\n",
    "<think>", "</think>", "<thinking>", "</thinking>",
    "print(context[:5])\n", "x = 1\n", "print(x)\n", "raise ValueError('no')\n", "1/0\n",
    "def f(:\n", "for i in range(3): print(i)\n", "await llm_query('q')\n", "llm_query('q')\n",
    "llm_query_batched(['a', 'b'])\n", "import asyncio\n", "FINAL(x)\n", "FINAL_VAR('x')\n",
    "answer['content'] = 'a'\n", "answer = 3\n", "context = None\n", "del print\n", "SHOW_VARS()\n",
    "print = None\n", "llm_query = 3\n", "exit()\n", "input()\n", "'''", '"', "\\", "(((", "]]]",
    "λ", "\x00", "\ud800", "😀", "\r\n", "\u2028", "    ", "\t", "Plain English, with a comma.\n",
    "the answer is 42\n", "{}", "lambda: (yield)", "async def g(): return await llm_query('q')\n",
    "class A: pass\n", "A()\n", "x: int = 'y'\n", "print('```')\n", "\N{RIGHT-TO-LEFT OVERRIDE}",
)  # fmt: skip


def random_reply(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return "".join(chr(rng.randrange(0x300)) for _ in range(rng.randrange(60)))
    text = "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
    if kind < 0.5:
        return f"```repl\n{text}\n```"
    return text


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.heavy) for n in range(1, 8))]
)
async def test_random_replies_never_raise(part: int) -> None:
    """A quarter of the runs ends early by a submission, so the count is of replies, not of runs."""
    rng = random.Random(part)
    sent = 0

    def reply(request: Request) -> str:
        nonlocal sent
        sent += "sub-LLM" not in str(request.messages[0].content)
        return random_reply(rng)

    client = ScriptedClient(rules=[("sub-LLM", "sub"), ("", reply)])
    limits = Limits(max_steps=REPLIES_A_RUN, max_errors=10**6, cell_seconds=20)
    engine = RLM(client, limits=limits)
    endings: set[str] = set()
    while sent < REPLIES / 8:
        result = await engine.aask("What?", "some text to look at")
        endings.add(result.stop_reason)
    await engine.aclose()
    assert endings <= {"answer", "steps", "error"}
    assert "answer" in endings


async def test_random_replies_with_failures_end_in_a_result_or_a_model_error() -> None:
    rng = random.Random(99)

    def reply(request: Request) -> str | ModelError:
        if rng.random() < 0.1:
            return ModelError("random failure", ambiguous=rng.random() < 0.5)
        return random_reply(rng)

    engine = RLM(ScriptedClient(rules=[("", reply)]), limits=Limits(max_steps=8))
    raised = ended = 0
    for _ in range(40):
        try:
            await engine.aask("What?", "some text to look at")
            ended += 1
        except ModelError:
            raised += 1
    await engine.aclose()
    assert raised > 0
    assert ended > 0
