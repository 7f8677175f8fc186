"""`codeqa`: questions about a tree of code, with four choices; gold is read from its syntax tree.

`codeqa,tree=src` asks about the Python files of a folder of yours instead of generated ones.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rlm.bench import scoring
from rlm.bench.dice import Dice
from rlm.bench.sizes import LARGEST, size_chars
from rlm.bench.task import Sample, Task
from rlm.bench.tasks._code_facts import Facts, calls_of, facts_of
from rlm.bench.tasks._code_tree import GivenTree, Tree, WrittenTree, headed
from rlm.errors import ConfigError

__all__ = ["CodeQA"]

WINDOW = 75
"""So many modules in a row are looked at for something to ask about."""

PARSES_IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)
"""Before, two threads that parse at once fail with a SystemError (CPython's issue 106905)."""

LETTERS = "ABCD"
Question = tuple[str, str, Sequence[str]]
"""What is asked, what is right, and three that are wrong."""


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
                f"the code has too little to ask about for codeqa/{self.variant}; take a larger "
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
    """One wrong number is what searching for the name's text would count."""
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
    """Wrong ones that mention the exception come first."""
    raising = sorted(label for label, raised in facts.functions.items() if raised)
    right = dice.pick(raising)
    error = dice.pick(sorted(facts.functions[right]))
    others = sorted(label for label, raised in facts.functions.items() if error not in raised)
    dice.shuffle(others)
    others.sort(key=lambda label: error not in facts.mentions[label])
    asked = f"Which of these functions has a statement in its own body that raises `{error}`?"
    return asked, right, [others[number] for number in range(3)]


def _hierarchy(dice: Dice, tree: Tree, facts: Facts) -> Question:
    """The right one is derived as indirectly as can be."""
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
