"""The words the engine speaks. Golden files: a change of prompt is a change of product.

`UPDATE_GOLDEN=1 pytest tests/test_prompts.py` writes them anew; read the diff before you commit it.
"""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm import prompts
from rlm.config import RunConfig
from rlm.context import describe
from rlm.limits import Limits
from rlm.messages import ModelInfo
from rlm.worker.ctx import METHODS, ContextView
from rlm.worker.repl_names import REPL_NAMES

GOLDEN = Path(__file__).parent / "golden" / "prompts"

CONFIG = RunConfig(model="openai/root", sub_model="openai/sub")
DEEP = RunConfig(
    model="openai/root",
    sub_model="openai/sub",
    models=("openai/sub", "groq/other"),
    limits=Limits(max_depth=2),
)
SUB = ModelInfo(window_tokens=128_000)


def system(
    config: RunConfig,
    profile: Any,
    depth: int = 0,
    tools: tuple[str, ...] = (),
    **more: Any,
) -> str:
    root = ModelInfo(profile=profile)
    return prompts.system_prompt(config, root, SUB, depth, tools, **more)


RENDERED: dict[str, Callable[[], str]] = {
    "system_frontier": lambda: system(CONFIG, "frontier"),
    "system_standard_recursive": lambda: system(DEEP, "standard"),
    "system_at_depth_limit": lambda: system(DEEP, "standard", 1),
    "system_small": lambda: system(CONFIG, "small"),
    "system_with_tools": lambda: system(
        CONFIG, "standard", 0, ("`search(q: str) -> str`: find pages",)
    ),
    "system_with_pictures": lambda: system(CONFIG, "standard", pictures=True),
    "first": lambda: prompts.first_message("How many?", describe("a,b\n1,2\n3,4\n"), max_steps=30),
    "first_with_preview_and_tools": lambda: prompts.first_message(
        "How many?", describe("abc"), look=("abc", ""), max_steps=5, protocol="tools"
    ),
    "first_with_both_ends": lambda: prompts.first_message(
        "How many?", describe("a\n" * 500), look=("a\na\na", "a\n"), max_steps=30
    ),
    "answer_now": lambda: prompts.answer_now("How many?", "no steps left (max_steps)"),
    "compact": prompts.compact,
    "compacted": lambda: prompts.compacted(("rows", "total")),
    "map": lambda: prompts.map_prompt("How many?", "some {{text}}", 2, 5),
    "reduce": lambda: prompts.reduce_prompt("How many?", "[1] three\n\n[2] four"),
    "reduce_some": lambda: prompts.reduce_prompt("How many?", "[1] three", "some"),
    "reduce_notes": lambda: prompts.reduce_prompt("How many?", "[1] three", "notes"),
    "direct": lambda: prompts.direct_prompt("How many?", "some text"),
}


@pytest.mark.parametrize("name", RENDERED)
def test_rendered_prompts_match_the_golden_files(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = RENDERED[name]() + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(RENDERED)


def test_values_may_contain_braces() -> None:
    assert "{{text}}" in prompts.map_prompt("q", "some {{text}}", 1, 1)


def test_the_first_request_on_a_gigabyte_is_small() -> None:
    description = "a str of 1,073,741,824 characters in 20,000,000 lines, 53 on average."
    system = prompts.system_prompt(DEEP, ModelInfo(), SUB, 0)
    first = prompts.first_message(
        "What is the access code of the silver dolphin?", description, max_steps=30
    )
    assert len(system.encode()) + len(first.encode()) < 3_500


BEFORE = {
    "system_frontier": 3_381,
    "system_standard_recursive": 3_762,
    "system_at_depth_limit": 3_430,
    "system_small": 1_322,
    "system_with_tools": 3_419,
}
"""Bytes of the prompts of version 0.1, with a quarter less information about `ctx`."""


@pytest.mark.parametrize("name", BEFORE)
def test_prompts_are_shorter_than_before(name: str) -> None:
    share = 1.0 if "small" in name else 0.8
    assert len(RENDERED[name]().encode()) < share * BEFORE[name]


def test_operators_are_explained_only_if_the_repl_has_them() -> None:
    has_them = any(name.name == "classify" for name in REPL_NAMES)
    for profile in ("frontier", "small"):
        text = prompts.system_prompt(CONFIG, ModelInfo(profile=profile), SUB, 0)
        assert ("classify(" in text) is has_them


def test_methods_of_ctx_in_prompts_exist_as_shown() -> None:
    for usage, _ in METHODS:
        name, _, arguments = usage.rstrip(")").partition("(")
        known = inspect.signature(getattr(ContextView, name)).parameters
        for argument in filter(None, arguments.split(", ")):
            word, _, default = argument.partition("=")
            assert word in known
            assert default in ("", repr(known[word].default))


def test_parameters_are_shown_only_if_there_is_a_choice() -> None:
    assert "images" not in system(CONFIG, "standard")
    assert "`llm_query(prompt, model=None" in system(DEEP, "standard")
    assert "model=" not in system(CONFIG, "standard")


def test_names_in_prompts_are_names_in_the_repl() -> None:
    published = {name.name for name in REPL_NAMES}
    assert {*prompts.NAMES_FOR_ALL, *prompts.RECURSIVE_NAMES} <= published


def test_sizes_are_given_in_one_unit() -> None:
    assert prompts.call_chars(ModelInfo()) == 64_000
    assert prompts.call_chars(ModelInfo(window_tokens=8_000)) == 16_000
    assert prompts.call_chars(ModelInfo(window_tokens=1_000_000)) == 400_000


def test_a_custom_system_prompt_is_used_unchanged() -> None:
    config = RunConfig(model="a/b", sub_model="a/b", system_prompt="Do {{this}}.")
    assert prompts.system_prompt(config, ModelInfo(), SUB, 0) == "Do {{this}}."
