"""Describe the machine of a benchmark, as far as it explains the figures."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["describe_machine", "in_lines", "load_average"]


def describe_machine() -> dict[str, Any]:
    """Return everything that does not change during a run."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpus": len(os.sched_getaffinity(0)),
        "model": _model(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "uid": os.getuid(),
    }


def load_average() -> list[float]:
    return [round(each, 2) for each in os.getloadavg()]


def in_lines(machine: dict[str, Any]) -> str:
    width = max(map(len, machine))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in machine.items())


def _model() -> str:
    """Return the CPU model; ask `lscpu` first, because Arm's kernels name it only by numbers."""
    try:
        command = ["lscpu"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        text = Path("/proc/cpuinfo").read_text("utf-8")
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "model name":
            return value.strip()
    return platform.processor() or "unknown"
