"""The example runs as it is, and the README's blocks do what they say."""

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


def test_the_example_of_the_message_loop() -> None:
    told = run(sys.executable, "examples/message_loop.py")
    assert "Ada:  The ferry to Brest, number 07777, leaves at 01:30." in told
    assert "2 requests" in told


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_a_python_block_of_the_readme(number: int) -> None:
    """Each is a program; what it should print stands behind `# prints:`."""
    block = blocks("python")[number]
    told = run(sys.executable, "-c", block)
    expected = re.findall(r"# prints: (.*)", block)
    assert expected, "a block that shows nothing proves nothing"
    for line in expected:
        assert line in told


def test_the_exchange_of_the_readme() -> None:
    """What is sent (`>`), and the ids and texts of what comes back (`<`)."""
    (exchange,) = blocks("text")
    sent = [line[2:] for line in exchange.splitlines() if line.startswith("> ")]
    shown = [line[2:] for line in exchange.splitlines() if line.startswith("< ")]
    program = (sys.executable, "-c", SERVE)
    told = run(*program, given="\n".join(sent) + "\n").splitlines()
    for line in shown:
        start = line.partition("…")[0]
        assert [each for each in told if each.startswith(start)], f"{start} is not among {told}"


SERVE = """
import os
os.environ["ELIZA_RLM_BACKEND"] = "offline"
from elizaos_plugin_rlm.server import main
main()
"""
