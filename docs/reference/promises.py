"""Write the tables of `compatibility.md` that list the promises of the source documents.

The promises are data, `tests/seeds/promises/*.toml`: one entry each, with the test that shows it.
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("compatibility.md")
FOLDER = ROOT / "tests" / "seeds" / "promises"
BEGIN = "<!-- promises: written by `make docs` from tests/seeds/promises -->"
END = "<!-- promises: end -->"
STATES = ("works", "works differently", "needs a service")
FIELDS = {"lines", "promise", "state", "why", "test"}


class Promise(NamedTuple):
    """One promise of a document: the lines that make it, its state, and the test that shows it."""

    name: str
    lines: str
    promise: str
    state: str
    test: str
    why: str = ""


class Document(NamedTuple):
    """The promises of one document; `background` holds the lines that promise nothing."""

    number: str
    title: str
    background: tuple[str, ...]
    promises: tuple[Promise, ...]


def documents(folder: Path = FOLDER) -> tuple[Document, ...]:
    """Return all documents in order; raise ValueError for an invalid entry."""
    return tuple(_document(path) for path in sorted(folder.glob("[0-9]*.toml")))


def systems(folder: Path = FOLDER) -> tuple[Document, ...]:
    """Return what programs for other systems use; here `lines` names a use, not lines."""
    return tuple(_document(path) for path in sorted(folder.glob("[a-z]*.toml")))


def _document(path: Path) -> Document:
    read = tomllib.loads(path.read_text("utf-8"))
    promises = tuple(_promise(path, name, each) for name, each in read["promises"].items())
    return Document(path.stem, read["title"], tuple(read["background"]), promises)


def _promise(path: Path, name: str, given: dict[str, Any]) -> Promise:
    where = f"{path.name}: {name}"
    if unknown := given.keys() - FIELDS:
        raise ValueError(f"{where}: unknown {', '.join(sorted(unknown))}")
    found = Promise(name, **given)
    if found.state not in STATES:
        raise ValueError(f"{where}: the state is one of {', '.join(STATES)}")
    if found.state != "works" and not found.why:
        raise ValueError(f"{where}: say why it {found.state}")
    return found


def render(given: tuple[Document, ...] | None = None) -> str:
    """Return the generated part of the page: the counts, then one table per document."""
    read = (*documents(), *systems()) if given is None else given
    parts = [_counts(read), *map(_table, read)]
    return "\n\n".join([BEGIN, *parts, END])


def _counts(read: tuple[Document, ...]) -> str:
    lines = [f"| document | {' | '.join(STATES)} | in all |", "|---|" + "---|" * (len(STATES) + 1)]
    whole: Counter[str] = Counter()
    for document in read:
        counted = Counter(each.state for each in document.promises)
        whole += counted
        lines.append(_row(f"{document.number}: {document.title}", counted))
    return "\n".join([*lines, _row("all", whole)])


def _row(name: str, counted: Counter[str]) -> str:
    cells = [str(counted[state]) for state in STATES]
    return f"| {name} | {' | '.join(cells)} | {counted.total()} |"


def _table(document: Document) -> str:
    lines = [
        f"### {document.number}: {document.title}",
        "",
        "| lines | promise | state | remarks | shown by |",
        "|---|---|---|---|---|",
    ]
    for each in document.promises:
        path, _, test = each.test.partition("::")
        link = f"[`{test}`](../../{path})"
        cells = (each.lines, each.promise, each.state, each.why, link)
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append("".join(f"| {cell} " if cell else "| " for cell in escaped) + "|")
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with its generated part; raise ValueError if the markers are missing."""
    before, begins, rest = page.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        raise ValueError(f"{PAGE.name} has no lines {BEGIN!r} and {END!r}")
    return before + render() + after


def main() -> None:
    try:
        page = written(PAGE.read_text("utf-8"))
    except ValueError as error:
        sys.exit(str(error))
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
