"""The report: correct figures, and complete charts whatever the names are."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.bench.plan import Settings
from rlm.bench.report import write_report
from rlm.bench.report.svg import Point, Series, chart
from rlm.bench.report.writing import figures, interval, pooled_task, summarise
from rlm.bench.results import Outcome, Results
from rlm.errors import ConfigError

SVG = "{http://www.w3.org/2000/svg}"


def outcome(**given: Any) -> Outcome:
    usual: dict[str, Any] = {
        "task": "oolong/user",
        "size": 8_000,
        "seed": 0,
        "method": "rlm",
        "status": "scored",
        "score": 1.0,
        "cost_usd": 0.5,
        "input_tokens": 90,
        "output_tokens": 10,
        "steps": 3,
        "seconds": 2.0,
        "model": "m",
        "sub_model": "m",
    }
    return Outcome(**{**usual, **given})


def kept(folder: Path, outcomes: list[Outcome], model: str = "m") -> Path:
    settings = Settings(
        engine="1.2.3",
        model=model,
        sub_model=model,
        environment="local",
        environment_options={},
        limits={"max_steps": 9},
        tasks={},
    )
    with Results.opened(folder, settings) as results:
        for each in outcomes:
            results.add(each)
    return folder


# -- figures ---------------------------------------------------------------------------------------


def test_wilsons_interval_matches_published_values() -> None:
    low, high = interval(0.5, 10)
    assert (round(low, 4), round(high, 4)) == (0.2366, 0.7634)
    low, high = interval(1.0, 20)
    assert (round(low, 4), high) == (0.8389, 1.0)


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_an_interval_contains_its_mean_and_shrinks_with_more_samples(
    mean: float, count: int
) -> None:
    low, high = interval(mean, count)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
    narrower = interval(mean, 4 * count)
    assert narrower[1] - narrower[0] < high - low


def test_figures_summarise_outcomes() -> None:
    made = figures(
        [
            outcome(score=1.0, cost_usd=0.1),
            outcome(score=0.5, cost_usd=0.3),
            outcome(score=0.0, cost_usd=None, status="impossible", input_tokens=0),
            outcome(score=None, status="failed", cost_usd=9.0),
        ]
    )
    assert (made.samples, made.impossible, made.failed) == (3, 1, 1)
    assert made.score == pytest.approx(50.0)  # what can't be done counts as 0, what failed not
    assert made.cost_usd == pytest.approx(0.2)
    assert made.cost_range == pytest.approx((0.15, 0.25))
    assert (made.tokens, made.steps, made.seconds) == (100.0, 3.0, 2.0)


def test_one_unknown_cost_makes_the_total_unknown() -> None:
    assert figures([outcome(), outcome(cost_usd=None)]).cost_usd is None
    assert figures([outcome(score=None, status="failed")]).score is None


def test_variants_are_pooled_and_options_are_not() -> None:
    assert pooled_task("s-niah/single") == "s-niah"
    assert pooled_task("s-niah/single,depth=50") == "s-niah,depth=50"
    places = summarise(
        [outcome(task="s-niah/single"), outcome(task="s-niah/multi-key")], pooled=True
    )
    assert [(place.task, each.samples) for place, each in places.items()] == [("s-niah", 2)]


# -- pictures --------------------------------------------------------------------------------------


def drawn(series: list[Series], **options: Any) -> ET.Element:
    sizes = {point.size: f"{point.size}" for each in series for point in each.points}
    return ET.fromstring(chart("a title", "percent", series, size_names=sizes, **options))


def test_a_chart_has_marks_error_bars_and_a_legend_in_both_themes() -> None:
    series = [
        Series("rlm", [Point(8, 90, 80, 95), Point(800, 85, 70, 92)], 0),
        Series("plain", [Point(8, 50, 40, 60), Point(800, 0, 0, 0, True)], 1),
    ]
    picture = drawn(series, top=100.0)
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert {"a title", "percent", "rlm", "plain", "8", "800", "0", "100"} <= set(texts)
    assert len(list(picture.iter(f"{SVG}path"))) == 3  # a hollow mark has no bar
    assert len([e for e in picture.iter(f"{SVG}polygon") if "hollow" in e.attrib["class"]]) == 1
    (style,) = picture.iter(f"{SVG}style")
    assert "prefers-color-scheme: dark" in (style.text or "")


def heights(picture: ET.Element) -> list[float]:
    """Return the heights of the circles outside the legend."""
    return [float(each.attrib["cy"]) for each in picture.iter(f"{SVG}circle")][1:]


def test_higher_values_are_drawn_higher_on_linear_and_logarithmic_axes() -> None:
    narrow = heights(drawn([Series("a", [Point(1, 2, 2, 2), Point(2, 4, 4, 4)], 0)]))
    wide = heights(
        drawn([Series("a", [Point(n, 10.0**n, 10.0**n, 10.0**n) for n in (1, 2, 4)], 0)])
    )
    assert narrow[0] > narrow[1]
    assert wide[1] - wide[2] == pytest.approx(2 * (wide[0] - wide[1]), abs=0.2)  # steps of ten


def test_a_long_legend_continues_in_another_row() -> None:
    names = [f"mapreduce, provider/a-model-with-a-long-name-{n}" for n in range(4)]
    picture = drawn([Series(name, [Point(8, 1, 1, 1)], 2, n) for n, name in enumerate(names)])
    places = {
        each.text: (float(each.attrib["x"]), float(each.attrib["y"]))
        for each in picture.iter(f"{SVG}text")
        if each.text in names
    }
    assert len(set(places.values())) == 4
    assert all(x + 7 * len(names[0]) < 720 for x, _ in places.values())


def test_names_are_escaped() -> None:
    name = '<script>&"x'
    texts = [each.text for each in drawn([Series(name, [Point(8, 1, 1, 1)], 0)]).iter(f"{SVG}text")]
    assert name in texts


NUMBERS = st.floats(0, 1e9, allow_nan=False)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), NUMBERS, NUMBERS), min_size=1, max_size=8), st.text()
)
def test_any_values_and_names_give_a_complete_chart(
    values: list[tuple[int, float, float]], name: str
) -> None:
    name = "".join(char for char in name if char.isprintable())
    points = [Point(size, low, low, low + more) for size, low, more in sorted(values)]
    picture = drawn([Series(name, points, 3, 1)])
    for each in picture.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", each.attrib["d"])]
        assert all(0 <= number <= 720 for number in numbers)


# -- words -----------------------------------------------------------------------------------------


def test_a_report_of_one_folder(tmp_path: Path) -> None:
    folder = kept(
        tmp_path / "mine",
        [
            outcome(seed=0, score=None, status="failed", cost_usd=0.1),
            outcome(seed=0, score=1.0),  # tried again: this one counts
            outcome(seed=1, score=0.0),
            outcome(method="plain", score=0.0, status="impossible", cost_usd=None, error="large"),
            outcome(seed=7, score=None, status="failed"),
        ],
    )
    path = write_report([folder], folder)
    text = path.read_text("utf-8")
    assert path == folder / "report.md"
    assert (
        "| oolong/user | m | rlm | 8k | 2 | 50.0 | 9–91 | $0.5000 | 100 | 3.0 | 0.0 | 2.0 "
        "| 1 failed, to be retried |" in text
    )
    assert "| oolong/user | m | plain | 8k | 1 | 0.0 |  |  |  |  |  |  | 1 not possible |" in text
    assert "A hollow mark is a score of 0" in text
    assert "![oolong: score against context size](oolong-score.svg)" in text
    for name in ("oolong-score.svg", "oolong-cost.svg"):
        assert ET.parse(folder / name).getroot().tag == f"{SVG}svg"
    assert "US dollars" in (folder / "oolong-cost.svg").read_text("utf-8")


def test_scores_of_the_paper_are_marked_as_quoted(tmp_path: Path) -> None:
    tasks = ("codeqa/calls", "multihop/2-hops", "oolong/user", "oolong-pairs", "s-niah/single")
    folder = kept(tmp_path / "mine", [outcome(task=task) for task in tasks])
    text = write_report([folder], tmp_path / "out").read_text("utf-8")
    assert "**A different setting:** RLM with GPT-5 at depth 1" in text
    for row in (
        "| CodeQA (LongBench v2) | `codeqa` | 62 | 50 |",
        "| BrowseComp+ (1K documents) | `multihop` | 91.3 | 150 |",
        "| OOLONG | `oolong` | 56 | 50 |",
        "| OOLONG-Pairs | `oolong-pairs` | 58 | 20 |",
    ):
        assert row in text
    only = kept(tmp_path / "needles", [outcome(task="s-niah/single")])
    assert "From the paper" not in write_report([only], tmp_path / "other").read_text("utf-8")


def test_several_folders_are_reported_side_by_side(tmp_path: Path) -> None:
    first = kept(tmp_path / "one", [outcome(model="a|b", sub_model="a|b", cost_usd=None)], "a|b")
    second = kept(tmp_path / "two", [outcome(model="c", sub_model="d", cost_usd=None)], "c")
    text = write_report([first, second], tmp_path / "both").read_text("utf-8")
    assert "| one | a\\|b | a\\|b | local | max_steps 9 | 1.2.3 |" in text
    assert "| oolong/user | c + d | rlm |" in text
    cost = (tmp_path / "both" / "oolong-cost.svg").read_text("utf-8")
    assert "tokens per sample" in cost  # the price is unknown
    assert "rlm, c + d" in cost


def test_a_folder_without_results_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no settings\.json"):
        write_report([tmp_path], tmp_path)
    with pytest.raises(ConfigError, match="has no results yet"):
        write_report([kept(tmp_path / "empty", [])], tmp_path)


def test_trials_that_all_failed_have_no_picture(tmp_path: Path) -> None:
    """As after Ctrl-C before the first result."""
    failed = outcome(score=None, status="failed", cost_usd=None)
    folder = kept(tmp_path / "mine", [failed])
    text = write_report([folder], folder).read_text("utf-8")
    assert "| 1 failed, to be retried |" in text
    assert ".svg" not in text
    assert not list(folder.glob("*.svg"))
