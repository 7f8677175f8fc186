"""The context of a run as one text with its documents, from the journal's store or from a file.

Lists and dicts of texts are joined by blank lines, as `ctx` does in a cell. In other JSON every
string counts, item by item.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from rlm._util.slow_numbers import decode
from rlm.context import StoredContext
from rlm.errors import ConfigError
from rlm.events import RunStarted
from rlm.records.journal import ContextFolder
from rlm.records.journal.facts import ContextFacts

__all__ = ["ContextText", "Contexts", "text_of"]

MAX_BYTES = 400_000_000
MAX_DOCUMENTS = 20_000
DESCRIBED_CHARS = 300
BETWEEN = "\n\n"
_HASH = re.compile(r"[0-9a-f]{64}")


class ContextText(Struct, frozen=True):
    """The text of a context, and the name, start and end of each of its documents."""

    text: str
    documents: list[tuple[str, int, int]]
    ranges: list[tuple[int, int]]

    def named(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "start": start, "end": end}
            for name, start, end in self.documents[:MAX_DOCUMENTS]
        ]


class Contexts:
    """Finds contexts by their hash and caches the last one. Called from threads."""

    def __init__(
        self,
        folder: ContextFolder | None,
        given: Callable[[], StoredContext] | None = None,
    ) -> None:
        self._folder = folder
        self._given = given
        self._stored: StoredContext | None = None
        self._last: tuple[str, ContextText] | None = None

    def has(self, started: RunStarted | None) -> bool:
        """Return whether the context of a run is available, without reading it."""
        return started is not None and self._why_not(started) is None

    def text(self, started: RunStarted | None) -> ContextText:
        """Return the context of a run; raise ConfigError, with the reason, if there is none."""
        if started is None:
            raise ConfigError("this run has not reported its context yet")
        why_not = self._why_not(started)
        if why_not is not None:
            raise ConfigError(why_not)
        key = f"{started.context_kind} {started.context_sha256}"
        if self._last is None or self._last[0] != key:
            self._last = key, text_of(self._found(started))
        return self._last[1]

    def _why_not(self, started: RunStarted) -> str | None:
        sha256 = started.context_sha256
        if started.context_kind == "source":
            about = started.context_description[:DESCRIBED_CHARS]
            return f"the context is data that stays where it is, and has no text to show: {about}"
        if not _HASH.fullmatch(sha256):
            return "the log does not say which context this run had"
        if started.context_bytes > MAX_BYTES:
            return f"the context has more than {MAX_BYTES:,} bytes, which is too large to map"
        if self._is_given(sha256) or (self._folder is not None and self._folder.has(sha256)):
            return None
        if self._given is not None:
            return "the file given with --context is not the context of this run"
        return "the context of this run is not stored here; pass it with --context FILE"

    def _is_given(self, sha256: str) -> bool:
        if self._given is None:
            return False
        if self._stored is None:
            self._stored = self._given()
        return self._stored.sha256 == sha256

    def _found(self, started: RunStarted) -> StoredContext:
        if self._is_given(started.context_sha256) and self._stored is not None:
            return self._stored
        kind: Any = started.context_kind
        facts = ContextFacts(kind, started.context_sha256, started.context_bytes, "")
        if self._folder is None or kind not in ("text", "json", "bytes"):
            raise ConfigError("the log does not say which context this run had")
        return self._folder.restore(facts)


def text_of(context: StoredContext) -> ContextText:
    """Join the documents of a context into one text; raise ConfigError if it is not text."""
    if context.kind == "bytes":
        if context.pictures:
            raise ConfigError("the context is a picture: there is no text to map")
        return _joined([("context", context.data.decode("utf-8", "replace"))])
    texts = context.documents_in_order()
    if texts is not None:
        named = ((name, "".join(pieces)) for name, pieces in texts)
        return _joined([(name or f"#{number}", text) for number, (name, text) in enumerate(named)])
    return _joined(list(_items(context.data)))


def _items(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the items of a JSON value with all strings in each; without strings, their JSON."""
    try:
        value = decode(data, object)
    except (ValueError, RecursionError):
        yield "context", data.decode("utf-8", "replace")
        return
    named: list[tuple[str, Any]] = [("context", value)]
    if isinstance(value, dict):
        named = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, list):
        named = [(f"#{number}", item) for number, item in enumerate(value)]
    for name, item in named:
        yield name, "\n".join(_texts(item)) or msgspec.json.encode(item).decode()


def _texts(value: Any) -> Iterator[str]:
    ahead = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            ahead += reversed(list(item.values()))
        elif isinstance(item, list):
            ahead += reversed(item)


def _joined(named: list[tuple[str, str]]) -> ContextText:
    documents, at = [], 0
    for name, text in named:
        documents.append((name, at, at + len(text)))
        at += len(text) + len(BETWEEN)
    ranges = [(start, end) for _, start, end in documents]
    return ContextText(BETWEEN.join(text for _, text in named), documents, ranges)
