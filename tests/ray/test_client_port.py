"""A cluster that is reached through its client port, from outside the cluster."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.testing.fake_server import FakeServer
from tests.cli.running import command, environment
from tests.ray.test_two_nodes import assert_whole, paid, reply, write_rows

ROWS = 6
_START_SECONDS = 120


@pytest.fixture
def client_port() -> Iterator[int]:
    """Of a head that was started as people start one, `ray start --head`."""
    own, clients = _free_port(), _free_port()
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # Its sockets need short paths.
        words = ["start", "--head", "--block", f"--port={own}", f"--temp-dir={folder}"]
        words += [f"--ray-client-server-port={clients}", "--num-cpus=1"]
        words += [f"--object-store-memory={100 << 20}", "--include-dashboard=false"]
        ray = Path(sys.executable).with_name("ray")
        head = subprocess.Popen(
            [str(ray), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RAY_ADDRESS": ""},
            text=True,
        )
        try:
            assert head.stdout is not None
            said = ""
            while "--block" not in said and (line := head.stdout.readline()):
                said += line  # It says that it stays in the foreground, once it is up.
            assert head.poll() is None, said
            yield clients
        finally:
            head.terminate()
            head.communicate(timeout=_START_SECONDS)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_batch_can_run_from_outside_the_cluster(client_port: int, tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, ROWS)
    with FakeServer(rules=[("", reply)]) as server:
        variables = {"LLM_BASE_URL": server.openai_url, "LLM_API_KEY": "k"}
        done = subprocess.run(
            command("batch", str(tasks), "--on", f"ray://127.0.0.1:{client_port}"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment({**variables, "RLM_MODEL": "openai-compatible/m"}),
            text=True,
            check=False,
        )
        asked = paid(server)
    assert done.returncode == 0, done.stderr
    assert_whole(Path(done.stdout.strip()), ROWS)
    assert set(asked.values()) == {1}
