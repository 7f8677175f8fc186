"""Saved chats in the environments besides `local`; each with its real package."""

from pathlib import Path

import pytest

from rlm import RLM, ScriptedClient

PACKAGES = {"ipython": "IPython", "wasm": "eryx"}


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


@pytest.mark.parametrize("environment", PACKAGES)
@pytest.mark.parametrize("there", ["the same", "local"])
async def test_a_saved_chat_continues_in_each_environment(
    environment: str, there: str, tmp_path: Path
) -> None:
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
