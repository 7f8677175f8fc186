"""The example and the blocks of the README run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")

PLUGIN = Path(__file__).resolve().parents[1]
README = (PLUGIN / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=PLUGIN)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_message_loop_example_runs() -> None:
    output = run(sys.executable, "examples/message_loop.py")
    assert "Ada:  The ferry to Brest, number 07777, leaves at 01:30." in output
    assert "2 requests" in output


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_blocks_of_the_readme_run(number: int) -> None:
    """Each block is a program; `# prints:` holds the expected output."""
    block = blocks("python")[number]
    output = run(sys.executable, "-c", block)
    expected = re.findall(r"# prints: (.*)", block)
    assert expected, "a block that shows nothing proves nothing"
    for line in expected:
        assert line in output


def test_the_exchange_shown_in_the_readme_is_accurate() -> None:
    """Send the lines with `>`; compare ids and texts with the lines with `<`."""
    (exchange,) = blocks("text")
    sent = [line[2:] for line in exchange.splitlines() if line.startswith("> ")]
    shown = [line[2:] for line in exchange.splitlines() if line.startswith("< ")]
    program = (sys.executable, "-c", SERVE)
    output = run(*program, given="\n".join(sent) + "\n").splitlines()
    for line in shown:
        start = line.partition("…")[0]
        assert [each for each in output if each.startswith(start)], f"{start} is not among {output}"


SERVE = """
import os
os.environ["ELIZA_RLM_BACKEND"] = "offline"
from elizaos_plugin_rlm.server import main
main()
"""
