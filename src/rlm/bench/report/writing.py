"""Write the report of a benchmark: summaries, tables and published figures."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rlm._util.atomic import replacing
from rlm._util.text import dollars
from rlm.bench.plan import METHODS, Settings, show_size
from rlm.bench.report.svg import Point, Series, chart
from rlm.bench.results import Outcome, read_outcomes, read_settings
from rlm.errors import ConfigError

__all__ = [
    "PUBLISHED",
    "SOURCE",
    "Figures",
    "Place",
    "Published",
    "figures",
    "interval",
    "last_of",
    "pooled_task",
    "summarise",
    "write_report",
]

SOURCE = "A. Zhang, T. Kraska, O. Khattab: Recursive Language Models, 2025, arXiv:2512.24601"


class Published(NamedTuple):
    """A benchmark of the paper, the similar task here, and the published score."""

    benchmark: str
    like: str
    score: float
    samples: int


PUBLISHED = (
    Published("CodeQA (LongBench v2)", "codeqa", 62.0, 50),
    Published("BrowseComp+ (1K documents)", "multihop", 91.3, 150),
    Published("OOLONG", "oolong", 56.0, 50),
    Published("OOLONG-Pairs", "oolong-pairs", 58.0, 20),
)
"""RLM with GPT-5, depth 1; in percent."""


Z = 1.96
"""The quantile for an interval with a confidence of 95 percent."""


class Place(NamedTuple):
    """The trials that figures are about."""

    task: str
    model: str
    method: str
    size: int


class Figures(NamedTuple):
    """Figures of the trials at one place. None means unknown.

    `hits` are full scores, `score` is a mean in percent, `low` and `high` its interval;
    `cost_range` are the quartiles.
    """

    samples: int
    impossible: int
    failed: int
    hits: int
    score: float | None
    low: float
    high: float
    cost_usd: float | None
    cost_range: tuple[float, float] | None
    tokens: float | None
    token_range: tuple[float, float] | None
    steps: float | None
    calls: float | None
    seconds: float | None


def interval(mean: float, count: int) -> tuple[float, float]:
    """Return Wilson's interval around a mean of scores from 0 to 1, at 95 percent.

    It assumes scores of 0 or 1, which vary more than any others with the same mean, so it is
    conservative for partial scores. It is never empty, even for few samples.
    """
    square = Z * Z / count
    middle = (mean + square / 2) / (1 + square)
    spread = math.sqrt(mean * (1 - mean) / count + square / (4 * count)) * Z / (1 + square)
    return max(0.0, min(mean, middle - spread)), min(1.0, max(mean, middle + spread))


def pooled_task(spec: str) -> str:
    """Return the task without its variant but with its options."""
    name, _, options = spec.partition(",")
    return name.partition("/")[0] + (f",{options}" if options else "")


def summarise(outcomes: Iterable[Outcome], *, pooled: bool) -> dict[Place, Figures]:
    """Return figures per place, in the order of tasks, models, methods and sizes."""
    groups: dict[Place, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        task = pooled_task(each.task) if pooled else each.task
        groups[Place(task, _models(each), each.method, each.size)].append(each)
    order = {method: number for number, method in enumerate(METHODS)}
    places = sorted(
        groups, key=lambda place: (place.task, place.model, order[place.method], place.size)
    )
    return {place: figures(groups[place]) for place in places}


def figures(outcomes: Sequence[Outcome]) -> Figures:
    done = [each for each in outcomes if each.is_done]
    ran = [each for each in done if each.status == "scored"]
    scores = [each.score or 0.0 for each in done]
    mean = statistics.fmean(scores) if scores else None
    low, high = interval(mean, len(scores)) if mean is not None else (0.0, 1.0)
    costs = [each.cost_usd for each in ran]
    known = [cost for cost in costs if cost is not None]
    tokens = [float(each.input_tokens + each.output_tokens) for each in ran]
    return Figures(
        samples=len(done),
        impossible=len(done) - len(ran),
        failed=len(outcomes) - len(done),
        hits=sum(score >= 1 for score in scores),
        score=None if mean is None else 100 * mean,
        low=100 * low,
        high=100 * high,
        cost_usd=_mean(known) if len(known) == len(costs) else None,
        cost_range=_quartiles(known) if len(known) == len(costs) else None,
        tokens=_mean(tokens),
        token_range=_quartiles(tokens),
        steps=_mean([float(each.steps) for each in ran]),
        calls=_mean([float(each.calls) for each in ran]),
        seconds=_mean([each.seconds for each in ran]),
    )


def _models(outcome: Outcome) -> str:
    same = outcome.sub_model in {"", outcome.model}
    return outcome.model if same else f"{outcome.model} + {outcome.sub_model}"


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


REPORT = "report.md"
METHOD_NAMES = {
    "rlm": "RLM: the loop, with a REPL",
    "plain": "plain: one call with the whole context in it",
    "mapreduce": "map/reduce: without model-written code",
    "operators": "operators: `classify` over the items, and code that counts",
}
HOLLOW = (
    "A hollow mark is a score of 0 because the method can't take a context of that size: a plain "
    "call needs a window at least as large."
)


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Read results, write `report.md` and its charts into `out`, and return the report's path."""
    settings = {folder: read_settings(folder) for folder in folders}
    outcomes = [each for folder in folders for each in last_of(folder)]
    if not outcomes:
        raise ConfigError(f"{folders[0]} has no results yet: rlm bench run writes them")
    out.mkdir(parents=True, exist_ok=True)
    pictures = dict(_pictures(summarise(outcomes, pooled=True)))
    for name, picture in pictures.items():
        _write(out / name, picture)
    text = "\n".join(_text(settings, outcomes, pictures))
    _write(out / REPORT, text)
    return out / REPORT


