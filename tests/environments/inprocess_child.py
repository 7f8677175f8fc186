"""Runs checks on `inprocess` in a process that may be lost, and prints the rows as JSON."""

import asyncio
import json
import os
import resource
import sys

from rlm.environments.inprocess import InProcessEnvironment
from rlm.testing.conformance import CHECKS
from rlm.testing.conformance.bench import Bench
from rlm.testing.conformance.runner import Report, run_tasks

MAX_BYTES = 4 << 30
MAX_CPU_SECONDS = 240


def is_harmless(row: str) -> bool:
    return not any(part in row for part in InProcessEnvironment.harms_host)


async def run(groups: list[str]) -> Report:
    environment = InProcessEnvironment()
    bench = Bench(environment)
    checks = [each for each in CHECKS if each.group in groups]
    tasks = [each.task(bench) for each in checks if is_harmless(f"{each.group}: {each.name}")]
    try:
        return await run_tasks(tasks)
    finally:
        await bench.drop_shared()
        await environment.close()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    report = asyncio.run(run(sys.argv[1:]))
    rows = [[f"{row.group}: {row.name}", row.verdict, row.detail] for row in report.rows]
    print(json.dumps(rows), flush=True)
    os._exit(0)  # Threads that are stuck would be waited for.


if __name__ == "__main__":
    main()
