"""Tools that change between the turns of a chat, in one session."""

from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.worker.namespace import Namespace


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_a_chat_has_the_tools_currently_granted(environment: str) -> None:
    client = ScriptedClient(
        [
            code("x = first()\nFINAL(x)"),
            code("first = 'mine'\nFINAL([x, second(), first])"),
            code("FINAL([x, first(), 'second' in globals()])"),
        ]
    )
    one = RLM(client, environment=environment, tools={"first": lambda: 1})
    chat = one.chat()
    assert (await chat.aask("One.")).answer == "1"
    one.grant_tools({"second": lambda: 2})
    assert (await chat.aask("Two.")).answer == "[1, 2, 'mine']"
    one.grant_tools({"first": lambda: 3})
    assert (await chat.aask("Three.")).answer == "[1, 3, False]"
    await chat.aclose()
    await one.aclose()


async def test_a_restored_worker_has_the_current_tools() -> None:
    dead: list[int] = []
    client = ScriptedClient(
        [
            code("import os\nx = 5\nFINAL(os.getpid())"),
            code("die()"),
            code("FINAL([context, late()])"),
        ]
    )

    def die() -> None:
        dead.append(1)

    one = RLM(client, tools={"early": lambda: 1})
    chat = one.chat("kept")
    await chat.aask("One.")
    one.grant_tools({"late": lambda: 9, "die": die})
    client.script[1] = code("die()\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (await chat.aask("Two.")).answer == "['kept', 9]"
    assert dead == [1]
    await chat.aclose()
    await one.aclose()


def test_a_users_variable_survives_the_removal_of_a_tool() -> None:
    variables: dict[str, Any] = {}
    namespace = Namespace(variables)
    tool, other = object(), object()
    namespace.set_tools({"f": tool, "FINAL": tool, "not a name": tool})
    assert variables["f"] is tool
    assert "not a name" not in variables
    variables["f"] = "mine"
    namespace.set_tools({"g": other})
    assert variables["f"] == "mine"
    namespace.restore()
    assert (variables["f"], variables["g"]) == ("mine", other)
    namespace.set_tools({"g": tool})
    assert variables["g"] is tool


async def test_sub_tools_change_together_with_tools() -> None:
    child = code("try:\n    f()\nexcept NameError:\n    FINAL('none')")
    client = ScriptedClient([code("FINAL(rlm_query('?', context='c'))"), child] * 2)
    one = RLM(client, limits=Limits(max_depth=2), tools={"f": lambda: 1}, sub_tools=[])
    assert (await one.aask("One.")).answer == "none"
    one.grant_tools({"f": lambda: 1})
    client.script[3] = code("FINAL(f())")
    assert (await one.aask("Two.")).answer == "1"
    await one.aclose()
