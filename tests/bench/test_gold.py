"""Gold, found again by a second reader who knows nothing but the query and the text."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from rlm.bench.registry import find_tasks
from rlm.bench.task import Sample
from rlm.bench.tasks._code_tree import Module, headed
from rlm.bench.tasks.codeqa import CodeQA
from rlm.bench.texts import SUBJECTS, labelled_texts
from tests.bench.benches import ALL

SIZE = 4_000
one = ALL.__getitem__


@pytest.mark.parametrize("variant", ["single", "multi-key", "multi-value", "multi-query"])
@pytest.mark.parametrize("depth", [0, 50, 100])
def test_needles_are_where_and_what_they_should_be(variant: str, depth: int) -> None:
    (task,) = find_tasks(f"s-niah/{variant},depth={depth}").values()
    sample = task.generate(3, SIZE)
    said = re.findall(r"The access number for ([a-z-]+) is (\d{7})\.", sample.context)
    asked = [key for key, _ in said if key in sample.query]
    assert sorted(sample.gold) == sorted(value for key, value in said if key in asked)
    assert len(said) == (1 if variant == "single" else 4)
    assert len(sample.gold) == (4 if variant in {"multi-value", "multi-query"} else 1)
    place = sample.context.index(sample.gold[0]) / len(sample.context)
    assert abs(place - depth / 100) < 0.02
    assert not re.search(
        r"\d", re.sub(r"The access number for [a-z-]+ is \d{7}\.", "", sample.context)
    )


def test_without_a_depth_seeds_go_through_all_of_them() -> None:
    depths = [one("s-niah/single").generate(seed, 500).facts["depth"] for seed in range(11)]
    assert depths == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


Line = tuple[date, int, str]


def lines_of(sample: Sample) -> list[Line]:
    """Date, user and label of every line; labels are looked up by their texts."""
    source = labelled_texts(sample.facts["texts"])
    label_of = {text: label for label, texts in zip(*source, strict=True) for text in texts}
    found = []
    for line in sample.context.splitlines():
        parts = re.fullmatch(r"Date: (.*?) \|\| User: (\d+) \|\| Instance: (.*)", line)
        assert parts is not None
        found.append((as_date(parts[1]), int(parts[2]), label_of[parts[3]]))
    return found


def as_date(text: str) -> date:
    return datetime.strptime(text, "%b %d, %Y").date()


def quoted(query: str) -> list[str]:
    """The labels that the question names, after the list of all of them."""
    return re.findall(r'"([^"]+)"', query.partition("inferred from the instance.")[2])


def answer_of(kind: str, query: str, lines: list[Line]) -> Any:
    """The gold's value, worked out in another way than the task does."""
    asked = query.partition("inferred from the instance.")[2]
    counts = Counter(label for _, _, label in lines)
    labels = quoted(query)
    users = list(map(int, re.findall(r"\b\d{5}\b", asked)))
    days = [
        datetime.strptime(d, "%b %d, %Y").date()
        for d in re.findall(r"[A-Z]\w\w \d\d, \d{4}", asked)
    ]
    every: list[str] = re.findall(r'"([^"]+)"', query.partition("inferred from the instance.")[0])
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


@pytest.mark.parametrize("variant", ["counting", "user", "timeline"])
@pytest.mark.parametrize("size", [500, SIZE])
def test_the_gold_of_every_kind_of_oolong_question(variant: str, size: int) -> None:
    """In a small context there are many ties."""
    kinds = set()
    for seed in range(10 if size == SIZE else 40):
        sample = one(f"oolong/{variant}").generate(seed, size)
        kind = sample.facts["question"]
        kinds.add(kind)
        assert sample.gold["value"] == answer_of(kind, sample.query, lines_of(sample)), (seed, kind)
    assert len(kinds) == (5 if variant == "timeline" else 4)