def last_of(folder: Path) -> list[Outcome]:
    """Return the last outcome of each trial."""
    return list({each.key: each for each in read_outcomes(folder)}.values())


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())
    path.chmod(0o644)


# -- words ----------------------------------------------------------------------------------------


def _text(
    settings: Mapping[Path, Settings], outcomes: Sequence[Outcome], pictures: Mapping[str, str]
) -> Iterator[str]:
    yield from ("# Benchmark", "")
    yield from _settings_table(settings)
    yield from ("", "Methods: " + "; ".join(METHOD_NAMES.values()) + ".", "")
    yield (
        "Scores are means in percent, each with the interval in which the true mean lies with a "
        "confidence of 95 % (Wilson's, which is conservative for partial scores). Sizes count "
        "four characters as a token. Costs, tokens, steps and seconds are means per sample; calls "
        "are those made from cells or by map/reduce."
    )
    by_variant = summarise(outcomes, pooled=False)
    for task in dict.fromkeys(pooled_task(place.task) for place in by_variant):
        yield from ("", f"## {task}", "")
        for kind in ("score", "cost"):
            if (name := f"{_file_name(task)}-{kind}.svg") in pictures:
                yield f"![{task}: {kind} against context size]({name})"
        own = {place: each for place, each in by_variant.items() if pooled_task(place.task) == task}
        yield from ("", *_table(own))
        if any(each.impossible for each in own.values()):
            yield from ("", HOLLOW)
    yield from _published(outcomes)


def _settings_table(settings: Mapping[Path, Settings]) -> Iterator[str]:
    yield "| results | model | model of calls | environment | limits of a run | rlm |"
    yield "|---|---|---|---|---|---|"
    for folder, each in settings.items():
        limits = (
            ", ".join(f"{name} {value}" for name, value in each.limits.items()) or "the defaults"
        )
        cells = (folder.name, each.model, each.sub_model, each.environment, limits, each.engine)
        yield _row(cells)


