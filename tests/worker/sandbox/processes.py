"""Looking at processes from outside, by /proc, and waiting for them to go."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 120


def children_of(process: int) -> list[int]:
    everyone = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [each for each in everyone if status(each).get("PPid") == str(process)]


def status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def is_gone(process: int) -> bool:
    return status(process).get("State", "Z")[0] in "ZX"


def wait_until_gone(*processes: int) -> None:
    wait_until(lambda: all(is_gone(each) for each in processes))


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for what nobody tells."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
