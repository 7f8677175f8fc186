"""Write the results of `benchmarks/answers.py` as Markdown: targets, tables, the noise."""

from collections.abc import Iterator
from typing import Any

from benchmarks.labelling.grid import RATES, REPLIES, Case, distances, points_of
from benchmarks.labelling.methods import METHODS

__all__ = ["Target", "is_above", "page", "targets"]

Found = dict[Case, dict[str, list[dict[str, Any]]]]
"""Case → method → what was measured for each seed."""

ALL, DEFAULT = 'classify, check="all"', "classify"
MOST_TOKENS, LEAST_CUT = 2.3, 3.0
STANDARD_ERRORS = 2.0
_HEAD = """\
# Labels against tokens

Written by `make bench-answers`; no model asked. `NoisyOracle` plays one that makes mistakes at a
set rate: every figure is the mean of {seeds} seeds with {items:,} items each. {quick}\
All samples: [answers.json](answers.json).

![Label error against tokens](answers.svg)

One pass, two passes and the vote of three send the same prompts as `classify`, complete what is
missing like it, and differ only in what they ask again, so a difference is one of the algorithm.
*Two passes* asks again, in packs, where the two differ. *As taught* is that pattern as the prompt
of the loop taught it before there were operators: labels in words, groups of fifty, disagreements
one by one.
"""
_NOISE = """\
## The noise

The parameters were fixed before anything was measured, and are those of `rlm.testing.NoisyOracle`.
One was taken back after a first measurement: with independent noise, 5 % of the items were marked
at random, which its definition does not have. With such marks, which say nothing, `classify` pays
for second looks that tell it little: in 16 of 36 cases it lay 0.06 to 0.18 points above the curve.

- *Independent*: each label is wrong with the given rate at each look, and any other label is as
  likely. Nothing is marked with `?`, so `classify` is one pass there, and only `check="all"` helps.
- *Concentrated*: a fifth of the items are ambiguous and carry 95 % of the errors, always with the
  same other label. A later look repeats the first one in 80 % of all cases. Half of the ambiguous
  items are marked with `?`, and 5 % of the others.
- Lists of candidates do not help the oracle; a token is four bytes of the real prompt or reply.

A real model differs: the oracle neither reads the guide nor tires in long lists, so packing is
free for it, and its mistakes have no reason that a better prompt could remove.
"""


