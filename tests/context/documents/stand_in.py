"""A module of jobs in place of `rlm.context.documents.formats`: documents say what happens."""

import os
import time
from pathlib import Path

__all__ = ["convert"]


def convert(path: str, suffix: str) -> str | dict[str, str]:
    text = Path(path).read_text("utf-8")
    if text.startswith("fail: "):
        return {"problem": f"ValueError: {' '.join(text.split())}"}
    if text.startswith("refuse: "):
        return {"refused": text.removeprefix("refuse: ")}
    if text == "endless":
        time.sleep(10_000)
    if text == "memory":
        text = "x" * (1 << 40)
    if text == "long":
        text = "x" * (17 << 20)
    if text == "crash":
        os.abort()
    return f"{suffix} {text}" if text else " \n"
