"""Operators work in cells of every interface with models; without models, the cell is told."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import rlm_runtime
from rlm import RLM, AgentRLM, Limits, ScriptedClient
from rlm.messages import Request
from tests.gateway.recipes import Recipe
from tests.operator_reader import codes_in, items_in, user_text
from tests.server.serving import server

LINES = "\n".join(("buy " if number % 3 == 0 else "dear ") + str(number) for number in range(60))
CODE = (
    "labels = classify(str(context).splitlines(), ['spam', 'ham'])\n"
    "answer['content'] = str(labels.count('spam'))\n"
    "answer['ready'] = True"
)
CELL = f"```repl\n{CODE}\n```"


def labelled(prompt: str) -> str:
    codes = codes_in(prompt)
    chosen = [codes["spam" if item.startswith("buy") else "ham"] for item in items_in(prompt)]
    return "\n".join(f"{number}: {code}" for number, code in enumerate(chosen, 1))


def reply(request: Request) -> str:
    """One model plays both parts: it labels what operators send, and else writes the cell."""
    prompt = user_text(request)
    return labelled(prompt) if "Labels:\n" in prompt else CELL


def model() -> ScriptedClient:
    return ScriptedClient(rules=[("", reply)])


async def chat(_: Path) -> list[str]:
    async with RLM(model()) as one:
        talk = one.chat(LINES)
        answers = [str((await talk.aask(query)).answer) for query in ("One?", "Two?")]
        await talk.aclose()
    return answers


async def completion(_: Path) -> list[str]:
    async with RLM(model()) as one:
        return [(await one.acompletion(LINES)).response]


async def child_run(_: Path) -> list[str]:
    root = ScriptedClient(["```repl\nFINAL(rlm_query('How many?', context))\n```"])
    async with RLM(root, sub_model=model(), limits=Limits(max_depth=2)) as one:
        return [str((await one.aask("How many?", LINES)).answer)]


async def agent(_: Path) -> list[str]:
    async with AgentRLM(backend=model()) as one:
        return ["".join([chunk async for chunk in one.chat("How many?", LINES)])]


async def runtime(_: Path) -> list[str]:
    one = rlm_runtime.RLM(adapter=model())
    answer, _trace = await one.arun("How many?", LINES)
    await one._engine.aclose()
    return [str(answer)]


async def of_server(folder: Path) -> list[str]:
    async with server(folder, model()) as client:
        said = await client.chat("How many?", rlm={"context": LINES})
    return [said.json["choices"][0]["message"]["content"]]


FACES = (chat, completion, child_run, agent, runtime, of_server)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
async def test_a_cell_classifies(
    face: Callable[[Path], Awaitable[list[str]]], tmp_path: Path
) -> None:
    assert set(await face(tmp_path)) == {"20"}


async def test_the_gateway_has_no_models(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    one = Recipe(tmp_path).gateway()
    try:
        session = one.create_session("ada")["session"]
        done = await one.execute("ada", session, "classify(['a', 'b'], ['x', 'y'])")
    finally:
        await one.close()
    assert "CallFailed: code of rlm_exec has no models and no tools" in done["error"]
