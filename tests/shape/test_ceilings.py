"""Sizes that keep the code readable, no import cycles, and no error swallowed far from a border."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.tree import (
    ONE_PROCESS,
    PLUGINS,
    REFERENCE_PATHS,
    ROOT,
    Module,
    imports_of,
    load_modules,
    repository_files,
)

pytestmark = ONE_PROCESS

FILE_LINES = 500
FUNCTION_LINES = 60
TIGHTER = {"src/rlm/engine/loop.py": (200, 40)}
"""Files with ceilings of their own: lines of the file, lines of each of its functions."""

BORDERS: dict[str, tuple[str, ...]] = {
    "cell execution": (
        "recursivelm_dspy.inside:run",
        "rlm.chat.inside:_bound",
        "rlm.chat.inside:_pickled",
        "rlm.chat.inside:import_all",
        "rlm.environments.wasm.guest.stand_ins:submit",
        "rlm.worker.finals:_json_of",
        "rlm.worker.runner:guard",
        "rlm.worker.runner:describe",
    ),
    "plugin call": (
        "recursivelm_dspy.tools:_answered",
        "rlm.clients._adapters:_outcome",
        "rlm.environments._cloud_streams:outcome_of",
        "rlm.environments._calls:_answer_frame",
        "rlm.testing.conformance.runner:_row",
        "rlm.environments.ray.cluster:_serve",
        "rlm.records.recorders.in_process:_call",
        "rlm.records.recorders.telemetry:record",
        "rlm.calls.scope:_send",
        "rlm.compat.repl:_child",
        "rlm.data.places.fetching:_retried",
        "rlm.tools._results:_listed_problems",
        "rlm.tools._mcp.connection:_live",
        "rlm.tools._results:_safe_text",
        "rlm.tools._threads:_outcome",
        "rlm.wiring.plugins:load",
        "rlm.worker.sandbox.preload:try_import",
    ),
    "job in a process with limits": (
        "rlm._util.limited._process:do_job",
        "rlm._util.limited._threads:run",
    ),
    "document": ("rlm.context.documents.formats:convert",),
    "row of a batch": ("rlm.batch.running:_ask",),
    "server request": (
        "rlm.gateway.server:_answer",
        "rlm.testing.fake_server.connection:_serve",
        "rlm.web.border:__call__",
    ),
    "command": ("rlm.cli._errors:_run",),
    "elizaOS": (
        "elizaos_plugin_rlm.client:_answered",
        "elizaos_plugin_rlm.client:generate",
        "elizaos_plugin_rlm.client:unavailable_reason",
        "elizaos_plugin_rlm.engines:run",
        "elizaos_plugin_rlm.server:_answer",
        "elizaos_plugin_rlm.trajectory_log:log_trajectory",
    ),
}
"""Where everything may be caught, because whatever happens there must be recorded, not spread.

