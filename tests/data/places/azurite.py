"""Azurite, Microsoft's emulator of Azure's storage: an npm package with a lock of its own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent / "azurite"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Published by Microsoft: every Azurite has it."""
START_SECONDS = 60.0


def missing() -> str:
    """Return why Azurite can't be started; empty if it can."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    return ""


def installed() -> Path:
    """Return the program, installed from the lock; nothing of it is executed while that is done."""
    program = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.is_file():
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=FOLDER, check=True, capture_output=True,
        )  # fmt: skip
    return program


@contextmanager
def azurite() -> Generator[str, None, None]:
    """Start a server that keeps everything in memory; yield its connection string."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["node", installed(), "--inMemoryPersistence", "--skipApiVersionCheck",
         "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port, server)
        yield (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
        )
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Azurite did not start (exit code {server.poll()}, {os.getpid()})")
