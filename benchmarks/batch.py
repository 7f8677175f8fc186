"""Measure `rlm batch` with many rows: `python benchmarks/batch.py [--rows N] [--concurrency N]`.

Run a real `rlm batch`, with journals, in its own process against a server that answers at once.
Each row has its own context, and each answer is checked.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines, load_average
from benchmarks.processes import cpu_seconds, peak_bytes

HERE = Path(__file__).resolve().parent
REPLY = "```repl\nFINAL(len(context))\n```"
CONTEXT_CHARS = 2_000
POLL_SECONDS = 0.2


class Measured(NamedTuple):
    """Figures of one batch, from the start of its process to its end."""

    rows: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    state_bytes: int


def size_of(number: int) -> int:
    return CONTEXT_CHARS + number % 97


def write_rows(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {"query": "How long is it?", "context": "x" * size_of(number), "id": number}
            file.write(f"{json.dumps(row)}\n")


def run(folder: Path, count: int, concurrency: int, port: int) -> Measured:
    tasks = folder / "tasks.jsonl"
    write_rows(tasks, count)
    command = ("-m", "rlm", "batch", str(tasks), "-m", "openai-compatible/m", "--quiet")
    variables = {**os.environ, "LLM_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    began, peak, cpu = time.perf_counter(), 0, 0.0
    with subprocess.Popen(  # noqa: S603
        [sys.executable, *command, "--concurrency", str(concurrency)],
        env=variables,
        stdout=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None:
            try:
                peak = max(peak, peak_bytes(process.pid))
            except (OSError, ValueError):  # it has ended
                break
            cpu = cpu_seconds([process.pid]) or cpu
            time.sleep(POLL_SECONDS)
    if process.returncode != 0:
        sys.exit(f"rlm batch ended with {process.returncode}")
    check(folder / "tasks.answers.jsonl", count)
    state = folder / "tasks.answers.jsonl.state"
    size = sum(each.stat().st_size for each in state.rglob("*") if each.is_file())
    return Measured(count, time.perf_counter() - began, cpu, peak, size)


def check(answers: Path, count: int) -> None:
    """Check that every row is there once, in order, and right."""
    with answers.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            row = json.loads(line)
            if (row["row"], row["answer"]) != (number, str(size_of(number))):
                sys.exit(f"row {number} is {row['row']} with {row['answer']!r}")
    if number + 1 != count:
        sys.exit(f"{number + 1:,} of {count:,} rows are there")


def show(found: list[Measured]) -> None:
    print("| rows | rows/s | CPU of the command, ms per row | peak of the command | stored state |")
    print("|---|---|---|---|---|")
    for each in found:
        print(
            f"| {each.rows:,} | {each.rows / each.seconds:,.1f}"
            f" | {1_000 * each.cpu_seconds / each.rows:.1f}"
            f" | {each.peak_bytes / 1e6:,.0f} MB | {each.state_bytes / 1e6:,.1f} MB |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--concurrency", type=int, default=32)
    options = parser.parse_args()
    machine = {**describe_machine(), "load at start": load_average()}
    server = [sys.executable, str(HERE / "chat_server.py"), "0", REPLY]
    found = []
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            for count in options.rows:
                with tempfile.TemporaryDirectory(prefix="rlm-batch-") as folder:
                    found.append(run(Path(folder), count, options.concurrency, port))
        finally:
            process.kill()
    print(in_lines({**machine, "load at end": load_average()}), end="\n\n")
    show(found)


if __name__ == "__main__":
    main()
