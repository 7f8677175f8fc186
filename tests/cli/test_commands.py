"""The command itself: version, help, completion, and which modules they load."""

import json
import subprocess
import sys
from functools import cache

import pytest

import rlm as package
from tests.cli.running import environment, rlm

HEAVY = {"aiohttp", "asyncio", "rich", "sqlite3"}


def test_version() -> None:
    done = rlm("--version")
    assert (done.returncode, done.stdout) == (0, f"rlm, version {package.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help(arguments: list[str]) -> None:
    done = rlm(*arguments)
    assert done.returncode == 0
    assert 'rlm ask "Which deadlines are named?" -f contract.txt' in done.stdout
    assert [name for name in ("ask", "completion", "doctor") if f"\n  {name} " in done.stdout] == [
        "ask",
        "completion",
        "doctor",
    ]


@pytest.mark.parametrize("arguments", [[], ["bench"], ["env"], ["mcp"], ["provenance"]])
def test_the_list_of_commands_shows_whole_sentences(arguments: list[str]) -> None:
    help_text = rlm(*arguments, "--help", COLUMNS="80").stdout
    listed = help_text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert listed
    assert [line for line in listed.splitlines() if not line.endswith(".")] == []
    assert "..." not in listed


def loaded_by(*arguments: str) -> set[str]:
    code = (
        "import json, sys\nfrom rlm.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment({}),
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


KEEPING = ("export", "fork", "replay", "resume", "rm", "runs", "show")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["--version"], ["ask", "--help"], ["bench", "run", "--help"]),
        *([each, "--help"] for each in KEEPING),
    ],
)
def test_help_loads_no_heavy_modules(arguments: list[str]) -> None:
    assert loaded_by(*arguments) & HEAVY == set()


@cache
def overview() -> str:
    return rlm().stdout


@pytest.mark.parametrize("name", KEEPING)
def test_help_has_an_example_and_explains_how_to_name_a_run(name: str) -> None:
    told = " ".join(rlm(name, "--help").stdout.split())
    assert "Examples: rlm" in told
    assert "the word last" in told
    (line,) = [each for each in overview().splitlines() if each.startswith(f"  {name} ")]
    assert line.endswith(".")
    assert not line.endswith("...")


def test_rich_is_not_loaded_without_a_terminal() -> None:
    loaded = loaded_by("ask", "?", "-m", "offline/extractive", "--strategy", "direct")
    assert "rlm.api" in loaded
    assert loaded & {"rich", "aiohttp"} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    done = rlm("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_RLM_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("rlm as", "plain,ask"),
        ("rlm ask --budg", "plain,--budget-usd"),
        ("rlm ask -m gro", "plain,groq/"),
        ("rlm ask -f x", "file,x"),
        ("rlm completion fi", "plain,fish"),
    ],
)
def test_completion_proposes_commands_and_options(words: str, proposed: str) -> None:
    count = str(len(words.split()) - 1)
    done = rlm(_RLM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
    assert done.stdout.splitlines() == [proposed]
