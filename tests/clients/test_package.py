"""The face of `rlm.clients`: lazy, sorted, and all of one protocol."""

import subprocess
import sys

import pytest

import rlm.clients
from rlm.protocols import Client


def test_every_listed_name_can_be_imported() -> None:
    assert sorted(rlm.clients.__all__) == rlm.clients.__all__
    for name in rlm.clients.__all__:
        assert getattr(rlm.clients, name).__name__ == name
        assert name in dir(rlm.clients)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = rlm.clients.Nonsense


def test_every_listed_class_is_a_client() -> None:
    clients: list[Client] = [
        rlm.clients.AnthropicClient("http://localhost:1"),
        rlm.clients.CallableClient(str.upper),
        rlm.clients.CommandClient("cat"),
        rlm.clients.ConverseClient("http://localhost:1"),
        rlm.clients.GeminiClient("http://localhost:1"),
        rlm.clients.GenericChatClient("http://localhost:1"),
        rlm.clients.OfflineClient(),
        rlm.clients.OpenAICompatClient("http://localhost:1/v1"),
        rlm.clients.ResponsesClient("http://localhost:1/v1"),
    ]
    needs_a_library = {"GGUFClient", "LLMClient", "LiteLLMClient"}
    of_the_reference = {"BaseLM", "get_client"}
    others = needs_a_library | of_the_reference
    assert {type(each).__name__ for each in clients} | others == set(rlm.clients.__all__)


def test_importing_the_package_imports_no_client() -> None:
    code = (
        "import sys, rlm.clients\n"
        "assert not [m for m in sys.modules if m.startswith('rlm.clients.')], sys.modules\n"
        "assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
