"""Small programs that play `claude`, `codex`, `gemini` and others: files that can be executed."""

import sys
from pathlib import Path

__all__ = ["program"]


def program(folder: Path, name: str, body: str) -> Path:
    """Write a Python program and return its path; `asked` is what it was given."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport json, os, signal, subprocess, sys, time\n"
        f"def read():\n    return sys.stdin.buffer.read().decode()\n{body}\n"
    )
    path.chmod(0o755)
    return path
