"""Gold answers are found again by a second solver that knows only the query and the text."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlm.bench.random_text import SUBJECTS
from rlm.bench.registry import find_tasks
from rlm.bench.task import Sample
from rlm.bench.tasks.codeqa import CodeQA, Module, headed
from tests.bench.benches import ALL
from tests.bench.reading import (
    Line,
    answer_of,
    bases,
    described_in,
    edges_in,
    levels,
    lines_in,
    modules_of,
    named,
    needles_in,
    node_in,
    pair_conditions,
    pair_groups,
    raises,
    steps_in,
)

SIZE = 4_000
one = ALL.__getitem__


def lines_of(sample: Sample) -> list[Line]:
    return lines_in(sample.context, sample.query)


@pytest.mark.parametrize("variant", ["single", "multi-key", "multi-value", "multi-query"])
@pytest.mark.parametrize("depth", [0, 50, 100])
def test_needles_are_placed_at_the_right_depth_with_the_right_values(
    variant: str, depth: int
) -> None:
    (task,) = find_tasks(f"s-niah/{variant},depth={depth}").values()
    sample = task.generate(3, SIZE)
    said = needles_in(sample.context)
    asked = [key for key, _ in said if key in sample.query]
    assert sorted(sample.gold) == sorted(value for key, value in said if key in asked)
    assert len(said) == (1 if variant == "single" else 4)
    assert len(sample.gold) == (4 if variant in {"multi-value", "multi-query"} else 1)
    place = sample.context.index(sample.gold[0]) / len(sample.context)
    assert abs(place - depth / 100) < 0.02
    assert not re.search(
        r"\d", re.sub(r"The access number for [a-z-]+ is \d{7}\.", "", sample.context)
    )


def test_without_a_depth_option_seeds_cover_all_depths() -> None:
    depths = [one("s-niah/single").generate(seed, 500).facts["depth"] for seed in range(11)]
    assert depths == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


@pytest.mark.parametrize("variant", ["counting", "user", "timeline"])
@pytest.mark.parametrize("size", [500, SIZE])
def test_gold_answers_of_oolong_questions_are_correct(variant: str, size: int) -> None:
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


def test_the_most_common_labels_differ_between_samples() -> None:
    samples = [one("oolong/counting").generate(seed, SIZE) for seed in range(0, 60, 4)]
    assert len({sample.gold["value"] for sample in samples}) >= 5
    assert {sample.facts["texts"] for sample in samples} == set(SUBJECTS)


DATED = (6, 7, 16, 17, 18, 19)
"""Shapes with a date: with many users, some have lines on that day."""


@pytest.mark.parametrize(
    ("seeds", "size"), [(range(20), SIZE), ([seed + 20 for seed in DATED], 16_000)]
)
def test_gold_answers_of_all_twenty_shapes_of_pairs_are_correct(
    seeds: Sequence[int], size: int
) -> None:
    asked = set()
    for seed in seeds:
        sample = one("oolong-pairs").generate(seed, size)
        assert sample.facts["shape"] == seed % 20 + 1
        first, second = pair_conditions(sample.query)
        asked.add((re.sub(r'"[^"]+"|\d+', "", first), re.sub(r'"[^"]+"|\d+', "", second)))
        ones, others = pair_groups(sample.query, lines_of(sample))
        pairs = sorted({(min(a, b), max(a, b)) for a in ones for b in others if a != b})
        assert sample.gold == [list(pair) for pair in pairs], (seed, first, second)
        assert pairs
    assert len(asked) >= 0.7 * len(seeds)


@pytest.mark.parametrize("variant", ["2-hops", "3-hops", "4-hops"])
def test_gold_answers_of_multihop_questions_are_correct(variant: str) -> None:
    """Resolve the question from the inside out, using only sentences of the documents."""
    for seed in range(6):
        sample = one(f"multihop/{variant}").generate(seed, SIZE)
        found = named(described_in(sample.query), sample.context)
        assert found == (sample.gold["value"], int(variant[0]))


def test_a_thousand_documents_repeat_no_fact() -> None:
    sample = one("multihop/2-hops").generate(1, 200_000)
    heads = re.findall(r"^=== (.*) \((\w+)\) ===$", sample.context, re.MULTILINE)
    assert len(heads) == len(set(heads)) == 1_000
    assert sample.context.count(" was born in ") == sum(kind == "person" for _, kind in heads)


@pytest.mark.parametrize("variant", ["bfs", "parents"])
def test_gold_answers_of_graph_walks_are_correct(variant: str) -> None:
    for seed in range(4):
        sample = one(f"graphwalks/{variant}").generate(seed, SIZE)
        edges = edges_in(sample.context)
        assert len(edges) == sample.context.count("\n")
        assert all(start != end for start, end in edges)
        node = node_in(sample.query)
        if variant == "parents":
            found = {start for start, end in edges if end == node}
        else:
            found = set(levels(edges, node, steps_in(sample.query))[-1])
        assert sample.gold == sorted(found)
        assert sample.gold


@pytest.mark.parametrize("variant", ["calls", "raises", "hierarchy"])
def test_gold_answers_about_code_are_correct(variant: str) -> None:
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


def test_questions_about_the_users_own_code(tmp_path: Path) -> None:
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


def test_only_calls_of_exactly_that_name_count(tmp_path: Path) -> None:
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
