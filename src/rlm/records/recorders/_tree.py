"""The live tree as lines: what fits a terminal of so many columns and rows, and nothing more.

A line is put together of parts. When there are too many columns, the least important parts are
said shorter, then left out; when there are too many rows, child runs are told as a number.
"""

from itertools import islice
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from rlm.records.recorders._progress import Progress, RunState
from rlm.records.recorders.console import counted, one_line

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_PER_SECOND = 8
EXCERPT_COLUMNS = (12, 60)
"""An excerpt of a prompt is worth showing from so many columns on, and never longer than that."""

ASIDE = 6
"""Parts of this rank and above are left out before others are said shorter."""

ROWS_PER_NESTED_CHILD = 4
AT_ONCE_SECONDS = 2.0
"""A call that began so soon after its cell tells the cell's age as well."""

SECONDS_AS_SUCH, MINUTES_AS_SUCH = 120, 120


class Glyphs(NamedTuple):
    """What the tree is drawn with."""

    branch: str
    last: str
    beside: str
    below: str
    joint: str
    ellipsis: str
    spinner: str


PRETTY = Glyphs("├─ ", "└─ ", "│  ", "   ", " · ", "…", SPINNER)
PLAIN = Glyphs("|- ", "`- ", "|  ", "   ", " - ", "...", "*")


class Line(NamedTuple):
    """One row: a text, and one that is shown faintly after it."""

    text: str
    faint: str = ""
    bold: bool = False

    @property
    def plain(self) -> str:
        return self.text + self.faint


class Part(NamedTuple):
    """A piece of a line. The larger its rank, the earlier it is said shorter or left out."""

    text: str
    rank: int
    short: str = ""


class Drawing:
    """One picture of a moment: `lines` is all that anybody wants of it."""

    def __init__(self, progress: Progress, now: float, columns: int, glyphs: Glyphs) -> None:
        self._progress = progress
        self._now = now
        self._columns = max(1, columns)
        self._glyphs = glyphs

    def lines(self, rows: int, since: float, notes: list[str]) -> list[Line]:
        """At most so many rows: the head, the runs, and the last notes, which are kept."""
        notes = notes[: max(0, rows - 2)]
        body = self._runs(max(0, rows - 1 - len(notes)))
        cut = [Line(self._cut(note)) for note in notes]
        return [self._head(since), *body, *cut]

    # -- the head ----------------------------------------------------------------------------

    def _head(self, since: float) -> Line:
        progress = self._progress
        roots = progress.roots
        started = min((root.started for root in roots.values()), default=since)
        turn = int(self._now * TURNS_PER_SECOND) % len(self._glyphs.spinner)
        parts = [Part(f"{self._glyphs.spinner[turn]} {age(self._now - started)}", 0)]
        if not roots:
            parts.append(Part("reading the context", 1))
            return Line(self._fitted(parts, self._columns), bold=True)
        if waiting := progress.requests_open:
            parts.append(Part(f"{counted(waiting, 'call')} open", 1, f"{waiting:,} open"))
        parts.append(Part(f"{progress.tokens:,} tokens", 2, f"{shortly(progress.tokens)} tokens"))
        if progress.cost_usd is not None:
            parts.append(Part(f"${progress.cost_usd:.4f}", 3, f"${progress.cost_usd:.2f}"))
        parts += self._asides(progress)
        if len(roots) == 1:
            root = next(iter(roots.values()))
            parts += [Part(one_line(root.model, 60), 8), Part(f"run {one_line(root.run_id)}", 9)]
        return Line(self._fitted(parts, self._columns), bold=True)

    def _asides(self, progress: Progress) -> list[Part]:
        found = []
        if journal := progress.from_journal:
            said = f"{stored_replies(journal)}, free"
            found.append(Part(said, 4, f"{journal:,} from the journal"))
        if cache := progress.from_cache:
            found.append(Part(f"{cache:,} from the cache", 6))
        if progress.child_runs:
            found.append(Part(counted(progress.child_runs, "child run"), 7))
        if progress.retries:
            found.append(Part(counted(progress.retries, "retry", "retries"), 5))
        return found

    # -- the runs ----------------------------------------------------------------------------

    def _runs(self, rows: int) -> list[Line]:
        roots = self._progress.roots
        if len(roots) != 1:
            return self._branches(roots, 0, "", rows, "run")
        run = next(iter(roots.values()))
        line = self._run(run, self._glyphs.last, "")
        below = self._branches(
            run.children, run.children_done, self._glyphs.below, rows - 1, "child run"
        )
        return [line, *below][:rows]

    def _branches(
        self, runs: dict[str, RunState], done: int, indent: str, rows: int, noun: str
    ) -> list[Line]:
        """The oldest runs one by one, with what is below them, and how many there are besides."""
        if rows <= 0 or not (runs or done):
            return []
        glyphs = self._glyphs
        shown = _shown(runs, done, rows)
        rest = _rest(len(runs) - shown, done, noun)
        spare = rows - shown - bool(rest)
        lines = []
        for index, run in enumerate(islice(runs.values(), shown)):
            is_last = index == shown - 1 and not rest
            label = f"{noun.removesuffix(' run')} {one_line(run.run_id[-6:])}"
            lines.append(
                self._run(run, indent + (glyphs.last if is_last else glyphs.branch), label)
            )
            deeper = indent + (glyphs.below if is_last else glyphs.beside)
            share = spare // (shown - index)
            below = self._branches(run.children, run.children_done, deeper, share, "child run")
            spare -= len(below)
            lines += below
        return [*lines, Line(self._cut(f"{indent}{glyphs.last}{rest}"))] if rest else lines

    def _run(self, run: RunState, indent: str, label: str) -> Line:
        parts = [Part(label, 5, label[-6:])] if label else []
        parts += [Part(f"step {run.step}", 3)] if run.step else []
        parts.append(Part(one_line(run.doing, 60), 0))
        if run.calls:
            parts.append(Part(_calls(run), 1, _calls_shortly(run)))
        slowest = run.slowest
        waited = "" if slowest is None else age(self._now - slowest.started)
        if slowest is not None and slowest.started - run.since < AT_ONCE_SECONDS:
            parts.append(Part(f"slowest {waited}", 4, waited))
        else:
            parts.append(Part(age(self._now - run.since), 4))
            parts += [Part(f"slowest {waited}", 6)] if waited else []
        text = self._cut(indent + self._fitted(parts, self._columns - cell_len(indent)))
        left = self._columns - cell_len(text) - 2
        if slowest is None or left < EXCERPT_COLUMNS[0] or not text.endswith(f"slowest {waited}"):
            return Line(text)
        excerpt = one_line(slowest.prompt, EXCERPT_COLUMNS[1])
        return Line(text, f": {self._cut(excerpt, left)}" if excerpt else "")

    # -- columns -----------------------------------------------------------------------------

    def _fitted(self, parts: list[Part], columns: int) -> str:
        """The parts in so many columns: asides go first, then all is said shorter, then more go."""
        texts = [part.text for part in parts]
        by_rank = sorted(range(len(parts)), key=lambda at: -parts[at].rank)
        asides = [(at, "") for at in by_rank if parts[at].rank >= ASIDE]
        shorter = [(at, parts[at].short) for at in by_rank if parts[at].short]
        fewer = [(at, "") for at in by_rank if parts[at].rank > 0]
        for at, text in (*asides, *shorter, *fewer):
            if cell_len(self._joined(texts)) <= columns:
                break
            texts[at] = text if texts[at] else ""
        return self._cut(self._joined(texts), columns)

    def _joined(self, texts: list[str]) -> str:
        return self._glyphs.joint.join(filter(None, texts))

    def _cut(self, text: str, columns: int | None = None) -> str:
        """The text in at most so many columns, its end marked where some is left out."""
        columns = self._columns if columns is None else max(1, columns)
        if cell_len(text) <= columns:
            return text
        mark = self._glyphs.ellipsis if columns > len(self._glyphs.ellipsis) else ""
        return set_cell_size(text, columns - len(mark)).rstrip() + mark


