"""Questions about a generated or a given source tree."""

import ast
import hashlib
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from rlm.bench import scoring
from rlm.bench.plan import LARGEST, size_chars
from rlm.bench.random_text import CODE_VERBS, NOUNS, Dice
from rlm.bench.task import Sample, Task
from rlm.errors import ConfigError

__all__ = [
    "CodeQA",
    "Facts",
    "GivenTree",
    "Module",
    "Tree",
    "WrittenTree",
    "calls_of",
    "facts_of",
    "headed",
]

PACKAGES = ("billing", "catalog", "delivery", "ledger", "planning", "reports", "stock", "users")
FUNCTIONS = 5
CLASSES = 2
ERRORS = 24
FAMILY = 25
"""The number of modules that share one class hierarchy."""

CALLED = 40
"""One function in this many is called from everywhere."""

MODULE_CHARS = 2_600
LARGEST_FILE = 1_000_000


class Module(NamedTuple):
    """A file of a tree: its path and its text."""

    path: str
    source: str


class Tree(Protocol):
    """Modules by number; the same number always gives the same module."""

    def __len__(self) -> int: ...

    def module(self, number: int) -> Module: ...


def headed(module: Module) -> str:
    """Return a module as it appears in a context."""
    return f"=== {module.path} ===\n{module.source}\n"


class WrittenTree:
    """Modules generated from numbers, as many as fit into `chars`."""

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
        raised, caught, mentioned = (_error_name(dice.below(ERRORS)) for _ in range(3))
        one, two, three = (self._called(dice) for _ in range(3))
        lines = [
            f"def {name}(item, limit=0):",
            f'    """See also {self._called(dice)}; {mentioned} is not for here."""',
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
    """The Python files of a folder, in the order of their paths, as many as fit into `chars`."""

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
            raise ConfigError(f"no Python file in {folder} fits into {chars:,} characters")

    def __len__(self) -> int:
        return len(self._paths)

    def module(self, number: int) -> Module:
        path = self._paths[number]
        return Module(path.as_posix(), (self._folder / path).read_text("utf-8"))

    @cached_property
    def digest(self) -> str:
        """Return a hash of the contents of the files."""
        whole = hashlib.sha256()
        for number in range(len(self)):
            whole.update(headed(self.module(number)).encode())
        return whole.hexdigest()[:16]


def _python_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Return readable Python files below the folder that are ASCII and not enormous."""
    for path in sorted(folder.rglob("*.py")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.is_symlink() or path.stat().st_size > LARGEST_FILE:
            continue
        try:
            text = path.read_text("ascii")
        except ValueError:
            continue
        yield path.relative_to(folder), text


_parsing = threading.Lock()
"""`catch_warnings` is for one thread at a time, and samples are made in several."""


@dataclass
class Facts:
    """Facts about some modules of a tree."""

    functions: dict[str, set[str]] = field(default_factory=dict)
    """`path:name` of a function → the exceptions that its own statements raise."""

    mentions: dict[str, str] = field(default_factory=dict)
    """`path:name` of a function → its lines, for what it only mentions."""

    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    called: Counter[str] = field(default_factory=Counter)
    doubled: set[str] = field(default_factory=set)

    def ancestors(self, name: str) -> set[str] | None:
        """Return all base classes, transitively; None if one of them is unknown."""
        found: set[str] = set()
        ahead = list(self.classes[name])
        while ahead:
            base = ahead.pop()
            if base not in self.classes or base in self.doubled:
                return None
            if base not in found:
                found.add(base)
                ahead += self.classes[base]
        return found


def facts_of(modules: Iterable[Module]) -> Facts:
    """Parse these modules; skip what is not valid Python."""
    facts = Facts()
    for module in modules:
        if (tree := _parsed(module.source)) is not None:
            _add_functions(facts, module, tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    _add_class(facts, node)
                elif isinstance(node, ast.Call) and (name := _name_of(node.func)):
                    facts.called[name] += 1
    return facts


def calls_of(tree: Tree, name: str) -> int:
    """Count calls in the whole tree to something of this name.

    Modules that do not contain the name are not parsed, which makes this quick.
    """
    count = 0
    for number in range(len(tree)):
        source = tree.module(number).source
        parsed = _parsed(source) if name in source else None
        if parsed is not None:
            count += sum(
                isinstance(node, ast.Call) and _name_of(node.func) == name
                for node in ast.walk(parsed)
            )
    return count


def _add_functions(facts: Facts, module: Module, tree: ast.Module) -> None:
    lines = module.source.split("\n")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            label = f"{module.path}:{node.name}"
            facts.functions[label] = set(_raised(node))
            facts.mentions[label] = "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _raised(node: ast.AST) -> Iterable[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            raised = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            if name := _name_of(raised):
                yield name


def _add_class(facts: Facts, node: ast.ClassDef) -> None:
    bases = tuple(_name_of(base) or "?" for base in node.bases)
    if node.name in facts.classes:
        facts.doubled.add(node.name)
    facts.classes[node.name] = bases


def _name_of(node: ast.expr) -> str:
    """Return `f` for `f` and for `x.f`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _parsed(source: str) -> ast.Module | None:
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in other people's code
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


WINDOW = 75
"""The number of consecutive modules searched for something to ask about."""

PARSES_IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)
"""Before, two threads that parse at once fail with a SystemError (CPython's issue 106905)."""

