"""The guard in tests/conftest.py refuses, and is noticed even when the refusal is swallowed."""

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.network_guard import NetworkBlocked, is_local
from tests.shape.tree import ROOT

FAR_AWAY = ("192.0.2.1", 443)  # an address reserved for documentation: no server answers there


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 80), ("::1", 80, 0, 0), "localhost", "/run/x", None]
)
def test_local_addresses_are_recognised(address: object) -> None:
    assert is_local(address)


@pytest.mark.parametrize(
    "address", [FAR_AWAY, ("2001:db8::1", 443, 0, 0), "example.com", ("0.0.0.1", 1)]
)
def test_other_addresses_are_not_local(address: object) -> None:
    assert not is_local(address)


def test_connecting_to_the_network_is_refused(no_network: list[str]) -> None:
    with socket.socket() as sock:
        with pytest.raises(NetworkBlocked):
            sock.connect(FAR_AWAY)
        with pytest.raises(NetworkBlocked):
            sock.connect_ex(FAR_AWAY)
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(NetworkBlocked):
        sock.sendto(b"x", FAR_AWAY)
    with pytest.raises(NetworkBlocked):
        socket.create_connection(("example.com", 443))
    assert len(no_network) == 4
    no_network.clear()


async def test_connecting_with_asyncio_is_refused_too(no_network: list[str]) -> None:
    with pytest.raises(NetworkBlocked):
        await asyncio.open_connection(*FAR_AWAY)
    assert no_network
    no_network.clear()


def test_connecting_to_loopback_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_no_provider_key_reaches_a_test() -> None:
    settings = {name for name in os.environ if name.startswith("RLM_")}
    assert settings == {"RLM_CONFIG_DIR", "RLM_STATE_DIR"}  # temporary folders
    assert not [name for name in os.environ if name.endswith("_API_KEY")]


def test_a_swallowed_refusal_still_fails_the_test(tmp_path: Path) -> None:
    inner = """
        import contextlib, os, socket

        def test_that_hides_it():
            with contextlib.suppress(BaseException):
                socket.create_connection(("192.0.2.1", 443))

        def test_sees_no_key():
            assert "OPENAI_API_KEY" not in os.environ and "RLM_MODEL" not in os.environ

        def test_skipped():
            import pytest
            pytest.skip("for a reason")
    """
    (tmp_path / "test_inner.py").write_text(textwrap.dedent(inner), "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "secret", "RLM_MODEL": "a/b"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "2 passed, 1 skipped, 1 error" in done.stdout, done.stdout + done.stderr
    assert "tried to reach the network" in done.stdout
    assert "1 skipped:\nSKIP test_inner.py::test_skipped: for a reason" in done.stdout
