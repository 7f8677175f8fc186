"""A tiny task of Harbor, and the script of a model that does it."""

from pathlib import Path

TASK = """
schema_version = "1.4"
[task]
name = "acme/note"
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = {seconds}
[environment]
network_mode = "no-network"
docker_image = "rlm-harbor-test"
"""
INSTRUCTION = "Write the sum of all numbers in /app/numbers.txt to the file /app/sum.txt.\n"
TEST = """#!/bin/bash
if [ "$(cat /app/sum.txt)" = "5050" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
PREPARE = "for i in {1..100}; do echo $i; done > /app/numbers.txt"
CELLS = (
    f"made = shell({PREPARE!r})\nprint(made['exit_code'])",
    """
numbers = [int(each) for each in read_file('/app/numbers.txt').split()]
write_file('sum.txt', str(sum(numbers)))
print(shell('ls; cat sum.txt')['stdout'])
""",
    "FINAL('I wrote the sum.')",
)


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def make_task(folder: Path, seconds: float = 120.0) -> Path:
    """Write the task, and return its folder."""
    task = folder / "note"
    for name in ("environment", "tests"):
        (task / name).mkdir(parents=True)
    (task / "task.toml").write_text(TASK.format(seconds=seconds))
    (task / "instruction.md").write_text(INSTRUCTION)
    (task / "environment" / "Dockerfile").write_text("FROM rlm-harbor-test\nWORKDIR /app\n")
    (task / "tests" / "test.sh").write_text(TEST)
    (task / "tests" / "test.sh").chmod(0o755)
    return task