LETTERS = "ABCD"
Question = tuple[str, str, Sequence[str]]
"""The question, the right answer, and three wrong ones."""


class CodeQA(Task):
    """Understand code that is too long to read. `tree`: a folder to ask about."""

    name = "codeqa"
    about = "call counts, who raises what, class hierarchies of a tree of Python code"
    scoring = "exact match, four choices"
    smallest = 4_000
    in_threads = PARSES_IN_THREADS
    variants: ClassVar[tuple[str, ...]] = ("calls", "raises", "hierarchy")

    def __init__(self, variant: str = "calls", tree: str | None = None) -> None:
        super().__init__(variant)
        self._folder = None if tree is None else Path(tree)
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigError(f"codeqa: there is no folder {self._folder}")

    def generate(self, seed: int, size: int) -> Sample:
        dice = Dice(self.name, self.variant, self.version, seed, size)
        tree = self._tree(seed, size)
        facts = facts_of(_window(dice, tree))
        try:
            asked, right, wrong = _QUESTIONS[self.variant](dice, tree, facts)
        except IndexError as error:  # nothing, or fewer than four, to choose among
            raise ConfigError(
                f"the code is too small to ask about for codeqa/{self.variant}; use a larger "
                "size, or another tree"
            ) from error
        options = [right, *wrong]
        dice.shuffle(options)
        listed = "\n".join(
            f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=True)
        )
        query = (
            f"The context holds the files of a Python project; each begins with its path, as "
            f"=== path ===. {asked}\n{listed}\nAnswer with the letter only."
        )
        gold = {"value": LETTERS[options.index(right)], "options": options}
        return Sample(query, lambda: _pieces(tree), gold, {"modules": len(tree), "right": right})

    def score(self, answer: str, gold: Any) -> float:
        return scoring.letter(answer, gold["value"], gold["options"])

    def reference(self, gold: Any) -> str:
        return str(gold["value"])

    def identity(self) -> str:
        if self._folder is None:
            return super().identity()
        return f"{self.version}-{GivenTree(self._folder, size_chars(LARGEST)).digest}"

    def _tree(self, seed: int, size: int) -> Tree:
        if self._folder is None:
            key = (self.name, self.variant, self.version, seed, size, "tree")
            return WrittenTree(key, size_chars(size))
        return GivenTree(self._folder, size_chars(size))


def _pieces(tree: Tree) -> Iterator[str]:
    return (headed(tree.module(number)) for number in range(len(tree)))


def _window(dice: Dice, tree: Tree) -> Iterator[Any]:
    first = dice.below(max(1, len(tree) - WINDOW + 1))
    return (tree.module(number) for number in range(first, min(len(tree), first + WINDOW)))


def _calls(dice: Dice, tree: Tree, facts: Facts) -> Question:
    """Ask for the number of calls; one wrong choice counts occurrences of the name's text."""
    own = {label.rpartition(":")[2] for label in facts.functions}
    called = sorted(name for name in facts.called if name in own) or sorted(facts.called)
    name = dice.pick(called)
    right = calls_of(tree, name)
    texts = sum(tree.module(number).source.count(name) for number in range(len(tree)))
    near = [count for count in range(max(0, right - 3), right + 6) if count not in {right, texts}]
    wrong = [*([texts] if texts != right else []), *dice.sample(near, 3)][:3]
    asked = (
        f"How many call expressions in the whole project call something of the name `{name}`, as "
        f"`{name}(...)` or `something.{name}(...)`? Mentions in comments or texts, and uses "
        f"without a call, do not count."
    )
    return asked, str(right), [str(count) for count in wrong]


def _raises(dice: Dice, tree: Tree, facts: Facts) -> Question:
    """Ask for a function that raises; wrong choices that mention the exception come first."""
    raising = sorted(label for label, raised in facts.functions.items() if raised)
    right = dice.pick(raising)
    error = dice.pick(sorted(facts.functions[right]))
    others = sorted(label for label, raised in facts.functions.items() if error not in raised)
    dice.shuffle(others)
    others.sort(key=lambda label: error not in facts.mentions[label])
    asked = f"Which of these functions has a statement in its own body that raises `{error}`?"
    return asked, right, [others[number] for number in range(3)]


def _hierarchy(dice: Dice, tree: Tree, facts: Facts) -> Question:
    """Ask for a subclass; the right one is derived as indirectly as possible."""
    known = {
        name: found
        for name in sorted(facts.classes.keys() - facts.doubled)
        if (found := facts.ancestors(name)) is not None
    }
    others = {
        base: [name for name, found in known.items() if base not in found and name != base]
        for base in sorted({each for found in known.values() for each in found})
    }
    base = dice.pick([base for base, names in others.items() if len(names) >= 3])
    derived = [name for name, found in known.items() if base in found]
    indirect = [name for name in derived if base not in facts.classes[name]]
    asked = f"Which of these classes is derived from `{base}`, directly or by way of others?"
    return asked, dice.pick(indirect or derived), dice.sample(others[base], 3)


_QUESTIONS = {"calls": _calls, "raises": _raises, "hierarchy": _hierarchy}
