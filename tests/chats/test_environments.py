"""Saved chats in the environments besides `local`; each with its real package."""

from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient

PACKAGES = {"ipython": "IPython", "monty": "pydantic_monty", "wasm": "eryx"}


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


@pytest.mark.parametrize("environment", PACKAGES)
@pytest.mark.parametrize("there", ["the same", "local"])
async def test_a_chat_goes_on(environment: str, there: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[environment], reason="run by a target of its own")
    path = tmp_path / "chat.rlm"
    made = "n = [1]\nm = [n, n]\ndef f(x):\n    return x + 1\nFINAL(n)"
    one = RLM(ScriptedClient([code(made)]), environment=environment)
    chat = one.chat({"a": "text"})
    await chat.aask("q")
    await chat.asave(path)
    assert chat.notices == []
    await chat.aclose()
    await one.aclose()
    elsewhere = environment if there == "the same" else there
    script = code("FINAL([m[0] is m[1] is n, f(1), context['a']])")
    two = RLM(ScriptedClient([script]), environment=elsewhere)
    chat = two.chat(load=path)
    assert (await chat.aask("q")).answer == "[True, 2, 'text']"
    await chat.aclose()
    await two.aclose()


async def test_an_environment_that_cant_says_so_and_saves_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_monty", reason="run by a target of its own")
    path = tmp_path / "chat.rlm"
    alone: dict[str, Any] = {"environment": "monty", "environment_kwargs": {"promote": False}}
    one = RLM(ScriptedClient([code("n = 1\nFINAL(n)")]), **alone)
    chat = one.chat("abc")
    await chat.aask("q")
    await chat.asave(path)
    assert len(chat.notices) == 1
    assert chat.notices[0].startswith("the variables could not be saved: ")
    await chat.aclose()
    await one.aclose()
    two = RLM(ScriptedClient([code("FINAL([context, len(history)])")]), **alone)
    chat = two.chat(load=path)
    assert (await chat.aask("q")).answer == "['abc', 1]"
    await chat.aclose()
    await two.aclose()
