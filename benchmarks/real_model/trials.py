"""Run trials with a real model behind an OpenAI-compatible endpoint, one JSON line per trial.

    python -m benchmarks.real_model.trials --url http://127.0.0.1:8000/v1 --out build/trials \\
        --sizes 8k,32k,128k,512k --tasks lookup,counting --methods plain,operators,mapreduce --n 20
    python -m benchmarks.real_model.trials --out build/trials --report

A line is written when its trial ends. The same command continues an interrupted run, and tries
again what failed because of a server. `benchmarks/real_model/server.py` serves a local model.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.options import among
from benchmarks.real_model.methods import METHODS, Answered, Setup
from benchmarks.real_model.report import SETUP, write_report
from benchmarks.real_model.samples import TASKS, make_sample
from rlm.bench.plan import parse_sizes, show_size
from rlm.errors import ConfigError

__all__ = ["Trial", "main", "read_lines", "run_trials"]

LINES = "trials.jsonl"
KEPT_ANSWER_CHARS, KEPT_DETAIL_CHARS = 2_000, 500
FAILURES_IN_A_ROW = 5
"""Then the endpoint is gone, and the rest is left for another time."""


class Trial(NamedTuple):
    """One sample by one method."""

    task: str
    size: int
    seed: int
    method: str

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Trial":
        return cls(*(line[name] for name in cls._fields))


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the last line of each trial; a torn last line is not there yet."""
    path = folder / LINES
    found: dict[Trial, dict[str, Any]] = {}
    for text in path.read_text("utf-8").splitlines(keepends=True) if path.exists() else ():
        if text.endswith("\n"):
            line = json.loads(text)
            found[Trial.of(line)] = line
    return list(found.values())


def planned(options: argparse.Namespace) -> Iterator[Trial]:
    """Yield all trials, one seed of everything at a time, so that results grow evenly."""
    for seed in range(options.seed, options.seed + options.n):
        for size in options.sizes:
            for task in options.tasks:
                for method in options.methods:
                    yield Trial(task, size, seed, method)


async def run_trials(trials: list[Trial], setup: Setup, folder: Path, concurrency: int) -> int:
    """Run trials side by side, write a line for each, and return how many failed."""
    left, failed, in_a_row = iter(trials), 0, 0
    with (folder / LINES).open("ab") as file:

        async def work() -> None:
            nonlocal failed, in_a_row
            for trial in left:
                if in_a_row >= FAILURES_IN_A_ROW:
                    return
                line = await _tried(trial, setup)
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                file.flush()
                is_failed = line["status"] == "failed"
                failed += is_failed
                in_a_row = in_a_row + 1 if is_failed else 0
                print(_shown(line), file=sys.stderr, flush=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    return failed


async def _tried(trial: Trial, setup: Setup) -> dict[str, Any]:
    sample = await asyncio.to_thread(make_sample, trial.task, trial.size, trial.seed)
    began = time.monotonic()
    found: Answered = await METHODS[trial.method](setup, sample)
    seconds = time.monotonic() - began
    answer = None if found.answer is None else found.answer[:KEPT_ANSWER_CHARS]
    score = None
    if found.status != "failed":
        score = sample.score(found.answer) if found.answer else 0.0
    return {
        **trial._asdict(),
        "status": found.status,
        "score": score,
        "answer": answer,
        "gold": sample.gold,
        "calls": found.calls,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "context_chars": len(sample.context),
        "seconds": round(seconds, 2),
        "detail": found.detail[:KEPT_DETAIL_CHARS],
    }


def _shown(line: dict[str, Any]) -> str:
    what = f"{line['task']} {show_size(line['size'])} {line['method']} #{line['seed']}"
    score = "" if line["score"] is None else f", score {line['score']:.2f}"
    tokens = (line["input_tokens"] or 0) + (line["output_tokens"] or 0)
    told = f"{what}: {line['status']}{score}, {line['calls'] or 0} calls, {tokens:,} tokens"
    return f"{told}, {line['seconds']:.0f} s"


def _cut_torn_line(path: Path) -> None:
    """Cut off half a line that a killed process left."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])


def _same_setup(folder: Path, setup: Setup) -> None:
    """Refuse to mix results of different models or limits; an address may change."""
    facts = {name: value for name, value in setup._asdict().items() if name in _FACTS}
    path = folder / SETUP
    if path.exists() and (kept := json.loads(path.read_text("utf-8"))) != facts:
        raise SystemExit(f"{folder} has results of {kept}, not {facts}: choose another --out")
    path.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


_FACTS = ("model", "window_tokens", "max_calls", "max_tokens", "max_seconds", "reply_tokens")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return parse_sizes(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder for results")
    parser.add_argument("--report", action="store_true", help="only write the report")
    parser.add_argument("--url", help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="its size decides prompts")
    parser.add_argument("--sizes", type=_sizes, default=parse_sizes("8k,32k,128k,512k"))
    parser.add_argument("--tasks", type=among(TASKS), default=list(TASKS))
    parser.add_argument("--methods", type=among(METHODS), default=list(METHODS))
    parser.add_argument("--n", type=int, default=20, help="samples of each task and size")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--concurrency", type=int, default=4, help="trials at once")
    parser.add_argument("--window", type=int, default=32_768)
    parser.add_argument("--max-calls", type=int, default=2_000)
    parser.add_argument("--max-tokens", type=int, default=3_000_000)
    parser.add_argument("--max-seconds", type=float, default=600.0)
    parser.add_argument("--reply-tokens", type=int, default=1_024)
    parser.add_argument("--reference-python", help="an interpreter with rlms installed")
    parser.add_argument("--allow-unsafe", action="store_true", help="as in the local environment")
    options = parser.parse_args(arguments)
    if not options.report and not options.url:
        parser.error("pass --url, or --report")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = _parsed(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    if not options.report:
        setup = Setup(
            options.url,
            options.model,
            options.window,
            options.max_calls,
            options.max_tokens,
            options.max_seconds,
            options.reply_tokens,
            options.reference_python,
            options.allow_unsafe,
        )
        _same_setup(options.out, setup)
        _cut_torn_line(options.out / LINES)
        done = {Trial.of(each) for each in read_lines(options.out) if each["status"] != "failed"}
        left = [trial for trial in planned(options) if trial not in done]
        print(f"{len(left)} trials to run, {len(done)} are there", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            failed = asyncio.run(run_trials(left, setup, options.out, options.concurrency))
    print(write_report(read_lines(options.out), options.out))
    if failed:
        print(f"{failed} failed: run the same command again", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