def _shown(runs: dict[str, RunState], done: int, rows: int) -> int:
    """How many runs get a row of their own: fewer if what is below them wants rows too."""
    fitting = rows - 1 if len(runs) + bool(done) > rows else len(runs)
    few = max(1, (rows - 1) // ROWS_PER_NESTED_CHILD)
    nested = any(run.children or run.children_done for run in islice(runs.values(), fitting))
    return min(fitting, few) if nested else fitting


def _rest(hidden: int, done: int, noun: str) -> str:
    parts = [f"and {counted(hidden, f'more {noun}')}"] if hidden > 0 else []
    if done:
        parts.append(f"{done:,} done" if hidden > 0 else f"{counted(done, noun)} done")
    return ", ".join(parts)


def _calls(run: RunState) -> str:
    text = f"{run.calls_done:,} of {counted(run.calls, 'call')} done, {len(run.open_calls):,} open"
    text += f", {run.calls_failed:,} failed" if run.calls_failed else ""
    return text + (f", {counted(run.retries, 'retry', 'retries')}" if run.retries else "")


def _calls_shortly(run: RunState) -> str:
    failed = f", {run.calls_failed:,} failed" if run.calls_failed else ""
    return f"{run.calls_done:,}/{run.calls:,} calls{failed}"


def stored_replies(count: int) -> str:
    return f"{counted(count, 'reply', 'replies')} from the journal"


def age(seconds: float) -> str:
    """Whole seconds, then minutes, then hours: rounded down, so that it only ever grows."""
    whole = max(0, int(seconds))
    minutes = whole // 60
    if whole < SECONDS_AS_SUCH:
        return f"{whole} s"
    if minutes < MINUTES_AS_SUCH:
        return f"{minutes} m {whole % 60:02} s"
    return f"{minutes // 60} h {minutes % 60:02} m"


def shortly(number: int) -> str:
    """A large number in few columns: 950, 12k, 3.4M."""
    if number < 1_000:
        return str(number)
    return f"{number // 1_000:,}k" if number < 1_000_000 else f"{number / 1_000_000:,.1f}M"
