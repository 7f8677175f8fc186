"""Code to ask about: a tree of Python modules that is written for a seed, or one of yours.

What is asked about is also mentioned where it does not count, in comments, docstrings and as a
value that nobody calls: whoever only searches for a name counts too much.
"""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from rlm.bench.dice import Dice
from rlm.bench.words import CODE_VERBS, NOUNS
from rlm.errors import ConfigError

__all__ = ["GivenTree", "Module", "Tree", "WrittenTree", "headed"]

PACKAGES = ("billing", "catalog", "delivery", "ledger", "planning", "reports", "stock", "users")
FUNCTIONS = 5
CLASSES = 2
ERRORS = 24
FAMILY = 25
"""So many modules share one hierarchy of classes, and import nothing of it from elsewhere."""

CALLED = 40
"""One of so many functions is called from everywhere."""

MODULE_CHARS = 2_600
LARGEST_FILE = 1_000_000


class Module(NamedTuple):
    """A file of a tree: its path, as it is told, and its text."""

    path: str
    source: str


class Tree(Protocol):
    """Modules by their number; asked for twice, they are the same."""

    def __len__(self) -> int: ...

    def module(self, number: int) -> Module: ...


def headed(module: Module) -> str:
    """A module as it stands in a context."""
    return f"=== {module.path} ===\n{module.source}\n"


class WrittenTree:
    """Modules that are written from numbers, each by itself; as many as fit into `chars`."""

    def __init__(self, key: tuple[str | int, ...], chars: int) -> None:
        self._key = key
        self._about = max(1, chars // MODULE_CHARS)
        self._count = 0
        room = chars
        while (room := room - len(headed(self.module(self._count)))) >= 0:
            self._count += 1
        self._count = max(1, self._count)

    def __len__(self) -> int:
        return self._count

    def module(self, number: int) -> Module:
        dice = Dice(*self._key, number)
        package = PACKAGES[number // FAMILY % len(PACKAGES)]
        path = f"{package}/{NOUNS[number % len(NOUNS)]}_{number}.py"
        parts = [f'"""{package.title()}: module {number}."""\n']
        parts += [self._class(dice, number, which) for which in range(CLASSES)]
        parts += [self._function(dice, number, which) for which in range(FUNCTIONS)]
        return Module(path, "\n\n".join(parts))

    def _class(self, dice: Dice, number: int, which: int) -> str:
        own = number * CLASSES + which
        first = number // FAMILY * FAMILY * CLASSES
        is_root = own == first or not dice.below(5)
        base = "" if is_root else f"({_class_name(first + dice.below(own - first))})"
        aside = _class_name(first + dice.below(own - first + 1))
        return (
            f"class {_class_name(own)}{base}:\n"
            f'    """Used beside {aside}."""\n\n'
            f"    limit = {dice.between(2, 99)}\n\n"
            f"    def apply(self, item):\n"
            f"        return {self._called(dice)}(item, self.limit)\n"
        )

    def _function(self, dice: Dice, number: int, which: int) -> str:
        name = _function_name(number * FUNCTIONS + which)
        raised, caught, told = (_error_name(dice.below(ERRORS)) for _ in range(3))
        one, two, three = (self._called(dice) for _ in range(3))
        lines = [
            f"def {name}(item, limit=0):",
            f'    """See also {self._called(dice)}; {told} is not for here."""',
            f"    if limit > {dice.between(2, 99)}:",
            f"        raise {raised}(limit)" if dice.below(2) else f"        return {one}(item)",
            "    try:",
            f"        found = {two}(item, {dice.between(1, 9)})",
            f"    except {caught}:",
            f"        found = None  # {self._called(dice)} would not do",
            f"    handlers = [{self._called(dice)}, {three}]",
            f"    return [{one}(found), handlers]" if dice.below(3) else "    return handlers",
        ]
        return "\n".join(lines) + "\n"

    def _called(self, dice: Dice) -> str:
        functions = self._about * FUNCTIONS
        return _function_name(dice.below(max(12, functions // CALLED)))


def _function_name(number: int) -> str:
    more, place = divmod(number, len(CODE_VERBS) * len(NOUNS))
    noun, verb = divmod(place, len(CODE_VERBS))
    return f"{CODE_VERBS[verb]}_{NOUNS[noun]}" + (f"_{more}" if more else "")


def _class_name(number: int) -> str:
    more, place = divmod(number, len(NOUNS) * len(PACKAGES))
    noun, package = divmod(place, len(PACKAGES))
    return f"{PACKAGES[package].title()}{NOUNS[noun].title()}" + (f"{more}" if more else "")


def _error_name(number: int) -> str:
    return f"{NOUNS[number].title()}Error"


class GivenTree:
    """The Python files of a folder, in the order of their paths; as many as fit into `chars`."""

    def __init__(self, folder: Path, chars: int) -> None:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}")
        self._folder = folder
        self._paths: list[Path] = []
        room = chars
        for path, text in _python_files(folder):
            room -= len(headed(Module(path.as_posix(), text)))
            if room < 0:
                break
            self._paths.append(path)
        if not self._paths:
            raise ConfigError(f"no Python file of {folder} fits into {chars:,} characters")

    def __len__(self) -> int:
        return len(self._paths)

    def module(self, number: int) -> Module:
        path = self._paths[number]
        return Module(path.as_posix(), (self._folder / path).read_text("utf-8"))

    @cached_property
    def digest(self) -> str:
        """Changes with whatever is in the files."""
        whole = hashlib.sha256()
        for number in range(len(self)):
            whole.update(headed(self.module(number)).encode())
        return whole.hexdigest()[:16]


def _python_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Readable ones, below the folder, that are ASCII and not enormous."""
    for path in sorted(folder.rglob("*.py")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.is_symlink() or path.stat().st_size > LARGEST_FILE:
            continue
        try:
            text = path.read_text("ascii")
        except ValueError:
            continue
        yield path.relative_to(folder), text
