"""The list of runs: its rows, search over all runs, and what people say about them."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from rlm.errors import ConfigError
from rlm.records.judging import Condition, Judgment, JudgmentChange, Judgments, parse_condition
from rlm.records.judging.values import values_of_outline
from rlm.records.trajectories import Skipped
from rlm.viewer.library import Library, Listing, Unknown
from rlm.viewer.outlines import Node
from rlm.viewer.searching import RunSearch
from rlm.web.responses import without_paths

__all__ = ["GroupedSource", "RunList", "ScoredSource"]

LISTED_CHARS = 500
ANSWER_CHARS = 300
MAX_MODELS = 8
MAX_REASONS = 10
FIRST_ANSWER_SECONDS = 1.0
OLD_SECONDS = 10.0
"""If the list that a condition is applied to is older, it is rebuilt after the answer."""

TOO_OLD_SECONDS = 60.0
"""How old the list may be that a condition is applied to."""

FRESH_SECONDS = 2.0
"""How old the list may be in which a search does not find a run."""

NOTHING = Judgment()


@runtime_checkable
class ScoredSource(Protocol):
    """What a RunSource may also offer: the scores of runs, by id."""

    def scores(self) -> Mapping[str, float]: ...


@runtime_checkable
class GroupedSource(Protocol):
    """What a RunSource may also offer: the kind and name of each run's group."""

    def groups(self) -> Mapping[str, tuple[str, str]]: ...


class RunList:
    """The runs of one library as rows. Methods block, so call them in threads.

    Without `judgments` nothing can be judged, and without `index` search is unavailable over texts.
    """

    def __init__(
        self, library: Library, judgments: Judgments | None = None, index: Path | None = None
    ) -> None:
        self._library = library
        self._judgments = judgments
        self._search = None if index is None else RunSearch(library, index)
        self._nodes: tuple[float, dict[str, Node]] = (0.0, {})
        self._listing = threading.Lock()
        self._fitting: list[_Fitting] = []
        if judgments is not None:
            library.also_watched.append(judgments.path)

    @property
    def can_judge(self) -> bool:
        return self._judgments is not None

    @property
    def can_search(self) -> bool:
        return self._search is not None

    def start(self) -> None:
        if self._search is not None:
            self._search.start()

    def close(self) -> None:
        if self._search is not None:
            self._search.close()

    # -- rows --------------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        """Return all rows, what could not be read, and the progress of the first pass."""
        found = self._listed(FIRST_ANSWER_SECONDS)
        skipped = found.skipped
        about = self._about(skipped)
        first_reasons = [*skipped.notices, *skipped.first][:MAX_REASONS]
        answer: dict[str, Any] = {
            "runs": [about.row(node) for node in found.runs],
            "skipped": {
                "count": skipped.total,
                "reasons": [without_paths(each) for each in first_reasons],
            },
        }
        return answer if found.reading is None else {**answer, "reading": found.reading}

    def _listed(self, wait_seconds: float) -> Listing:
        is_whole = self._library.wait_until_read(wait_seconds)
        found = self._library.listing(0.0)
        made = time.monotonic() if is_whole else 0.0
        self._nodes = made, {node.outline.run_id: node for node in found.runs}
        return found

    def _about(self, skipped: Skipped) -> "_About":
        """Return what is known beside the records; report and leave out what can't be read."""
        about = _About()
        source = self._library.source
        try:
            about.notes = self._library.notes()
            if isinstance(source, ScoredSource):
                about.scores = source.scores()
            if isinstance(source, GroupedSource):
                about.groups = source.groups()
        except ConfigError as error:
            skipped.notice(str(error))
        try:
            if self._judgments is not None:
                about.judgments = self._judgments.all()
        except ConfigError as error:
            skipped.notice(str(error))
        return about

    # -- search ------------------------------------------------------------------------------

    def search(self, query: str, where: str, limit: int, stop: threading.Event) -> dict[str, Any]:
        """Return the newest runs that have the words in a text and fit a condition."""
        condition = parse_condition(where) if where.strip() else None
        if self._search is None:
            raise ConfigError("texts of an opened file are searched run by run")
        about = self._about(Skipped())
        rows = _Rows(
            self._known(0.0 if condition is None else TOO_OLD_SECONDS),
            about,
            condition,
            self._fitting,
        )
        answer = self._search.search(query, rows, limit, stop)
        if rows.missed:  # A run is newer than the list.
            rows = _Rows(self._known(FRESH_SECONDS), about, condition, self._fitting)
            answer = self._search.search(query, rows, limit, stop)
        if condition is not None and time.monotonic() - self._nodes[0] > OLD_SECONDS:
            threading.Thread(target=self._known, args=(OLD_SECONDS,), daemon=True).start()
        return answer

    def _known(self, max_age: float) -> dict[str, Node]:
        """Return the root runs by id; rebuild the list if it is older, or there is none.

        0 stands for any age: listing thousands of runs takes longer than a search.
        """
        with self._listing:
            made = self._nodes[0]
            if not made or (max_age and time.monotonic() - made > max_age):
                self._listed(0.0)
            return self._nodes[1]

    # -- judging -----------------------------------------------------------------------------

    def judgment(self, run_id: str) -> dict[str, Any]:
        """Return what people said about a root run."""
        judgments = self._checked(run_id)
        return _plain(judgments.get(run_id))

    def judge(self, run_id: str, change: JudgmentChange) -> dict[str, Any]:
        """Change what people say about a root run, and return the result."""
        judgments = self._checked(run_id)
        return _plain(judgments.change(run_id, change))

    def _checked(self, run_id: str) -> Judgments:
        if self._judgments is None:
            raise ConfigError("runs on this page can't be judged")
        file = self._library.find(run_id)
        node = file.forest().nodes.get(run_id)
        if node is None and self._library.unstarted(file) is None:
            raise Unknown("there is no such run here")
        if node is not None and node.root != run_id:
            raise ConfigError("a run is judged with its children: open its root run")
        return self._judgments