class Target:
    """A promise, the cases that keep it, and what is to be said about the others."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.kept = 0
        self.missed: list[str] = []

    def add(self, case: Case, kept: bool, told: str) -> None:
        self.kept += kept
        if not kept:
            self.missed.append(f"{case.key}: {told}")

    @property
    def is_met(self) -> bool:
        return not self.missed

    def __str__(self) -> str:
        total = self.kept + len(self.missed)
        met = "**met** in all" if self.is_met else f"**missed** in {len(self.missed)} of"
        return f"{met} {total} cases: {self.words}"


def is_above(methods: dict[str, list[dict[str, Any]]]) -> bool:
    """Return whether `classify` lies above the curve of the baselines, beyond chance."""
    above, error = distances(methods, DEFAULT)
    return above > STANDARD_ERRORS * error


def targets(found: Found) -> list[Target]:
    """Hold the results against the targets, which were set before."""
    below = Target(
        "`classify` lies on or below the curve through one pass, two passes and vote of three "
        f"(*on*: less than {STANDARD_ERRORS:g} standard errors above)"
    )
    cut = Target(
        f'`check="all"` cuts independent errors of 10 % to a third, for at most {MOST_TOKENS} '
        "times the tokens of one pass"
    )
    whole = Target('`classify` and `check="all"` label every item when 20 % are left out')
    for case, methods in found.items():
        below.add(case, not is_above(methods), _distance(methods))
        points = points_of(methods)
        if case.noise == "independent" and case.rate == 0.1:
            times = points["one pass"].error / max(points[ALL].error, 1e-9)
            tokens = points[ALL].tokens
            told = f"errors divided by {times:.1f} for {tokens:.2f} times the tokens"
            cut.add(case, times >= LEAST_CUT and tokens <= MOST_TOKENS, told)
        if case.replies == "omissions":
            missing = sum(row["missing"] for name in (DEFAULT, ALL) for row in methods[name])
            whole.add(case, missing == 0, f"{missing} items without a label, over all seeds")
    return [each for each in (below, cut, whole) if each.kept or each.missed]


def _distance(methods: dict[str, list[dict[str, Any]]]) -> str:
    above, error = distances(methods, DEFAULT)
    return f"{100 * above:+.2f} points from the curve (standard error {100 * error:.2f})"


def page(found: Found, again: Found, facts: dict[str, Any]) -> str:
    """Return the whole page; `again` holds the cases above the curve with other seeds."""
    quick = "**Few items and seeds: these figures mean nothing.** " if facts["quick"] else ""
    parts = [_HEAD.format(quick=quick, seeds=facts["seeds"], items=facts["items"])]
    parts.append("\n".join(["## Targets", "", *_target_lines(found)]))
    if again:
        parts.append("\n".join(["### Measured again", "", *_again_lines(again)]))
    parts.append("\n".join(["## Results", "", *_tables(found)]))
    parts.append(_NOISE)
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _target_lines(found: Found) -> Iterator[str]:
    for target in targets(found):
        yield f"- {target}"
        yield from (f"  - {missed}" for missed in target.missed)
    concentrated = [points_of(found[case]) for case in found if case.noise == "concentrated"]
    if concentrated:
        gains = [
            points["one pass"].error - min(point.error for point in points.values())
            for points in concentrated
        ]
        tokens = [points[DEFAULT].tokens for points in concentrated]
        yield (
            "- Where noise is concentrated, looks at an item repeat each other, and a method gains "
            f"at most {100 * max(gains):.2f} points on one pass. `classify` pays "
            f"{min(tokens):.2f} to {max(tokens):.2f} times its tokens there."
        )


def _again_lines(again: Found) -> Iterator[str]:
    count = max(len(rows) for methods in again.values() for rows in methods.values())
    still = sum(map(is_above, again.values()))
    yield (
        "All cases have the same seeds, so the same items are marked in all of them, and chance "
        "moves many cases at once. Those above the curve were therefore measured again, with "
        f"{count} other seeds: {still or 'none'} of {len(again)} "
        f"{'is' if still == 1 else 'are'} above it then."
    )
    yield ""
    for case, methods in again.items():
        missing = sum(row["missing"] for row in methods[DEFAULT])
        gaps = f"; **{missing} items without a label**, over all seeds" if missing else ""
        yield f"- {case.key}: {_distance(methods)}{gaps}"


def _tables(found: Found) -> Iterator[str]:
    yield "Wrong labels in percent, and tokens as multiples of one pass."
    for noise, labels in dict.fromkeys((case.noise, case.labels) for case in found):
        yield from ("", f"### {noise.capitalize()} noise, {labels} labels", "")
        yield f"| replies | rate | {' | '.join(METHODS)} |"
        yield f"|---|--:|{'--:|' * len(METHODS)}"
        for replies in REPLIES:
            for rate in RATES:
                case = Case(noise, labels, replies, rate)
                if case in found:
                    yield _row(case, found[case])


def _row(case: Case, methods: dict[str, list[dict[str, Any]]]) -> str:
    points = points_of(methods)
    cells = []
    for method in METHODS:
        missing = sum(row["missing"] for row in methods[method])
        point = points[method]
        gaps = f", {missing} missing" if missing else ""
        cells.append(f"{100 * point.error:.2f} @ {point.tokens:.2f}×{gaps}")
    return f"| {REPLIES[case.replies].words} | {100 * case.rate:g} % | {' | '.join(cells)} |"
