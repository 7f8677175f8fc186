"""Import directions: a unit may import from lower layers, never from its own or from above."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.shape.tree import (
    ONE_PROCESS,
    REFERENCE_PATHS,
    SOURCE,
    Import,
    Module,
    imports_of,
    load_modules,
)

pytestmark = ONE_PROCESS

LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__", "core", "utils"),
    ("cli",),
    ("bench", "server"),
    ("agent", "batch", "gateway", "operators", "replay", "viewer"),
    ("api",),
    ("compat",),
    ("settings",),
    ("wiring",),
    ("chat",),
    ("records", "testing"),
    ("engine",),
    ("calls", "clients", "context", "environments", "tools"),
    ("data", "logger", "models", "portal", "prompts", "web"),
    ("protocols",),
    ("config", "results"),
    ("events", "limits"),
    ("citations", "messages"),
    ("images",),
    ("errors", "_util"),
)
"""Top first. A unit is a module or a package directly below `rlm`.

`rlm.worker` is in no layer: every unit may import it, and it imports only the standard library.
`rlm` itself (its __init__) may import anything, lazily; only `cli` may import from it.
`REFERENCE_PATHS` are above all layers; only the package that one is in may name it, lazily.
"""

WORKER = "worker"
WORKER_PYTHON = (3, 9)
STANDARD = {*sys.stdlib_module_names, "__main__"}
HEIGHT = {unit: -layer for layer, units in enumerate(LAYERS) for unit in units}


def unit_of(module: str) -> str:
    """`rlm.clients.gguf` belongs to `clients`; `rlm` itself to the unit with the empty name."""
    return module.split(".")[1] if "." in module else ""


def complaints(modules: dict[str, Module]) -> list[str]:
    found = []
    for module in modules.values():
        unit = unit_of(module.name)
        if module.name in REFERENCE_PATHS:
            found += _path_complaints(module)
        elif unit == WORKER:
            found += _worker_complaints(module, modules)
        elif unit and unit not in HEIGHT:
            found.append(
                f"{module.name} is in no layer: add {unit!r} to LAYERS in {Path(__file__).name}"
            )
        else:
            for each in imports_of(module, modules):
                if (each.target + ".").startswith("rlm.") and (
                    reason := _path_reason(module, each) or _reason(unit, each)
                ):
                    found.append(
                        f"{module.path.name}:{each.line}: {module.name} {reason} {each.target}"
                    )
    return found


def _path_complaints(module: Module) -> list[str]:
    """A path of the reference passes on names, and does nothing else."""
    allowed = ast.Expr | ast.ImportFrom | ast.Assign | ast.AnnAssign
    others = [node for node in module.tree.body if not isinstance(node, allowed)]
    return [f"{module.path.name}:{node.lineno}: {module.name} may only import" for node in others]


def _path_reason(module: Module, each: Import) -> str | None:
    """Why a module may not name a path of the reference; its own package may, for type checkers."""
    if each.target not in REFERENCE_PATHS:
        return None
    is_face = module.is_package and each.target.startswith(f"{module.name}.")
    return None if is_face and each.typing_only else "may not import the reference's path"


def _reason(unit: str, each: Import) -> str | None:
    """Why this unit may not have this import, or None if it may."""
    target = unit_of(each.target)
    if unit == "":
        return (
            "must import lazily, in a function:" if each.at_top and not each.typing_only else None
        )
    if target == "":
        return None if unit == "cli" else "imports the face of the package, which is above:"
    if target in {unit, WORKER} or target not in HEIGHT or each.target in REFERENCE_PATHS:
        return None  # a target in no layer has its own complaint
    return None if HEIGHT[target] < HEIGHT[unit] else "may not look up or sideways to"


def _worker_complaints(module: Module, modules: dict[str, Module]) -> list[str]:
    """The worker is copied into sandboxes: its imports are standard, or relative to itself."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            relative = isinstance(node, ast.ImportFrom) and node.level > 0
            names = [each.target for each in imports_of(module._replace(tree=_only(node)), modules)]
            for name in names:
                inside = relative and f"{name}.".startswith(f"rlm.{WORKER}.")
                if not inside and name.partition(".")[0] not in STANDARD:
                    found.append(
                        f"{module.path.name}:{node.lineno}: the worker may not import {name}"
                    )
        if isinstance(node, ast.Call) and _checks_a_union(node):
            found.append(f"{module.path.name}:{node.lineno}: `isinstance(x, a | b)` is Python 3.10")
    try:
        ast.parse(module.path.read_text("utf-8"), feature_version=WORKER_PYTHON)
    except SyntaxError as error:
        found.append(f"{module.path.name}: not Python {WORKER_PYTHON}: {error}")
    return found


def _checks_a_union(call: ast.Call) -> bool:
    is_check = ast.unparse(call.func) in {"isinstance", "issubclass"}
    return is_check and isinstance(call.args[1], ast.BinOp)


