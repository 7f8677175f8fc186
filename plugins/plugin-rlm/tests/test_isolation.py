"""No request holds any of the context until code prints it, whatever the model's size."""

import json
from typing import Any

import pytest

from elizaos_plugin_rlm import RLMClient, RLMConfig
from endpoint import endpoint
from models import cell

pytest.importorskip("rlm", reason="needs recursivelm")

TEXT = "canary-at-the-head\n" + "a line between\n" * 5_000 + "canary-at-the-tail\n"


def answer(body: dict[str, Any]) -> str:
    return cell("print(len(context))" if len(body["messages"]) == 2 else "FINAL(len(context))")


@pytest.mark.parametrize("model", ["gpt-5", "qwen2.5-1.5b"])
async def test_neither_end_of_a_prompt_is_sent(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        config = RLMConfig(backend="openai", root_model=model, subcall_model=model)
        result = await RLMClient(config).infer(TEXT)
    assert result.text == str(len(TEXT))
    assert len(server.bodies) == 2
    assert "canary" not in json.dumps(server.bodies)
