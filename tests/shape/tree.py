"""The repository as the shape tests see it: its files, and the imports of its modules."""

import ast
import fnmatch
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PLUGINS = {
    "elizaos_plugin_rlm": ROOT / "plugins" / "plugin-rlm",
    "llm_rlm": ROOT / "plugins" / "llm-rlm",
    "recursivelm_acp": ROOT / "plugins" / "recursivelm-acp",
    "recursivelm_dspy": ROOT / "plugins" / "recursivelm-dspy",
    "recursivelm_harbor": ROOT / "plugins" / "recursivelm-harbor",
    "recursivelm_inspect": ROOT / "plugins" / "recursivelm-inspect",
    "recursivelm_pydantic_ai": ROOT / "plugins" / "recursivelm-pydantic-ai",
    "recursivelm_verifiers": ROOT / "plugins" / "recursivelm-verifiers",
}
"""Packages beside the engine, and the folders that hold them."""


REFERENCE_PATHS = frozenset(
    {
        *("rlm.clients.azure_openai", "rlm.clients.base_lm", "rlm.clients.openai"),
        *("rlm.clients.portkey", "rlm.core", "rlm.core.comms_utils", "rlm.core.lm_handler"),
        *("rlm.core.rlm", "rlm.core.types", "rlm.environments.base_env"),
        *("rlm.environments.daytona_repl", "rlm.environments.docker_repl"),
        *("rlm.environments.e2b_repl", "rlm.environments.ipython_repl"),
        *("rlm.environments.local_repl", "rlm.environments.modal_repl"),
        *("rlm.environments.prime_repl", "rlm.logger.rlm_logger", "rlm.logger.verbose"),
        *("rlm.utils", "rlm.utils.exceptions", "rlm.utils.parsing", "rlm.utils.prompts"),
        *("rlm.utils.rlm_utils", "rlm.utils.token_utils"),
    }
)
"""Modules at the import paths of the reference engine: they only pass on names of ours."""


@cache
def repository_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Every file that is tracked by git or would be added to it."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = (
            subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        )
        files = {root / name for name in listed if name}
    except (FileNotFoundError, subprocess.CalledProcessError):
        files = set(_walk(root, _ignored_names(root)))
    return tuple(sorted(file for file in files if file.is_file()))


def _ignored_names(root: Path) -> list[str]:
    """Without git: the plain patterns of .gitignore, which is all that it holds."""
    lines = (
        (root / ".gitignore").read_text("utf-8").split() if (root / ".gitignore").exists() else []
    )
    return [".git", *(line.strip("/") for line in lines)]


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if any(fnmatch.fnmatch(entry.name, pattern) for pattern in ignored):
            continue
        if entry.is_dir():
            yield from _walk(entry, ignored)
        else:
            yield entry


class Import(NamedTuple):
    """One name brought in by one statement. `target` is the most specific module that is meant."""

    target: str
    line: int
    typing_only: bool
    at_top: bool


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


ONE_PROCESS = pytest.mark.xdist_group("modules")
"""For tests that look at every module: reading them all takes seconds, once in each process."""


@cache
def load_modules(source: Path = SOURCE, package: str = "rlm") -> dict[str, Module]:
    """Every module of the package below `source`, by its dotted name."""
    modules = {}
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text("utf-8"), str(path)))
    return modules


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a module; several checks look at all of them."""
    return tuple(ast.walk(tree))


def imports_of(module: Module, known: dict[str, Module]) -> list[Import]:
    """All imports of a module: at the top, in functions, for typing only, and by constant name."""
    return [
        Import(target, getattr(node, "lineno", 0), typing_only, at_top)
        for node, typing_only, at_top in _importing(module.tree)
        for target in _targets(node, module, known)
    ]


@cache
def _importing(tree: ast.Module) -> tuple[tuple[ast.AST, bool, bool], ...]:
    """The nodes that may import, in order; for each, whether for typing only and at the top."""
    found: list[tuple[ast.AST, bool, bool]] = []
    left: list[tuple[ast.AST, bool, bool]] = [(tree, False, True)]
    while left:
        node, typing_only, at_top = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            found.append((node, typing_only, at_top))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            at_top = False
        guarded: list[ast.stmt] = []
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            guarded = node.body
        children = [
            (child, typing_only or child in guarded, at_top) for child in ast.iter_child_nodes(node)
        ]
        left.extend(reversed(children))
    return tuple(found)


def _targets(node: ast.AST, module: Module, known: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, module)
        for alias in node.names:
            deeper = f"{base}.{alias.name}"
            yield deeper if deeper in known else base
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        first = node.args[0] if node.args else None
        if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
            yield str(first.value)


def _base(node: ast.ImportFrom, module: Module) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    start = package[: len(package) - node.level + 1]
    return ".".join([*start, *([node.module] if node.module else [])])
