"""A client can tell which call it answers: all attempts of a call have one key, no other call."""

from typing import Any

from rlm import RLM, ModelError
from rlm.messages import Message, ModelInfo, Reply, ReplyKey, Request
from rlm.protocols import current_call

BUSY = ModelError("busy", retryable=True, retry_after_seconds=0.0)


class Watching:
    """Answers from a script, and notes the key of each request."""

    def __init__(self, *script: str | ModelError) -> None:
        self.script = list(script)
        self.keys: list[ReplyKey | None] = []

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        self.keys.append(current_call())
        answer = self.script.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        return Reply(text=answer)

    def stream(self, request: Request, *, timeout_seconds: float) -> Any:
        raise NotImplementedError

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        pass


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


async def test_each_call_has_one_key_that_all_its_attempts_share() -> None:
    twice = cell("a = llm_query('same')\nb = llm_query('same')\nprint(a, b)")
    client = Watching(BUSY, twice, "1", "2", cell("FINAL('x')"))
    async with RLM(client) as rlm:
        await rlm.aask("What?", "text")
    keys = [key for key in client.keys if key is not None]
    assert len(keys) == 5
    assert keys[0] == keys[1], "an attempt that is repeated"
    assert len({str(key) for key in keys}) == 4
    assert [(key.kind, key.step) for key in keys[1:]] == [
        ("step", 1),
        ("llm", 1),
        ("llm", 1),
        ("step", 2),
    ]
    assert current_call() is None


async def test_child_runs_have_paths_below_their_parents() -> None:
    client = Watching(
        cell("FINAL(rlm_query('look', context='inner'))"), cell("FINAL('found')"), "unused"
    )
    async with RLM(client, limits={"max_depth": 2}) as rlm:
        assert (await rlm.aask("What?", "text")).answer == "found"
    root, child = (key.path for key in client.keys if key is not None)
    assert root == "root"
    assert child.startswith("root/")


async def test_outside_a_run_there_is_no_call_key() -> None:
    client = Watching("hi")
    request = Request(model="m", messages=(Message("user", "x"),), max_output_tokens=5)
    await client.complete(request, timeout_seconds=1)
    assert client.keys == [None]