def test_a_fifth_of_the_users_have_four_fifths_of_the_lines() -> None:
    sample = one("oolong/counting").generate(2, 60_000)
    lines = lines_of(sample)
    counts = sorted(Counter(user for _, user, _ in lines).values(), reverse=True)
    assert 0.76 < sum(counts[: sample.facts["users"] // 5]) / len(lines) < 0.84


def test_which_labels_are_common_differs_from_sample_to_sample() -> None:
    samples = [one("oolong/counting").generate(seed, SIZE) for seed in range(0, 60, 4)]
    assert len({sample.gold["value"] for sample in samples}) >= 5
    assert {sample.facts["texts"] for sample in samples} == set(SUBJECTS)


def pair_conditions(query: str) -> tuple[str, str]:
    said = query.partition("List all pairs of different users such that ")[2]
    said = said.partition(". Only users with at least one line count.")[0]
    if said.startswith("each of the two "):
        both = said.removeprefix("each of the two ")
        return both, both
    first, second = said.removeprefix("one of the two ").split(", and the other one ")
    return first, second


def holds(words: str, own: list[tuple[date, str]]) -> bool:
    """Whether what the words say is true of a user's lines."""
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


DATED = (6, 7, 16, 17, 18, 19)
"""Shapes with a date: with many users, some have lines on that very day."""


@pytest.mark.parametrize(
    ("seeds", "size"), [(range(20), SIZE), ([seed + 20 for seed in DATED], 16_000)]
)
def test_the_gold_of_all_twenty_shapes_of_pairs(seeds: Sequence[int], size: int) -> None:
    asked = set()
    for seed in seeds:
        sample = one("oolong-pairs").generate(seed, size)
        assert sample.facts["shape"] == seed % 20 + 1
        owned: dict[int, list[tuple[date, str]]] = {}
        for day, user, label in lines_of(sample):
            owned.setdefault(user, []).append((day, label))
        first, second = pair_conditions(sample.query)
        asked.add((re.sub(r'"[^"]+"|\d+', "", first), re.sub(r'"[^"]+"|\d+', "", second)))
        pairs = [
            [a, b]
            for a in sorted(owned)
            for b in sorted(owned)
            if a < b
            and (
                (holds(first, owned[a]) and holds(second, owned[b]))
                or (holds(first, owned[b]) and holds(second, owned[a]))
            )
        ]
        assert sample.gold == pairs, (seed, first, second)
        assert pairs
    assert len(asked) >= 0.7 * len(seeds)


@pytest.mark.parametrize("variant", ["2-hops", "3-hops", "4-hops"])
def test_the_gold_of_hops(variant: str) -> None:
    """Follows the question from its inside out, by nothing but the sentences of the documents."""
    follow = {
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

    def solve(text: str, context: str) -> tuple[str, int]:
        for asked, said in follow.items():
            if found := re.fullmatch(asked, text):
                inner, hops = solve(found[1], context)
                pattern = r"(?:(?<=[.\n] )|(?<=\n)|(?<=\.\s))" + said.format(re.escape(inner))
                (name,) = set(re.findall(pattern, context))
                return name.strip(), hops + 1
        return text, 0

    for seed in range(6):
        sample = one(f"multihop/{variant}").generate(seed, SIZE)
        asked = re.search(r"name of (.*)\? Answer", sample.query)
        assert asked is not None
        assert solve(asked[1], sample.context) == (sample.gold["value"], int(variant[0]))


def test_a_thousand_documents_and_no_fact_twice() -> None:
    sample = one("multihop/2-hops").generate(1, 200_000)
    heads = re.findall(r"^=== (.*) \((\w+)\) ===$", sample.context, re.MULTILINE)
    assert len(heads) == len(set(heads)) == 1_000
    assert sample.context.count(" was born in ") == sum(kind == "person" for _, kind in heads)


@pytest.mark.parametrize("variant", ["bfs", "parents"])
def test_the_gold_of_walks(variant: str) -> None:
    for seed in range(4):
        sample = one(f"graphwalks/{variant}").generate(seed, SIZE)
        edges = [line.split(" -> ") for line in sample.context.splitlines()]
        assert all(start != end for start, end in edges)
        (node,) = re.findall(r"(?:away from|directly to) ([a-z-]+\d+)", sample.query)
        if variant == "parents":
            found = {start for start, end in edges if end == node}
        else:
            (steps,) = re.findall(r"exactly (\d) steps", sample.query)
            distance, level = {node: 0}, [node]
            for step in range(1, int(steps) + 1):
                level = [e for s, e in edges if s in level and e not in distance]
                distance.update(dict.fromkeys(level, step))
            found = {name for name, far in distance.items() if far == int(steps)}
        assert sample.gold == sorted(found)
        assert sample.gold


def modules_of(context: str) -> dict[str, ast.Module]:
    parts = re.split(r"^=== (.*) ===$", context, flags=re.MULTILINE)[1:]
    return {path: ast.parse(text) for path, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("variant", ["calls", "raises", "hierarchy"])
def test_the_gold_about_code(variant: str) -> None:
    for seed in range(3):
        sample = one(f"codeqa/{variant}").generate(seed, 12_000)
        modules = modules_of(sample.context)
        assert len(modules) == sample.facts["modules"]
        options, right = sample.gold["options"], sample.facts["right"]
        assert len(set(options)) == 4
        assert options["ABCD".index(sample.gold["value"])] == right
        (name,) = set(re.findall(r"(?:name|raises|from) `(\w+)`", sample.query))
        if variant == "calls":
            nodes = [node for tree in modules.values() for node in ast.walk(tree)]
            called = [
                ast.unparse(n.func).rpartition(".")[2] for n in nodes if isinstance(n, ast.Call)
            ]
            assert str(called.count(name)) == right
            assert str(sample.context.count(name)) != right  # a plain search is misled
        elif variant == "raises":
            assert [label for label in options if raises(modules, label, name)] == [right]
        else:
            assert [label for label in options if name in bases(modules, label)] == [right]


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


def test_questions_about_a_tree_of_somebodys_own(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"part_{number}.py").write_text(
            f"class Base{number}:\n    pass\n\n\nclass Mid{number}(Base{number}):\n    pass\n\n\n"
            f"def make_{number}(x):\n    if x:\n        raise Error{number}(make_0(x))\n"
        )
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / ".hidden.py").write_text("def hidden(): pass\n")
    for variant in ("calls", "raises", "hierarchy"):
        sample = CodeQA(variant, tree=str(tmp_path)).generate(1, 4_000)
        assert ".hidden.py" not in sample.context
        assert sample.context.startswith("=== broken.py ===\n")
        assert len(sample.context) == sum(
            len(headed(Module(path.name, path.read_text()))) for path in tmp_path.glob("[!.]*.py")
        )
        assert str(tmp_path) not in sample.query + sample.context
        assert sample.gold["options"]["ABCD".index(sample.gold["value"])] == sample.facts["right"]
    before = CodeQA("calls", tree=str(tmp_path)).identity()
    (tmp_path / "part_0.py").write_text("x = 1\n")
    assert CodeQA("calls", tree=str(tmp_path)).identity() != before


def test_a_call_is_a_call_of_that_very_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "def load(x): return x\n\n\ndef loading(x): return load  # load(1) is not here\n\n\n"
        "y = load(1), x.load(2), loading(3), 'load(4)', load.cache(5), load(load(6))\n"
    )
    counts = {
        name: int(sample.facts["right"])
        for seed in range(12)
        for sample in [CodeQA("calls", tree=str(tmp_path)).generate(seed, SIZE)]
        for name in re.findall(r"something of the name `(\w+)`", sample.query)
    }
    assert counts == {"load": 4, "loading": 1}
