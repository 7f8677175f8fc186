"""The face of `rlm.clients`: lazy, sorted, and all of one protocol."""

import subprocess
import sys

import pytest

import rlm.clients
from rlm.protocols import Client


def test_names() -> None:
    assert rlm.clients.__all__ == ["OfflineClient", "OpenAICompatClient", "ScriptedClient"]
    for name in rlm.clients.__all__:
        assert getattr(rlm.clients, name).__name__ == name
        assert name in dir(rlm.clients)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = rlm.clients.Nonsense


def test_each_is_a_client() -> None:
    clients: list[Client] = [
        rlm.clients.OfflineClient(),
        rlm.clients.OpenAICompatClient("http://localhost:1/v1"),
        rlm.clients.ScriptedClient(),
    ]
    assert len(clients) == 3


def test_importing_the_package_imports_no_client() -> None:
    code = (
        "import sys, rlm.clients\n"
        "assert not [m for m in sys.modules if m.startswith('rlm.clients.')], sys.modules\n"
        "assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