An entry is `module` or `module:function`; a package stands for all that is in it.
"""

RAISED_BELOW = ("rlm.engine.loop:run",)
"""Catches everything only to hand it to a function that raises again what is not its business."""

BROAD = {"Exception", "BaseException"}
HANDLER = ast.ExceptHandler
type_of_function = (ast.FunctionDef, ast.AsyncFunctionDef)


# -- sizes ----------------------------------------------------------------------------------------


def size_complaints(path: Path, name: str) -> list[str]:
    text = path.read_text("utf-8")
    file_lines, function_lines = TIGHTER.get(name, (FILE_LINES, FUNCTION_LINES))
    found = []
    if (length := len(text.splitlines())) > file_lines:
        found.append(f"{name} has {length} lines, more than {file_lines}")
    for node in _statements(ast.parse(text)):
        if isinstance(node, type_of_function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > function_lines:
                where = f"{name}:{node.lineno}: {node.name}"
                found.append(f"{where} has {length} lines, more than {function_lines}")
    return found


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a module at any depth; walking its expressions too takes far longer."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            left.extend(getattr(node, block, ()))


def test_no_file_or_function_is_too_large() -> None:
    python = [path for path in repository_files() if path.suffix == ".py"]
    assert len(python) > 10
    found = [
        line for path in python for line in size_complaints(path, path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


def _function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("src/rlm/a.py", "x = 1\n" * 501, "501 lines"),
        ("src/rlm/a.py", _function(61), "f has 61 lines"),
        (
            "src/rlm/a.py",
            "class A:\n    async def f():\n" + "        x = 1\n" * 60,
            "f has 61 lines",
        ),
        ("src/rlm/engine/loop.py", "x = 1\n" * 201, "201 lines"),
        ("src/rlm/engine/loop.py", _function(41), "f has 41 lines"),
    ],
)
def test_the_size_checker_finds_violations(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / "a.py").write_text(text, "utf-8")
    found = size_complaints(tmp_path / "a.py", name)
    assert len(found) == 1
    assert words in found[0]


def test_the_size_checker_accepts_valid_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(_function(60) + "x = 1\n" * 440, "utf-8")
    assert size_complaints(tmp_path / "a.py", "src/rlm/a.py") == []


# -- cycles ---------------------------------------------------------------------------------------


def cycles(modules: dict[str, Module]) -> list[str]:
    """Every module that reaches itself by imports, those in functions and for typing included."""
    graph = {
        name: {each.target for each in imports_of(module, modules)} & modules.keys()
        for name, module in modules.items()
        if name != "rlm"  # the face of the package is lazy, and nothing below may import it
        and name not in REFERENCE_PATHS  # nor these
    }
    return [
        f"{name} imports itself by way of others" for name in graph if name in _reached(graph, name)
    ]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += graph.get(name, ())
    return reached


def packages() -> list[dict[str, Module]]:
    """The engine, its other face and the plugins, each with its modules."""
    plugins = [load_modules(folder, package) for package, folder in PLUGINS.items()]
    assert all(plugins)
    return [load_modules(), load_modules(package="rlm_runtime"), *plugins]


def test_no_import_cycles() -> None:
    found = [line for modules in packages() for line in cycles(modules)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "back", ["import rlm.a", "def f():\n    from rlm.a import x", "from .a import x"]
)
def test_the_cycle_checker_finds_cycles(tmp_path: Path, back: str) -> None:
    (tmp_path / "rlm").mkdir()
    for name, text in {
        "a": "from rlm import b",
        "b": "import rlm.c",
        "c": back,
        "d": "import rlm.a",
    }.items():
        (tmp_path / "rlm" / f"{name}.py").write_text(text, "utf-8")
    assert [line.split()[0] for line in cycles(load_modules(tmp_path))] == [
        "rlm.a",
        "rlm.b",
        "rlm.c",
    ]


# -- broad catches --------------------------------------------------------------------------------


def catch_complaints(module: Module) -> list[str]:
    """Catches of everything that do not raise again, outside the borders."""
    return [
        f"{module.name}:{line}: {function} catches everything; name the errors, or make it a border"
        for line, function in _broad_catches(module.tree, "the module")
        if not _is_border(module.name, function)
    ]


def _is_border(module: str, function: str) -> bool:
    for entry in (*RAISED_BELOW, *(each for entries in BORDERS.values() for each in entries)):
        place, _, only = entry.partition(":")
        if f"{module}.".startswith(f"{place}.") and only in {"", function}:
            return True
    return False


def _broad_catches(node: ast.AST, function: str) -> Iterator[tuple[int, str]]:
    if isinstance(node, type_of_function):
        function = node.name
    if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
        yield node.lineno, function
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        yield from ((node.lineno, function) for argument in node.args if _is_broad(argument))
    for child in ast.iter_child_nodes(node):
        yield from _broad_catches(child, function)


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    if isinstance(caught, ast.Tuple):
        return any(_is_broad(each) for each in caught.elts)
    return ast.unparse(caught).removeprefix("builtins.") in BROAD


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


MAX_SWALLOWED_SHARE = 0.01
LOGGING = {"critical", "error", "exception", "warning"}


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a catch of everything neither raises, nor logs, nor uses the error."""
    if not _is_broad(handler.type):
        return False
    for node in (each for line in handler.body for each in ast.walk(line)):
        is_used = (
            handler.name is not None and isinstance(node, ast.Name) and node.id == handler.name
        )
        is_logged = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LOGGING
        )
        if is_used or is_logged or isinstance(node, ast.Raise):
            return False
    return True


def swallowed_share(trees: list[ast.Module]) -> tuple[int, int]:
    """Return how many handlers swallow any error, and how many handlers there are."""
    handlers = [node for tree in trees for node in ast.walk(tree) if isinstance(node, HANDLER)]
    return sum(map(_swallows, handlers)), len(handlers)


def test_few_handlers_swallow_every_error() -> None:
    trees = [module.tree for each in packages() for module in each.values()]
    swallowed, handlers = swallowed_share(trees)
    assert handlers > 500
    assert swallowed <= MAX_SWALLOWED_SHARE * handlers, f"{swallowed} of {handlers} swallow"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("except Exception:\n    pass", 1),
        ("except:\n    x = 1", 1),
        ("except (OSError, BaseException) as error:\n    return None", 1),
        ("except Exception as error:\n    return str(error)", 0),
        ("except Exception:\n    log.exception('it failed')", 0),
        ("except BaseException:\n    undo()\n    raise", 0),
        ("except OSError:\n    pass", 0),
    ],
)
def test_the_counter_of_swallowed_errors_counts_them(body: str, count: int) -> None:
    assert swallowed_share([ast.parse(f"try:\n    f()\n{body}")]) == (count, 1)


def test_errors_are_caught_narrowly() -> None:
    modules = [module for each in packages() for module in each.values()]
    found = [line for module in modules for line in catch_complaints(module)]
    assert not found, "\n".join(found)


def _module(text: str, name: str = "rlm.sample") -> Module:
    return Module(name, Path("sample.py"), ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept:\n    log()",
        "try:\n    f()\nexcept (OSError, BaseException) as error:\n    log(error)",
        "def f():\n    with contextlib.suppress(Exception):\n        g()",
    ],
)
def test_the_catch_checker_finds_violations(text: str) -> None:
    assert len(catch_complaints(_module(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept OSError:\n    pass",
        "try:\n    f()\nexcept BaseException:\n    undo()\n    raise",
        "with contextlib.suppress(OSError):\n    g()",
    ],
)
def test_the_catch_checker_accepts_valid_code(text: str) -> None:
    assert catch_complaints(_module(text)) == []


def test_a_single_function_may_be_allowed_to_catch_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BORDERS, "plugin call", ("rlm.sample:call",))
    inside = "def call():\n    try:\n        f()\n    except Exception:\n        note()\n"
    assert catch_complaints(_module(inside)) == []
    assert len(catch_complaints(_module(inside.replace("call", "other")))) == 1
    assert len(catch_complaints(_module(inside, "rlm.sampler"))) == 1
