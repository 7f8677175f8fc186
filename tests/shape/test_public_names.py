"""What is promised: every public module lists its names, and `import rlm` stays light."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import rlm
from tests.shape.tree import ONE_PROCESS, Module, load_modules

pytestmark = ONE_PROCESS

RLM_NAMES = [
    "AgentContext",
    "AgentRLM",
    "BudgetExceededError",
    "CallRefused",
    "CancellationError",
    "Chat",
    "Completion",
    "ConfigError",
    "ErrorThresholdExceededError",
    "FetchLimits",
    "Guards",
    "LimitExceededError",
    "Limits",
    "ModelError",
    "NoAnswerError",
    "Price",
    "RLM",
    "RLMEnforcementError",
    "RLMError",
    "RLMLogger",
    "RateLimit",
    "ReplyCache",
    "RunResult",
    "ScriptedClient",
    "SessionError",
    "TimeoutExceededError",
    "TokenLimitExceededError",
    "acompletion",
    "completion",
    "create_enforced_agent",
    "database",
    "files",
    "place",
    "table",
    "tables",
]
"""The names of the package itself. Adding one is a promise; removing one breaks programs."""

HEAVY = ("aiohttp", "asyncio", "click", "pydantic", "rich", "sqlite3", "starlette", "uvicorn")
"""What `import rlm` must not load."""


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def ruff_order(name: str) -> tuple[int, list[str | int]]:
    """The order that ruff's RUF022 keeps: CONSTANTS, then Classes, then functions; 2 before 10."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def declared_names(module: Module) -> list[str] | None:
    """The literal value of `__all__`, or None if there is no such literal."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                return [str(name) for name in ast.literal_eval(node.value)]
    return None


def complaints(module: Module) -> list[str]:
    """What is wrong with the `__all__` of a public module, names that do not exist aside."""
    names = declared_names(module)
    if names is None:
        return [f"{module.name} has no __all__"]
    found = [
        f"{module.name}.__all__ lists a private name: {n}"
        for n in names
        if n.startswith("_") and n != "__version__"
    ]
    if names not in (sorted(set(names)), sorted(set(names), key=ruff_order)):
        found.append(f"{module.name}.__all__ is not sorted, or names something twice")
    return found


SHIPPED = {**load_modules(), **load_modules(package="rlm_runtime")}
PUBLIC = {name: module for name, module in SHIPPED.items() if is_public(name)}


@pytest.mark.parametrize("name", PUBLIC)
def test_names_are_listed_sorted_and_exist(name: str) -> None:
    assert complaints(PUBLIC[name]) == []
    loaded = importlib.import_module(name)
    assert [each for each in loaded.__all__ if not hasattr(loaded, each)] == []


def test_the_names_of_the_package_are_pinned() -> None:
    assert importlib.import_module("rlm").__all__ == RLM_NAMES


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after one statement."""
    code = f"import sys\n{statement}\nimport json\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_rlm_loads_no_heavy_modules() -> None:
    assert loaded_by("import rlm").isdisjoint(HEAVY)


def test_what_few_programs_use_is_imported_later() -> None:
    later = {
        "rlm.chat",
        "rlm.compat.types",
        "rlm.compat.verbose",
        "rlm.logger",
        "rlm.wiring.runner",
    }
    assert loaded_by("from rlm import RLM").isdisjoint(later)


def public_functions() -> dict[str, Any]:
    """The functions and classes of the package, with the public methods and properties of these."""
    found: dict[str, Any] = {}
    for name in RLM_NAMES:
        found[name] = value = getattr(rlm, name)
        for method in dir(value) if inspect.isclass(value) else ():
            member = inspect.getattr_static(value, method)
            member = member.fget if isinstance(member, property) else member
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member) and (is_public(method) or method == "__init__"):
                found[f"{name}.{method}"] = member
    return found


PUBLIC_FUNCTIONS = public_functions()


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_annotations_can_be_evaluated(name: str) -> None:
    value = PUBLIC_FUNCTIONS[name]
    typing.get_type_hints(value)
    if not (inspect.isclass(value) and issubclass(value, Exception)):  # Python has none for some
        inspect.signature(value, eval_str=True)


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert not loaded_by("import asyncio.events").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "has no __all__"),
        ("__all__ = ['b', 'a']", "not sorted"),
        ("__all__ = ['a', 'B']", "not sorted"),
        ("__all__ = ['a', 'a']", "twice"),
        ("__all__: list[str] = ['_a']", "private"),
    ],
)
def test_the_checker_finds_violations(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "rlm").mkdir()
    (tmp_path / "rlm" / "sample.py").write_text(text, "utf-8")
    found = complaints(load_modules(tmp_path)["rlm.sample"])
    assert len(found) == 1
    assert words in found[0]


def test_the_checker_accepts_a_valid_module(tmp_path: Path) -> None:
    (tmp_path / "rlm").mkdir()
    text = "__all__ = ['RLM', 'Budget', 'RLMError', '__version__', 'f2', 'f10']"
    (tmp_path / "rlm" / "sample.py").write_text(text, "utf-8")
    assert complaints(load_modules(tmp_path)["rlm.sample"]) == []


def test_modules_with_an_underscore_are_private() -> None:
    assert is_public("rlm.clients.openai")
    assert not is_public("rlm.clients._http")
    assert not is_public("rlm.__main__")
