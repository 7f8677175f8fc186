"""`make bench-answers` with few items: what `classify` gains for its tokens."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import answers
from benchmarks.labelling.grid import (
    Case,
    Point,
    all_cases,
    curve_at,
    distances,
    measured,
    points_of,
    samples,
)
from benchmarks.labelling.methods import BASELINES, METHODS
from benchmarks.labelling.page import ALL, DEFAULT, is_above, page, targets

ITEMS, SEEDS = 400, 3


def measured_all(case: Case) -> dict[str, list[dict[str, Any]]]:
    return {
        method: [measured(case, method, seed, ITEMS) for seed in range(SEEDS)] for method in METHODS
    }


def test_checking_all_items_removes_most_independent_errors() -> None:
    found = measured_all(Case("independent", 6, "whole", 0.1))
    points = points_of(found)
    assert points["one pass"].error == pytest.approx(0.1, abs=0.03)
    assert points[ALL].error < points["one pass"].error / 3
    assert points[ALL].tokens < 2.4
    assert points[DEFAULT].tokens < 1.3
    assert points[DEFAULT].error <= points["one pass"].error


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_a_second_look_at_unsure_items_is_not_worse_than_the_baselines(rate: float) -> None:
    above, error = distances(measured_all(Case("concentrated", 6, "whole", rate)), DEFAULT)
    assert above <= max(2 * error, 0.005)


@pytest.mark.parametrize("replies", ["omissions", "drift"])
@pytest.mark.parametrize("method", [DEFAULT, ALL])
def test_incomplete_replies_still_label_every_item(replies: str, method: str) -> None:
    found = measured(Case("independent", 6, replies, 0.0), method, 1, ITEMS)
    assert (found["missing"], found["error"]) == (0, 0.0)


def test_the_same_seed_gives_the_same_figures() -> None:
    case = Case("concentrated", 20, "omissions", 0.1)
    assert measured(case, DEFAULT, 3, 150) == measured(case, DEFAULT, 3, 150)
    assert samples(6, 50, 1) == samples(6, 50, 1) != samples(6, 50, 2)


# -- what it means ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "error"), [(0.5, 0.1), (1.0, 0.1), (1.5, 0.07), (2.0, 0.04), (2.5, 0.03), (9, 0.02)]
)
def test_the_curve_passes_through_its_points_and_is_constant_beyond(
    tokens: float, error: float
) -> None:
    points = [Point(3.0, 0.02), Point(1.0, 0.1), Point(2.0, 0.04)]
    assert curve_at(tokens, points) == pytest.approx(error)


def rows(**errors: tuple[float, int]) -> dict[str, list[dict[str, Any]]]:
    """Two seeds of made-up figures: errors and tokens by method."""
    names = {name.replace(" ", "_").replace(',_check="all"', "_all"): name for name in METHODS}
    return {
        names[key]: [{"error": error, "missing": 0, "tokens": tokens, "requests": 1}] * 2
        for key, (error, tokens) in errors.items()
    }


FIGURES = {
    "one_pass": (0.1, 100),
    "two_passes": (0.04, 200),
    "vote_of_three": (0.03, 300),
    "classify": (0.07, 150),
    "classify_all": (0.03, 220),
    "as_taught": (0.05, 260),
}


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, [True, True]),
        ({"classify": (0.071, 150)}, [False, True]),
        ({"classify": (0.07, 151)}, [False, True]),
        ({"classify": (0.05, 150)}, [True, True]),
        ({"classify_all": (0.04, 220)}, [True, False]),
        ({"classify_all": (0.03, 231)}, [True, False]),
    ],
)
def test_a_missed_target_is_reported_as_missed(
    changed: dict[str, tuple[float, int]], met: list[bool]
) -> None:
    case = Case("independent", 6, "whole", 0.1)
    found = {case: rows(**{**FIGURES, **changed})}
    assert [target.is_met for target in targets(found)] == met
    text = page(found, {}, {"quick": True, "items": 2, "seeds": 2})
    assert text.count("**missed** in 1 of 1 cases") == met.count(False)
    assert ("points from the curve" in text) == (not met[0])


def test_cases_above_the_curve_are_measured_again_and_both_results_shown() -> None:
    case = Case("independent", 6, "whole", 0.1)
    found = {case: rows(**{**FIGURES, "classify": (0.08, 150)})}
    assert is_above(found[case])
    facts = {"quick": True, "items": 2, "seeds": 2}
    told = page(found, {case: rows(**FIGURES)}, facts)
    assert "with 2 other seeds: none of 1 are above it then" in told
    assert "**missed** in 1 of 1 cases: `classify`" in told
    found[case][DEFAULT] = [{**row, "missing": 2} for row in found[case][DEFAULT]]
    told = page(found, found, facts)
    assert "1 of 1 is above it then" in told
    assert "**4 items without a label**, over all seeds" in told


def test_a_target_is_missed_if_items_have_no_label() -> None:
    case = Case("independent", 6, "omissions", 0.2)
    found = {case: rows(**FIGURES)}
    assert [target.is_met for target in targets(found)] == [True, True]
    found[case][DEFAULT] = [{**row, "missing": 1} for row in found[case][DEFAULT]]
    (_, whole) = targets(found)
    assert whole.missed == [f"{case.key}: 2 items without a label, over all seeds"]


@pytest.mark.heavy
def test_page_plot_and_samples_are_written(tmp_path: Path, capsys: Any) -> None:
    record = tmp_path / "record.json"
    options = ["--quick", "--processes", "1", "--record", str(record), "--publish", str(tmp_path)]
    answers.main(options)
    first = (tmp_path / "answers.json").read_bytes()
    assert "these figures mean nothing" in (tmp_path / "answers.md").read_text("utf-8")
    assert ElementTree.parse(tmp_path / "answers.svg").getroot().tag.endswith("svg")
    assert {len(each) for each in json.loads(first)["cases"].values()} == {len(METHODS)}
    answers.main(options)  # nothing is left to measure
    assert (tmp_path / "answers.json").read_bytes() == first
    assert capsys.readouterr().err.count("independent, 6 labels") == 3


def test_the_published_results_cover_every_case() -> None:
    folder = Path(answers.__file__).parent / "results"
    kept = json.loads((folder / "answers.json").read_text("utf-8"))
    assert (kept["quick"], kept["items"], kept["seeds"]) == (False, 2_000, 10)
    found = {case: kept["cases"][case.key] for case in all_cases()}
    assert set(BASELINES) < set(METHODS)
    above = [case for case, methods in found.items() if is_above(methods)]
    again = {case: kept["again"][case.key] for case in above}
    facts = {name: kept[name] for name in ("quick", "items", "seeds")}
    assert (folder / "answers.md").read_text("utf-8") == page(found, again, facts)
