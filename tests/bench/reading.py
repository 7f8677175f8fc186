"""A second solver of the tasks, which knows only a query and a text and finds the right answer.

It works things out in another way than the tasks do. The text may be a whole context, or notes.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

from rlm.bench.random_text import SUBJECTS, labelled_texts

# -- needles --------------------------------------------------------------------------------------


def needles_in(text: str) -> list[tuple[str, str]]:
    """Return keys and numbers, once per mention."""
    return re.findall(r"The access number for ([a-z-]+) is (\d{7})\.", text)


# -- lines with hidden labels ---------------------------------------------------------------------

Line = tuple[date, int, str]
BEFORE_THE_QUESTION = "inferred from the instance."


def labels_by_text(query: str) -> dict[str, str]:
    """What a reader of an instance sees: which of the query's labels it has."""
    listed = set(re.findall(r'"([^"]+)"', query.partition(BEFORE_THE_QUESTION)[0]))
    (source,) = (each for each in map(labelled_texts, SUBJECTS) if set(each.labels) == listed)
    return {text: label for label, texts in zip(*source, strict=True) for text in texts}


def lines_in(text: str, query: str) -> list[Line]:
    """Date, user and label of every line."""
    label_of = labels_by_text(query)
    found = []
    for line in text.splitlines():
        parts = re.fullmatch(r"Date: (.*?) \|\| User: (\d+) \|\| Instance: (.*)", line)
        assert parts is not None
        found.append((as_date(parts[1]), int(parts[2]), label_of[parts[3]]))
    return found


def as_date(text: str) -> date:
    return datetime.strptime(text, "%b %d, %Y").date()


def quoted(query: str) -> list[str]:
    """The labels that the question names, after the list of all of them."""
    return re.findall(r'"([^"]+)"', query.partition(BEFORE_THE_QUESTION)[2])


def answer_of(kind: str, query: str, lines: list[Line]) -> Any:
    """Return the gold answer, computed in another way than by the task."""
    asked = query.partition(BEFORE_THE_QUESTION)[2]
    counts = Counter(label for _, _, label in lines)
    labels = quoted(query)
    users = list(map(int, re.findall(r"\b\d{5}\b", asked)))
    days = [
        datetime.strptime(d, "%b %d, %Y").date()
        for d in re.findall(r"[A-Z]\w\w \d\d, \d{4}", asked)
    ]
    every: list[str] = re.findall(r'"([^"]+)"', query.partition(BEFORE_THE_QUESTION)[0])
    of_users = Counter((user, label) for _, user, label in lines)

    def compare(first: int, second: int) -> str:
        return {1: "more common", -1: "less common", 0: "equally common"}[
            (first > second) - (first < second)
        ]

    def most(some: Counter[str]) -> str:
        return min(every, key=lambda label: (-some[label], label))

    before = sum(day < days[0] for day, _, label in lines if label in labels) if days else 0
    after = sum(day > days[0] for day, _, label in lines if label in labels) if days else 0
    own = {day for day, user, label in lines if [user] == users and [label] == labels}
    of_label = Counter(user for _, user, label in lines if [label] == labels[:1])
    by_day = Counter(day for day, _, label in lines if [label] == labels)
    later = Counter(label for day, _, label in lines if days and day > days[0])
    kinds: dict[str, Callable[[], Any]] = {
        "most_common": lambda: most(counts),
        "least_common": lambda: min(every, key=lambda label: (counts[label], label)),
        "how_many": lambda: counts[labels[0]],
        "more_or_less": lambda: compare(counts[labels[0]], counts[labels[1]]),
        "whose_most": lambda: min(of_label, key=lambda user: (-of_label[user], user)),
        "how_many_of_user": lambda: of_users[users[0], labels[0]],
        "common_of_users": lambda: most(Counter(x for _, user, x in lines if user in users)),
        "user_with_more": lambda: min(users, key=lambda user: (-of_label[user], user)),
        "how_many_before": lambda: before,
        "common_after": lambda: most(later),
        "first_date": lambda: min(own).isoformat(),
        "before_and_after": lambda: compare(before, after),
        "busiest_date": lambda: min(by_day, key=lambda d: (-by_day[d], d)).isoformat(),
    }
    return kinds[kind]()


# -- pairs of users -------------------------------------------------------------------------------


def pair_groups(query: str, lines: Iterable[Line]) -> tuple[list[int], list[int]]:
    """Return the users that fit each of the two conditions for a pair."""
    owned: dict[int, list[tuple[date, str]]] = {}
    for day, user, label in lines:
        owned.setdefault(user, []).append((day, label))
    first, second = (
        [user for user, own in sorted(owned.items()) if holds(words, own)]
        for words in pair_conditions(query)
    )
    return first, second


def pair_conditions(query: str) -> tuple[str, str]:
    said = query.partition("List all pairs of different users such that ")[2]
    said = said.partition(". Only users with at least one line count.")[0]
    if said.startswith("each of the two "):
        both = said.removeprefix("each of the two ")
        return both, both
    first, second = said.removeprefix("one of the two ").split(", and the other one ")
    return first, second


