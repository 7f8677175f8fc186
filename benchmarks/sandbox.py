"""Measure sandboxes next to each other: `python benchmarks/sandbox.py`.

Contenders take turns, so that all of them meet the same machine; no model is called.
`benchmarks/README.md` explains the tables. `--json FILE` saves every sample.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.board import Board
from benchmarks.contenders import NAMES, contenders
from benchmarks.machine import describe_machine, in_lines, load_average
from benchmarks.measures import Bench, contexts, starts, stops, talk
from benchmarks.options import among
from benchmarks.processes import context_files, descendants, described
from rlm.environments.local.zygotes import close_all

_FAREWELL_SECONDS = 2.0

GROUPS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "zygote": starts.zygote,
    "sessions": starts.sessions,
    "cells": talk.cells,
    "callbacks": talk.callbacks,
    "contexts": contexts.contexts,
    "crowd": contexts.crowd,
    "interrupts": stops.interrupts,
    "checkpoints": stops.checkpoints,
}


async def measure(bench: Bench, groups: list[str]) -> None:
    """Run the groups; close everything that was opened, even if interrupted."""
    gc.freeze()
    try:
        for name in groups:
            print(f"{name} …", file=sys.stderr, flush=True)
            await GROUPS[name](bench)
    finally:
        for contender in bench.contenders:
            await contender.close()
        await asyncio.to_thread(close_all)


def leftovers(*, was_cut_short: bool) -> str | None:
    """Return what should be gone and is not, after a moment for processes that are ending.

    A zygote that was interrupted while it started has ended, but nothing reaps it.
    """
    gc.collect()
    until = time.monotonic() + _FAREWELL_SECONDS
    while descendants() and time.monotonic() < until:
        time.sleep(0.05)
    processes, files = described(descendants()), context_files()
    if was_cut_short:
        processes = [each for each in processes if not each.startswith("Z")]
    if processes or files:
        return f"LEFT BEHIND: {files} files of contexts, {len(processes)} processes {processes}"
    return None


def main() -> None:
    options = _options()
    found, remarks = contenders(options.contenders)
    board = Board([each.name for each in found])
    for remark in remarks:
        board.note(remark)
    machine: dict[str, Any] = {**describe_machine(), "load at start": load_average()}
    was_cut_short = False
    try:
        asyncio.run(measure(Bench(board, found, options.rounds, options.small), options.only))
    except KeyboardInterrupt:
        was_cut_short = True
        board.note("cut short: rows are missing, or rest on fewer samples")
    machine["load at end"] = load_average()
    if left := leftovers(was_cut_short=was_cut_short):
        board.note(left)
    print(board.summary(), board.details(), in_lines(machine), sep="\n\n")
    if board.notes:
        print("", *board.notes, sep="\n")
    if options.json is not None:
        facts = {"machine": machine, "rounds": options.rounds, "small": options.small}
        everything = {**facts, "notes": board.notes, "rows": board.as_json()}
        options.json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
    sys.exit(130 if was_cut_short else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=50, help="sessions per contender; the rest is in proportion"
    )
    parser.add_argument("--small", action="store_true", help="leave out the context of 1 GiB")
    parser.add_argument("--only", type=among(GROUPS), default=list(GROUPS), metavar="GROUP,…")
    parser.add_argument("--contenders", type=among(NAMES), default=list(NAMES), metavar="NAME,…")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to it")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before there was anything to show
        sys.exit(130)