def _table(rows: Mapping[Place, Figures]) -> Iterator[str]:
    heads = ("task", "model", "method", "size", "samples", "score", "95 %", "cost", "tokens")
    yield _row((*heads, "steps", "calls", "seconds", "remarks"))
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for place, each in rows.items():
        remarks = [f"{each.impossible} not possible"] if each.impossible else []
        remarks += [f"{each.failed} failed, to be retried"] if each.failed else []
        score = "" if each.score is None else f"{each.score:.1f}"
        is_certain = each.score is None or each.impossible == each.samples
        spread = "" if is_certain else f"{each.low:.0f}–{each.high:.0f}"
        yield _row(
            (
                *(place.task, place.model, place.method, show_size(place.size)),
                *(str(each.samples), score, spread, "" if is_certain else _money(each.cost_usd)),
                _formatted(each.tokens, "{:,.0f}"),
                _formatted(each.steps, "{:.1f}"),
                _formatted(each.calls, "{:.1f}"),
                _formatted(each.seconds, "{:.1f}"),
                "; ".join(remarks),
            )
        )


def _published(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Return what the paper reports for similar tasks, and say that they are not the same."""
    names = {pooled_task(each.task).partition(",")[0] for each in outcomes}
    like = [each for each in PUBLISHED if each.like in names]
    if not like:
        return
    yield from ("", "## From the paper", "")
    yield (
        f"**A different setting:** RLM with GPT-5 at depth 1, on the paper's own data, sizes and "
        f"scorers ({SOURCE}). The tasks here are modelled on those benchmarks, but they "
        f"are not the same questions: the numbers give only an order of magnitude."
    )
    yield from ("", "| benchmark of the paper | like | score | samples |", "|---|---|--:|--:|")
    for each in like:
        yield _row((each.benchmark, f"`{each.like}`", f"{each.score:g}", str(each.samples)))
    yield ""


def _row(cells: Sequence[str]) -> str:
    safe = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(safe)} |"


def _formatted(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _money(usd: float | None) -> str:
    return "$0" if usd == 0 else dollars(usd)


# -- pictures -------------------------------------------------------------------------------------

Pointing = Callable[[int, Figures], Point | None]
"""What a chart shows of the figures at a size."""


def _pictures(rows: Mapping[Place, Figures]) -> Iterator[tuple[str, str]]:
    for task in dict.fromkeys(place.task for place in rows):
        own = {place: each for place, each in rows.items() if place.task == task}
        names = {place.size: show_size(place.size) for place in own}
        counts = sorted({each.samples for each in own.values()})
        samples = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        title = f"{task}, {samples} sample{'' if samples == '1' else 's'} per point"
        if scores := _series(own, _score):  # None if no trial has a result yet.
            yield (
                f"{_file_name(task)}-score.svg",
                chart(title, "score, percent", scores, size_names=names, top=100.0),
            )
        priced = any(each.cost_usd for each in own.values()) and not any(
            each.cost_usd is None and each.samples > each.impossible for each in own.values()
        )
        unit = (
            "US dollars per sample, and quartiles" if priced else "tokens per sample, and quartiles"
        )
        series = _series(own, _cost if priced else _tokens)
        if series:
            yield f"{_file_name(task)}-cost.svg", chart(title, unit, series, size_names=names)


def _series(rows: Mapping[Place, Figures], point: Pointing) -> list[Series]:
    """Return one line per model and method: colour by method, dashes by model."""
    models = list(dict.fromkeys(place.model for place in rows))
    found = []
    for colour, method in enumerate(METHODS):
        for model in models:
            points = [
                made
                for place, each in rows.items()
                if (place.model, place.method) == (model, method)
                and (made := point(place.size, each)) is not None
            ]
            if points:
                name = method if len(models) == 1 else f"{method}, {model}"
                found.append(Series(name, points, colour, models.index(model)))
    return found


def _score(size: int, each: Figures) -> Point | None:
    if each.score is None:
        return None
    return Point(size, each.score, each.low, each.high, each.impossible == each.samples)


def _cost(size: int, each: Figures) -> Point | None:
    if each.cost_usd is None or each.cost_range is None:
        return None
    return Point(size, each.cost_usd, *each.cost_range)


def _tokens(size: int, each: Figures) -> Point | None:
    if each.tokens is None or each.token_range is None:
        return None
    return Point(size, each.tokens, *each.token_range)


def _file_name(task: str) -> str:
    return "".join(char if char.isalnum() or char == "-" else "-" for char in task)