def holds(words: str, own: list[tuple[date, str]]) -> bool:
    """Return whether a condition holds for a user's lines."""
    if found := re.fullmatch(r"either (.*) or (.*), but not both", words):
        return holds(found[1], own) != holds(found[2], own)
    if found := re.fullmatch(r'(has at least .*") and (has at least .*")', words):
        return holds(found[1], own) and holds(found[2], own)
    labels = re.findall(r'"([^"]+)"', words)
    days = [day for day, label in own if label == labels[0]]
    numbers = [
        1 if each == "one" else int(each) for each in re.findall(r"\b(one|\d{1,3})\b", words)
    ]
    given = re.search(r"[A-Z]\w\w \d\d, \d{4}", words)
    when = as_date(given[0]) if given else date.min
    cases: dict[str, Callable[[], bool]] = {
        "dated before": lambda: any(day < when for day in days),
        "all of them dated after": lambda: bool(days) and all(day > when for day in days),
        "latest of its dates": lambda: max(day for day, _ in own) in days,
        "has more instances": lambda: len(days) > sum(label == labels[1] for _, label in own),
        "has at least": lambda: len(days) >= numbers[0],
        "has exactly": lambda: len(days) == numbers[0],
        "has no instance": lambda: not days,
        "has fewer than": lambda: len(days) < numbers[0],
        " to ": lambda: numbers[0] <= len(days) <= numbers[1],
    }
    return next(judge for mark, judge in cases.items() if mark in words)()


# -- facts that lead to each other ----------------------------------------------------------------

HOPS = {
    r"the company that builds (.*)": r"{} is built by (.*?)\.",
    r"the designer of (.*)": r"([^.]*?) designed {}\.",
    r"the founder of (.*)": r"{} was founded by (.*?)\.",
    r"the town that is the seat of (.*)": r"{} has its seat in (.*?)\.",
    r"the birthplace of (.*)": r"{} was born in (.*?)\.",
    r"the teacher of (.*)": r"{} was taught by (.*?)\.",
    r"the river that flows past (.*)": r"{} lies on the river (.*?)\.",
    r"the mayor of (.*)": r"The mayor of {} is (.*?)\.",
    r"the town near the spring of (.*)": r"The {} has its spring near (.*?)\.",
}
"""Wording of a hop in the question → wording in the text."""


def described_in(query: str) -> str:
    found = re.search(r"name of (.*)\? Answer", query)
    assert found is not None
    return found[1]


def named(description: str, text: str) -> tuple[str, int] | None:
    """What a description means, from its inside out, and the hops; None if a fact is missing."""
    for asked, said in HOPS.items():
        if found := re.fullmatch(asked, description):
            inner = named(found[1], text)
            if inner is None:
                return None
            pattern = r"(?:(?<=[.\n] )|(?<=\n)|(?<=\.\s))" + said.format(re.escape(inner[0]))
            names = set(re.findall(pattern, f"\n{text}"))
            assert len(names) <= 1, names
            return (names.pop().strip(), inner[1] + 1) if names else None
    return description, 0


# -- graphs ---------------------------------------------------------------------------------------

Edge = tuple[str, str]


def edges_in(text: str) -> list[Edge]:
    return re.findall(r"^(\S+) -> (\S+)$", text, re.MULTILINE)


def node_in(query: str) -> str:
    (node,) = re.findall(r"(?:away from|directly to) ([a-z-]+\d+)", query)
    return str(node)


def steps_in(query: str) -> int:
    return int(re.findall(r"exactly (\d) steps", query)[0])


def levels(edges: Sequence[Edge], node: str, steps: int) -> list[list[str]]:
    """The nodes that are 0, 1 … steps away."""
    seen, found = {node}, [[node]]
    for _ in range(steps):
        last = set(found[-1])
        level = dict.fromkeys(end for start, end in edges if start in last and end not in seen)
        seen |= level.keys()
        found.append(list(level))
    return found


# -- code -----------------------------------------------------------------------------------------


def modules_of(context: str) -> dict[str, ast.Module]:
    parts = re.split(r"^=== (.*) ===$", context, flags=re.MULTILINE)[1:]
    return {path: ast.parse(text) for path, text in zip(parts[::2], parts[1::2], strict=True)}


def raises(modules: dict[str, ast.Module], label: str, error: str) -> bool:
    path, _, function = label.partition(":")
    (found,) = (n for n in modules[path].body if getattr(n, "name", "") == function)
    return any(isinstance(n, ast.Raise) and error in ast.unparse(n) for n in ast.walk(found))


def bases(modules: dict[str, ast.Module], name: str) -> set[str]:
    classes = {
        node.name: [ast.unparse(base) for base in node.bases]
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    found = set(classes[name])
    return found.union(*(bases(modules, base) for base in found))
