"""A recorded run as a program and as a command line, which people paste into terminals."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm import RLM, ScriptedClient
from rlm.events import RunStarted
from rlm.viewer.recipes import recipes_of, shell_word
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import started

HOSTILE = "x'; rm -rf ~; echo '$(id) `id` \\ \x1b[201~\n\u202e\u200b\x00 -"


def recorded(query: str = "Why?", **facts: Any) -> RunStarted:
    config = {"model": "openai/gpt-5", "sub_model": "openai/gpt-5-mini"}
    config |= facts.pop("config", {})
    return started("r", query=query, settings={"config": config, "environment": "local", **facts})


def test_the_command_and_the_program_repeat_the_query_and_settings() -> None:
    found = recipes_of(recorded(config={"limits": {"max_steps": 5, "max_cost_usd": 0.5}}))
    assert found["why_not_copy"] is None
    assert found["command"] == (
        "rlm ask 'Why?' -f context.txt -m openai/gpt-5 --sub-model openai/gpt-5-mini "
        "--max-steps 5 --budget-usd 0.5"
    )
    python = str(found["python"])
    assert "RLM(\n    'openai/gpt-5',\n    sub_model='openai/gpt-5-mini',\n" in python
    assert "limits={'max_steps': 5, 'max_cost_usd': 0.5}" in python
    assert "rlm.ask(\n    'Why?',\n    context,\n)" in python


async def test_a_real_run_can_be_copied(tmp_path: Path) -> None:
    client = ScriptedClient([cell(["final", "done"])])
    async with RLM(client, environment=PlanEnvironment(), limits={"max_steps": 7}) as rlm:
        result = await rlm.aask("Why\nnot?", "text")
    (event,) = [each for each in result.events if isinstance(each, RunStarted)]
    found = recipes_of(event)
    assert "--max-steps 7" in str(found["command"])
    assert "which only its program has" in str(found["python"])


@pytest.mark.parametrize("place", ["query", "model", "environment", "description"])
def test_a_hostile_record_yields_a_program_that_only_asks(place: str) -> None:
    facts: dict[str, Any] = {}
    if place == "model":
        facts["config"] = {"model": HOSTILE, "setup_code": HOSTILE, "sampling": {HOSTILE: HOSTILE}}
    if place == "environment":
        facts |= {"environment": HOSTILE, "own": [HOSTILE], "tools": [{"name": HOSTILE}]}
    event = recorded(HOSTILE if place == "query" else "q", **facts)
    found = recipes_of(event)
    python, command = str(found["python"]), str(found["command"])
    tree = ast.parse(python)
    assert [type(node).__name__ for node in tree.body] == [
        "ImportFrom", "Assign", "Assign", "Assign", "Expr"
    ]  # fmt: skip
    assert python.replace("\n", "").isprintable()
    assert command.isprintable(), "a terminal acts on nothing in it"


texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"))


@settings(max_examples=60, deadline=None)
@given(texts)
def test_a_shell_reads_back_exactly_the_text(text: str) -> None:
    word = shell_word(text)
    assert word.isprintable()
    script = f"exec {sys.executable} -c 'import json,sys; print(json.dumps(sys.argv[1:]))' {word}"
    told = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert json.loads(told.stdout) == [f" {text}" if text.startswith("-") else text]


RISKY = "'\"\\&|<>^%!\n\u2018\u2019\u201a\u201b\u201c\u201d\u201e"
"""What ends a quoted text, or is an operator, in dash, fish, PowerShell or cmd.exe."""


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from(RISKY + "aZ 9;#$`()-")))
def test_no_shell_sees_anything_but_quoted_text(text: str) -> None:
    word = shell_word(text)
    quoted = re.fullmatch(r"\$?'([^']*)'|[\w@%+=:,./-]+", word, re.ASCII)
    assert quoted is not None, "a quote inside would end the text in a shell without $'…'"
    assert not set(quoted[1] or "") & set(RISKY) - {"\\"}


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize(
    "query", ["a\n'; touch pwned #", "'; touch pwned #", '\\\'"; touch pwned; "']
)
def test_no_part_of_a_query_is_executed_by_a_shell(tmp_path: Path, query: str, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    command = str(recipes_of(recorded(query))["command"])
    subprocess.run([shell, "-c", command], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"config": 1},
        {"config": {"model": 1, "sub_model": 2}},
        {"config": {"model": "m", "sub_model": "s", "limits": {"max_steps": -1}}},
        {"config": {"model": "m", "sub_model": "s", "strategy": "evil"}},
        {"config": {"model": "m", "sub_model": "s"}, "operator": {}},
    ],
)
def test_a_run_without_settings_cannot_be_copied_for_a_stated_reason(
    values: dict[str, Any],
) -> None:
    found = recipes_of(started("r", settings=values))
    assert found["python"] is None
    assert found["command"] is None
    assert found["why_not_copy"]


def test_child_runs_and_very_long_queries_cannot_be_copied() -> None:
    assert "root run" in str(recipes_of(started("c", parent_id="r"))["why_not_copy"])
    assert "too long" in str(recipes_of(recorded("x" * 30_000))["why_not_copy"])
    assert "not reported" in str(recipes_of(None)["why_not_copy"])


@pytest.mark.parametrize("name", ["model", "sub_model"])
@pytest.mark.parametrize("program", ["command/sh -c id", " Command/sh", "command:sh"])
def test_a_record_cannot_make_its_reader_run_a_program(name: str, program: str) -> None:
    found = recipes_of(recorded(config={name: program}))
    assert found["python"] is None
    assert found["command"] is None
    assert "name a model of your own" in str(found["why_not_copy"])


def test_a_record_can_only_name_environments_that_isolate() -> None:
    isolating = recipes_of(recorded(environment="docker"))
    assert "--environment docker" in str(isolating["command"])
    assert "environment='docker'" in str(isolating["python"])
    other = recipes_of(recorded(environment="inprocess"))
    assert "inprocess" not in f"{other['command']} {other['python']}"
