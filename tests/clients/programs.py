"""Small programs that play `claude`, `codex`, `gemini` and others: files that can be executed."""

import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.clients.command import CommandClient
from rlm.errors import ModelError
from rlm.messages import Reply, Request
from rlm.protocols import Client
from tests.clients.misbehaving import asked

__all__ = ["failure", "program", "replied"]


def program(folder: Path, name: str, body: str) -> Path:
    """Write a Python program and return its path; `asked` is what it was given."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport json, os, signal, subprocess, sys, time\n"
        f"def read():\n    return sys.stdin.buffer.read().decode()\n{body}\n"
    )
    path.chmod(0o755)
    return path


async def replied(
    command: str | list[str], request: Request | None = None, seconds: float = 60.0, **options: Any
) -> Reply:
    """Ask a program and return its reply."""
    client: Client = CommandClient(command, **options)
    try:
        return await client.complete(
            request or asked("hi", max_output_tokens=4_000), timeout_seconds=seconds
        )
    finally:
        await client.close()


async def failure(command: str | list[str], **options: Any) -> ModelError:
    """Ask a program that must fail, and return the error."""
    with pytest.raises(ModelError) as caught:
        await replied(command, **options)
    return caught.value