class _About:
    """What is known of runs beside their records."""

    def __init__(self) -> None:
        self.notes: Mapping[str, str] = {}
        self.scores: Mapping[str, float] = {}
        self.groups: Mapping[str, tuple[str, str]] = {}
        self.judgments: Mapping[str, Judgment] = {}

    def row(self, node: Node) -> dict[str, Any]:
        """Return a run as the list shows it."""
        run_id = node.outline.run_id
        judgment = self.judgments.get(run_id, NOTHING)
        score = self.scores.get(run_id) if judgment.score is None else judgment.score
        if node.listed is None:  # It stays valid as long as nothing is added to the file.
            node.listed = node.plain(LISTED_CHARS)
            answer = node.outline.answer
            node.listed["answer"] = None if answer is None else answer[:ANSWER_CHARS]
            node.listed["models"] = _models(node)
        about = {"tags": list(judgment.tags), "score": score, "comments": len(judgment.comments)}
        row = {**node.listed, **about}
        if (group := self.groups.get(run_id) or node.group) is not None:
            row["group"] = {"kind": group[0], "name": group[1]}
        note = self.notes.get(run_id)
        return row if note is None else {**row, "note": note[:LISTED_CHARS]}

    def fits(self, node: Node, condition: Condition | None) -> bool:
        if condition is None:
            return True
        return condition.holds(values_of_outline(node.outline, self.judgments, self.scores))


class _Fitting(NamedTuple):
    """The runs that a condition was true of, and what it was applied to."""

    condition: Condition
    nodes: dict[str, Node]
    judgments: Mapping[str, Judgment]
    scores: Mapping[str, float]
    run_ids: set[str]


class _Rows:
    """Rows of runs by id, made when a search has found them."""

    def __init__(
        self,
        nodes: dict[str, Node],
        about: _About,
        condition: Condition | None,
        last: list["_Fitting"],
    ) -> None:
        self._last = last
        self._nodes = nodes
        self._about = about
        self._condition = condition
        self.missed = False
        """Whether a requested run was not in the list."""

    def __contains__(self, run_id: object) -> bool:
        node = self._nodes.get(run_id) if isinstance(run_id, str) else None
        if node is None:
            self.missed = True
        return node is not None and self._about.fits(node, self._condition)

    def fitting(self) -> set[str] | None:
        if self._condition is None:
            return None
        about, condition = self._about, self._condition
        for seen in self._last:  # Typing another letter repeats the same condition.
            same = seen.nodes is self._nodes and seen.judgments is about.judgments
            if same and seen.condition == condition and seen.scores == about.scores:
                return seen.run_ids
        found = {run_id for run_id, node in self._nodes.items() if about.fits(node, condition)}
        self._last[:] = [_Fitting(condition, self._nodes, about.judgments, about.scores, found)]
        return found

    def __getitem__(self, run_id: str) -> dict[str, Any]:
        return self._about.row(self._nodes[run_id])


def _models(node: Node) -> list[dict[str, Any]]:
    """Return what a run used of each model, the most used first."""
    found = sorted(node.models.items(), key=lambda each: -each[1].tokens)[:MAX_MODELS]
    return [{"model": name, "tokens": s.tokens, "cost_usd": s.cost} for name, s in found]


def _plain(judgment: Judgment) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(judgment)
    return {"tags": [], "score": None, "comments": [], **plain}
