"""A corpus that stays on the host, as cells see it: `context`, `ctx.search`, `ctx.grep`.

Nothing here opens a file: every text comes from a call of kind `data`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from . import wire
from .calls import meta
from .channel import question
from .hits import counted, on_one_line
from .replies import AwaitableList
from .tables import QueryFailed

__all__ = ["METHODS", "Corpus", "CorpusView", "Found"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .calls import Dialogue

METHODS = (
    (
        "search(query, k=10, where=None)",
        'best documents by words, "a phrase", +must, -not: dicts of id, name, score, line, text',
    ),
    ("grep(pattern, max_matches=50, ignore_case=False)", "matching lines of all documents"),
    ("sample(n, seed=0)", "numbers of random documents; `ctx[number]` is a text"),
)
"""The names of `ctx` over a corpus that prompts list in place of those over texts."""

_PAGE = 1_000
_MAX_BYTES = 16 << 20


class Found(AwaitableList):
    """Hits of a search or matches of a grep: a list of dicts, printed with names and lines.

    `complete` is false if time ran out before every document was searched.
    """

    def __init__(self, rows: Any = (), complete: bool = True, left_out: int = 0) -> None:
        super().__init__(rows)
        self.complete = complete
        self.left_out = left_out

    def _plain(self) -> Found:
        return self

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [_line(row) for row in self]
        if not self.complete:
            lines.append("(time ran out before the end: complete is False)")
        if self.left_out:
            lines.append(f"({counted(self.left_out, 'file')} changed since indexing and left out)")
        return "\n".join(lines) or "(nothing found)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, so that any Python can load a saved chat."""
        return list, (list(self),)


class Corpus(Mapping):  # type: ignore[type-arg]
    """Documents by number, fetched one by one: `context[number]`, `context["name"]`, `len`.

    Iterating yields the numbers; `names(after=0)` a page of (number, name, bytes).
    """

    def __init__(self, told: dict[str, Any], answer_of: Callable[[Dialogue], Any]) -> None:
        self._source_id: str = told["id"]
        self._count: int = told["documents"]
        self._bytes: int = told["bytes"]
        self.fields: list[str] = list(told["fields"])
        self._answer_of = answer_of

    def search(self, query: str, k: int = 10, where: Any = None) -> Found:
        """Return the documents that match best, each with its best passage."""
        given = {"query": str(query), "k": k, **({} if where is None else {"where": where})}
        return Found(self._ask("search", given))

    def grep(self, pattern: str, max_matches: int = 50, ignore_case: bool = False) -> Found:
        """Return the first lines that match a regular expression, in the order of documents."""
        given = {"pattern": pattern, "max_matches": max_matches, "ignore_case": bool(ignore_case)}
        told = self._ask("grep", given)
        return Found(told["matches"], told["complete"], told["left_out"])

    def sample(self, n: int, seed: Any = 0) -> list[int]:
        """Return the numbers of n documents, chosen at random but always the same for a seed."""
        found: list[int] = self._ask("sample", {"n": n, "seed": seed})
        return found

    def names(self, after: int = 0, limit: int = _PAGE) -> list[tuple[int, str, int]]:
        """Return number, name and bytes of the documents that follow number `after`."""
        return [tuple(each) for each in self._ask("names", {"after": after, "limit": limit})]

    def read(self, document: Any, start: int = 0, size: int = 1 << 20) -> str:
        """Return part of a document, by offsets in its UTF-8 bytes; at most 1 MiB."""
        told = self._ask("read", {"document": document, "start": start, "size": size})
        text: str = told["text"]
        return text

    def __getitem__(self, key: Any) -> str:
        parts, start = [], 0
        while True:
            told = self._ask("read", {"document": key, "start": start})
            if told["size"] > _MAX_BYTES:
                raise ValueError(
                    f"document {key!r} has {told['size']:,} bytes: read a part, such as "
                    f"context.read({key!r}, 0, 1_000_000)"
                )
            parts.append(told["text"])
            start = told["end"]
            if start >= told["size"]:
                return "".join(parts)

    def __iter__(self) -> Iterator[int]:
        last = 0
        while page := self.names(last):
            for number, _, _ in page:
                yield number
            last = page[-1][0]

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        try:
            self._ask("read", {"document": key, "size": 0})
        except QueryFailed:
            return False
        return True

    def __repr__(self) -> str:
        return f"<corpus: {counted(self._count, 'document')}, {self._bytes:,} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("a corpus stays on the host: it can't be stored")

    def _ask(self, method: str, arguments: dict[str, Any]) -> Any:
        return self._answer_of(_request(self._source_id, method, arguments))


class CorpusView:
    """`ctx` over a corpus: the methods of `context`, and `ctx[number]`."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self.search, self.grep, self.sample = corpus.search, corpus.grep, corpus.sample
        self.read, self.names = corpus.read, corpus.names

    def __getitem__(self, key: Any) -> str:
        return self._corpus[key]

    def __len__(self) -> int:
        return len(self._corpus)

    def describe(self) -> str:
        """Describe the corpus: how many documents, and the fields that `where` compares."""
        return f"{self._corpus!r}; fields: {', '.join(self._corpus.fields) or 'none'}"

    def __repr__(self) -> str:
        return f"<ctx: {counted(len(self), 'document')}; search grep sample read names describe>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"ctx.{name} works on texts, but the context is a corpus; write, for example, "
            "ctx.search('words') or ctx.grep(r'pattern')"
        )

    def _peek(self, n: int = 2000) -> str:
        """Return the names of the first documents, as text of at most n characters."""
        names = self.names(limit=50)
        return "\n".join(f"[{number}] {on_one_line(name)}" for number, name, _ in names)[:n]

    def _tail(self, n: int = 2000) -> str:
        """Return the same as `peek`: the order of a corpus means nothing."""
        return self._peek(n)

    def _length(self) -> int:
        """Return the number of documents."""
        return len(self._corpus)


def _line(row: dict[str, Any]) -> str:
    """Format a hit; further lines of its text are indented, so that they can't look like a hit."""
    text = "\n    ".join(row["text"].splitlines())
    return f"[{row['id']}] {on_one_line(row['name'])}:{row['line']}: {text}"


def _request(source_id: str, method: str, arguments: dict[str, Any]) -> Dialogue:
    """Ask the host: a dialogue of one call."""
    given = {"source": source_id, "method": method, "arguments": arguments}
    answer = yield question("data", wire.to_json(given), [])
    meta(answer, QueryFailed)
    return json.loads(answer.text(1))