def _only(node: ast.stmt) -> ast.Module:
    return ast.Module(body=[node], type_ignores=[])


def test_imports_point_to_lower_layers() -> None:
    found = complaints(load_modules())
    assert not found, "\n".join(found)


def test_the_map_names_every_unit_in_the_order_of_layers() -> None:
    page = (SOURCE.parent / "AGENTS.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| (`[^|]*`) \|", page.split("## Map", 1)[1].split("\n## ", 1)[0])
    named = [
        name.removesuffix("/").removesuffix(".py") for row in rows for name in row.split("`")[1::2]
    ]
    layers = [unit for units in LAYERS for unit in units if unit != "__main__"]
    assert named == [*layers, WORKER]


RUNTIME_MAY = {
    *("rlm.api", "rlm.calls.cache", "rlm.clients", "rlm.config", "rlm.errors", "rlm.events"),
    *("rlm.limits", "rlm.messages", "rlm.portal", "rlm.testing", "rlm.wiring", "rlm.worker"),
}
"""What the face `rlm_runtime` is made of; the loop and its parts are not its business."""


def test_rlm_runtime_imports_the_engine_and_nothing_imports_rlm_runtime() -> None:
    modules = {**load_modules(), **load_modules(package="rlm_runtime")}
    wrong = []
    for module in modules.values():
        for target in (each.target for each in imports_of(module, modules)):
            if module.name.startswith("rlm_runtime"):
                allowed = "._" not in target and any(
                    f"{target}.".startswith(f"{each}.") for each in RUNTIME_MAY
                )
                if target.startswith("rlm.") and not allowed:
                    wrong.append(f"{module.name} may not import {target}")
            elif target.startswith("rlm_runtime"):
                wrong.append(f"{module.name} may not import the face {target}")
    assert not wrong, "\n".join(wrong)


def _sample(folder: Path, files: dict[str, str]) -> dict[str, Module]:
    for name, text in {"rlm/__init__.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return load_modules(folder)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"rlm/errors.py": "import rlm.messages"}, "up or sideways"),
        ({"rlm/errors.py": "from rlm import messages", "rlm/messages.py": ""}, "up or sideways"),
        ({"rlm/errors.py": "from .messages import x"}, "up or sideways"),
        ({"rlm/calls/a.py": "from rlm.engine.loop import x"}, "up or sideways"),
        ({"rlm/errors.py": "def f():\n    import rlm.api"}, "up or sideways"),
        (
            {"rlm/errors.py": "import importlib\nimportlib.import_module('rlm.api')"},
            "up or sideways",
        ),
        ({"rlm/errors.py": "if TYPE_CHECKING:\n    from rlm.api import RLM"}, "up or sideways"),
        ({"rlm/clients/a.py": "from ..environments import b"}, "up or sideways"),
        ({"rlm/api.py": "from rlm import RLM"}, "face of the package"),
        ({"rlm/novel.py": ""}, "add 'novel' to LAYERS"),
        ({"rlm/api.py": "from rlm.core.types import x"}, "the reference's path"),
        ({"rlm/clients/a.py": "from rlm.clients.base_lm import x"}, "the reference's path"),
        ({"rlm/core/types.py": "def f():\n    pass"}, "may only import"),
        ({"rlm/__init__.py": "from rlm.errors import RLMError"}, "lazily"),
        ({"rlm/worker/main.py": "import aiohttp"}, "may not import aiohttp"),
        (
            {"rlm/worker/main.py": "def f():\n    from rlm.errors import x"},
            "may not import rlm.errors",
        ),
        ({"rlm/worker/main.py": "from ..errors import x"}, "may not import rlm.errors"),
        ({"rlm/worker/main.py": "import rlm.worker.frames"}, "may not import rlm.worker.frames"),
        ({"rlm/worker/main.py": "match 1:\n    case 1:\n        pass"}, "not Python"),
        ({"rlm/worker/main.py": "isinstance(1, int | str)"}, "is Python 3.10"),
    ],
)
def test_the_checker_finds_violations(tmp_path: Path, files: dict[str, str], words: str) -> None:
    found = complaints(_sample(tmp_path, files))
    assert len(found) == 1, found
    assert words in found[0]


def test_the_checker_accepts_valid_imports(tmp_path: Path) -> None:
    files = {
        "rlm/__init__.py": "if TYPE_CHECKING:\n    import rlm.api\ndef f():\n    import rlm.api",
        "rlm/api.py": "from rlm.engine.loop import run\nimport rlm.worker.frames\nimport aiohttp",
        "rlm/clients/__init__.py": "",
        "rlm/clients/a.py": "from rlm.clients import b\nfrom . import b\nfrom .b import c",
        "rlm/clients/b.py": "from rlm.errors import RLMError",
        "rlm/worker/main.py": "import os.path\nfrom . import frames\nfrom .frames import x",
        "rlm/worker/frames.py": "import struct",
    }
    assert complaints(_sample(tmp_path, files)) == []
