"""The report: what was asked, how right the answers were, what they cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rlm._util.atomic import replacing
from rlm.bench.plan import METHODS, Settings
from rlm.bench.report.published import PUBLISHED, SOURCE
from rlm.bench.report.summary import Figures, Place, pooled_task, summarise
from rlm.bench.report.svg import Point, Series, chart
from rlm.bench.results import Outcome, read_outcomes, read_settings
from rlm.bench.sizes import show_size
from rlm.errors import ConfigError

__all__ = ["write_report"]

REPORT = "report.md"
METHOD_NAMES = {
    "rlm": "RLM: the loop, with a REPL",
    "plain": "plain: one call with the whole context in it",
    "mapreduce": "map/reduce: without model-written code",
}
HOLLOW = (
    "A hollow mark is a score of 0 because the method can't take a context of that size: a plain "
    "call needs a window that holds it."
)


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Read results, write `report.md` and its pictures into `out`; returns the report's path."""
    settings = {folder: read_settings(folder) for folder in folders}
    outcomes = [each for folder in folders for each in _last_of(folder)]
    if not outcomes:
        raise ConfigError(f"{folders[0]} has no results yet: rlm bench run writes them")
    out.mkdir(parents=True, exist_ok=True)
    pictures = dict(_pictures(summarise(outcomes, pooled=True)))
    for name, picture in pictures.items():
        _write(out / name, picture)
    text = "\n".join(_text(settings, outcomes, pictures))
    _write(out / REPORT, text)
    return out / REPORT


def _last_of(folder: Path) -> list[Outcome]:
    """Of a trial that was tried again, the last outcome counts."""
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
        "confidence of 95 % (Wilson's, which is on the safe side for partial scores). Sizes count "
        "four characters as a token. Costs, tokens, steps and seconds are means of a sample; calls "
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
        limits = ", ".join(f"{name} {value}" for name, value in each.limits.items()) or "the usual"
        cells = (folder.name, each.model, each.sub_model, each.environment, limits, each.engine)
        yield _row(cells)


def _table(rows: Mapping[Place, Figures]) -> Iterator[str]:
    heads = ("task", "model", "method", "size", "samples", "score", "95 %", "cost", "tokens")
    yield _row((*heads, "steps", "calls", "seconds", "remarks"))
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for place, each in rows.items():
        remarks = [f"{each.impossible} not possible"] if each.impossible else []
        remarks += [f"{each.failed} failed, to be tried again"] if each.failed else []
        score = "" if each.score is None else f"{each.score:.1f}"
        is_certain = each.score is None or each.impossible == each.samples
        spread = "" if is_certain else f"{each.low:.0f}–{each.high:.0f}"
        yield _row(
            (
                *(place.task, place.model, place.method, show_size(place.size)),
                *(str(each.samples), score, spread, "" if is_certain else _money(each.cost_usd)),
                _shown(each.tokens, "{:,.0f}"),
                _shown(each.steps, "{:.1f}"),
                _shown(each.calls, "{:.1f}"),
                _shown(each.seconds, "{:.1f}"),
                "; ".join(remarks),
            )
        )


def _published(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What the paper has for tasks like these; not the same ones, and it says so."""
    names = {pooled_task(each.task).partition(",")[0] for each in outcomes}
    like = [each for each in PUBLISHED if each.like in names]
    if not like:
        return
    yield from ("", "## From the paper", "")
    yield (
        f"**A different setting:** RLM with GPT-5 at depth 1, on the paper's own data, sizes and "
        f"scorers ({SOURCE}). The tasks here are generated in the manner of those benchmarks, and "
        f"are not the same questions: the numbers give an order of magnitude, no more."
    )
    yield from ("", "| benchmark of the paper | like | score | samples |", "|---|---|--:|--:|")
    for each in like:
        yield _row((each.benchmark, f"`{each.like}`", f"{each.score:g}", str(each.samples)))
    yield ""


def _row(cells: Sequence[str]) -> str:
    safe = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(safe)} |"


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.4f}" if usd else "$0"


# -- pictures -------------------------------------------------------------------------------------

Pointing = Callable[[int, Figures], Point | None]
"""What a picture shows of figures at a size."""


def _pictures(rows: Mapping[Place, Figures]) -> Iterator[tuple[str, str]]:
    for task in dict.fromkeys(place.task for place in rows):
        own = {place: each for place, each in rows.items() if place.task == task}
        names = {place.size: show_size(place.size) for place in own}
        counts = sorted({each.samples for each in own.values()})
        samples = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        title = f"{task}, {samples} sample{'' if samples == '1' else 's'} a point"
        yield (
            f"{_file_name(task)}-score.svg",
            chart(title, "score, percent", _series(own, _score), size_names=names, top=100.0),
        )
        priced = any(each.cost_usd for each in own.values()) and not any(
            each.cost_usd is None and each.samples > each.impossible for each in own.values()
        )
        unit = "US dollars a sample, and quartiles" if priced else "tokens a sample, and quartiles"
        series = _series(own, _cost if priced else _tokens)
        if series:
            yield f"{_file_name(task)}-cost.svg", chart(title, unit, series, size_names=names)


def _series(rows: Mapping[Place, Figures], point: Pointing) -> list[Series]:
    """A line for each model and method: the colour is the method's, the dashes are the model's."""
    models = list(dict.fromkeys(place.model for place in rows))
    found = []
    for method, colour in zip(METHODS, range(3), strict=True):
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
