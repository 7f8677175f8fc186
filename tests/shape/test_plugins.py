"""The distributions below plugins/ keep the house rules and use public modules of the engine."""

import ast
from pathlib import Path

import pytest

from tests.shape.test_ceilings import catch_complaints, cycles
from tests.shape.test_public_names import complaints
from tests.shape.tree import ONE_PROCESS, PLUGINS, Module, imports_of, load_modules

pytestmark = ONE_PROCESS


def private_imports(module: Module) -> list[str]:
    """Modules of the engine that a plugin has no business with."""
    found = (each.target for each in imports_of(module, {}))
    return [
        f"{module.name} imports {target}, which is private"
        for target in found
        if target.split(".")[0] == "rlm" and "._" in target
    ]


@pytest.mark.parametrize("package", PLUGINS)
def test_plugins_keep_the_rules(package: str) -> None:
    modules = load_modules(PLUGINS[package], package)
    assert len(modules) > 3
    found = cycles(modules)
    for module in modules.values():
        found += [*catch_complaints(module), *complaints(module), *private_imports(module)]
    assert not found, "\n".join(found)


def test_the_import_checker_finds_private_imports() -> None:
    text = "from rlm.cli._asking import answer\ndef f():\n    import rlm.clients._http\n"
    assert len(private_imports(Module("x", Path("x.py"), ast.parse(text)))) == 2
    assert not private_imports(Module("x", Path("x.py"), ast.parse("from rlm.events import Event")))
