"""A second turn never ends with the first one's answer, in any face that people talk to.

`answer` is fresh at every turn. In each face the first turn ends by `answer["ready"] = True`; the
first cell of the second turn submits nothing, so its answer must be that of the cell after it.
"""

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rlm_runtime
from rlm import RLM, AgentRLM, ScriptedClient
from rlm.environments.local_repl import LocalREPL
from rlm.testing.fake_server import FakeServer
from tests.gateway.recipes import Recipe
from tests.server.serving import server
from tests.shape.test_layers import HEIGHT, LAYERS
from tests.shape.tree import ROOT, SOURCE

SETS = 'answer["content"] = "{}"\nanswer["ready"] = True'
LOOKS = "print('still looking')"
CELLS = [SETS.format("first"), LOOKS, SETS.format("second")]
SCRIPT = [f"```repl\n{code}\n```" for code in CELLS]
Answers = tuple[Any, Any]
Face = Callable[[Path], Awaitable[Answers]]


async def chat(_: Path) -> Answers:
    async with RLM(ScriptedClient(SCRIPT)) as one:
        talk = one.chat("text")
        answers = (await talk.aask("One?")).answer, (await talk.aask("Two?")).answer
        await talk.aclose()
    return answers


async def agent(_: Path) -> Answers:
    async with AgentRLM(backend=ScriptedClient(SCRIPT)) as one:
        first, second = [
            "".join([chunk async for chunk in one.chat(message)]) for message in ("One?", "Two?")
        ]
    return first, second


async def persistent(_: Path) -> Answers:
    """`completion` in the reference's spelling, which also names the first context `context_0`."""
    with FakeServer(SCRIPT) as model:
        kwargs = {"model_name": "gpt-4o", "base_url": model.openai_url, "api_key": "none"}
        async with RLM(backend="openai", backend_kwargs=kwargs, persistent=True) as one:
            first = await one.acompletion("one text")
            second = await one.acompletion("another text")
        asked = [request.asked.body for request in model.requests if request.asked]
    prompt = asked[1]["messages"][1]["content"]
    assert "`context_0`" in prompt
    assert "`context_1`" in prompt
    return first.response, second.response


async def completions(_: Path) -> Answers:
    """Two completions of one object, each with a session of its own."""
    async with RLM(ScriptedClient(SCRIPT)) as one:
        return (await one.acompletion("a")).response, (await one.acompletion("b")).response


async def local_repl(_: Path) -> Answers:
    with LocalREPL() as repl:
        first, looked, second = (repl.execute_code(code).final_answer for code in CELLS)
    assert looked is None
    return first, second


async def runtime(_: Path) -> Answers:
    one = rlm_runtime.RLM(adapter=ScriptedClient(SCRIPT))
    answers = (await one.arun("One?", "text"))[0], (await one.arun("Two?", "text"))[0]
    await one._engine.aclose()
    return answers


async def of_server(folder: Path) -> Answers:
    async with server(folder, ScriptedClient(SCRIPT)) as client:
        said = [await client.chat("What?", rlm={"context": "text"}) for _ in range(2)]
    first, second = (each.json["choices"][0]["message"]["content"] for each in said)
    return first, second


async def gateway(folder: Path) -> Answers:
    """`rlm_exec`, whose session a client keeps."""
    (folder / "repo").mkdir()
    one = Recipe(folder).gateway()
    try:
        session = one.create_session("ada")["session"]
        outputs = [(await one.execute("ada", session, code))["output"] for code in CELLS]
    finally:
        await one.close()
    assert outputs[1] == "still looking\n"
    return outputs[0], outputs[2]


FACES: dict[str, tuple[Face, ...]] = {
    "agent": (agent,),
    "api": (completions, persistent),
    "chat": (chat,),
    "compat": (local_repl, persistent),
    "gateway": (gateway,),
    "rlm_runtime": (runtime,),
    "server": (of_server,),
}
ELSEWHERE = {
    "cli": ("tests/cli/test_chat.py", "test_each_line_of_stdin_is_a_turn"),
    "llm-rlm": (
        "plugins/llm-rlm/tests/test_document.py",
        "test_a_second_turn_has_a_new_sandbox",
    ),
    "recursivelm-acp": (
        "plugins/recursivelm-acp/tests/test_prompts.py",
        "test_a_second_prompt_can_use_variables_and_history",
    ),
    "recursivelm-dspy": (
        "plugins/recursivelm-dspy/tests/test_interpreter.py",
        "test_variables_persist_between_cells",
    ),
}
"""Faces that run as other programs, and their tests of a second turn."""

WITHOUT_TURNS = {
    "batch": "every query is a run of its own",
    "bench": "every trial is a run of its own",
    "operators": "every operator is a run of its own",
    "plugin-rlm": "every message is a run of its own; the runtime keeps the conversation",
    "recursivelm-harbor": "every task is a run of its own",
    "recursivelm-inspect": "every sample is a run of its own",
    "recursivelm-pydantic-ai": "every question of an agent is a run of its own",
    "recursivelm-verifiers": "every rollout is a run of its own",
    "replay": "it repeats what was recorded",
    "settings": "it holds what the faces read",
    "viewer": "it shows what was recorded",
    "wiring": "it is no face: the faces above use it",
}


def test_every_interface_has_a_second_turn_test_or_a_reason_for_none() -> None:
    """A new package above the engine, a new distribution or a new plugin is noticed here."""
    reference_paths = set(LAYERS[0])
    packages = {unit for unit in HEIGHT if HEIGHT[unit] >= HEIGHT["chat"]} - reference_paths
    distributions = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    plugins = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir()}
    found = packages | (distributions - {"rlm"}) | plugins
    assert found == FACES.keys() | ELSEWHERE.keys() | WITHOUT_TURNS.keys()


@pytest.mark.parametrize(("path", "name"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_the_tests_of_other_programs_exist(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize(
    "face",
    dict.fromkeys(each for faces in FACES.values() for each in faces),
    ids=lambda f: f.__name__,
)
async def test_a_second_turn_does_not_repeat_the_first_answer(face: Face, tmp_path: Path) -> None:
    assert await face(tmp_path) == ("first", "second")
