"""A corpus as the data of a run: its description for the model, and the requests of cells."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rlm._util.limited import in_thread
from rlm._util.text import counted
from rlm.data.corpus.corpus import Corpus
from rlm.data.corpus.fulltext import SearchRefused
from rlm.data.source import DataRefused
from rlm.errors import ConfigError
from rlm.worker.hits import on_one_line

__all__ = ["CorpusSource"]

MAX_HITS = 200
MAX_MATCHES = 2_000
PAGE_DOCUMENTS = 1_000
READ_BYTES = 1 << 20
GREP_SECONDS = 60.0
_MEGA = 1_000_000
_SHOWN_NAMES = 5
_SHOWN_NAME_CHARS = 100


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a corpus for a sandbox. The corpus may have grown since it was made."""

    id: str
    documents: int
    bytes: int
    fields: list[str]
    source: Literal["corpus"] = "corpus"


class CorpusSource:
    """The corpus of a folder. It stays open for all runs that use it.

    A resumed run passes its earlier manifest as `told`, and reads the corpus as it is now.
    """

    def __init__(self, path: Path, told: object = None) -> None:
        self._corpus = corpus = Corpus(path.resolve())
        now = Manifest(corpus.id, len(corpus), corpus.size_bytes, corpus.field_names())
        told = now if told is None else _read_manifest(told, now)
        self.manifest: dict[str, Any] = msgspec.to_builtins(told)
        self.id: str = self.manifest["id"]
        self._answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "search": self._search,
            "grep": self._grep,
            "read": self._read,
            "sample": self._sample,
            "names": self._names,
        }

    @property
    def description(self) -> str:
        corpus = self._corpus
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in corpus.kinds())
        text = (
            f"a corpus of {counted(len(corpus), 'document')}, {corpus.size_bytes / _MEGA:,.1f} MB "
            f"({kinds}); `context` maps a document's number or name to its text."
        )
        if names := [name for _, name, _ in corpus.names(limit=50) if _is_plain(name)]:
            text += f" The first documents: {', '.join(names[:_SHOWN_NAMES])}."
        if fields := [name for name in corpus.field_names() if _is_plain(name)]:
            text += f" Fields for where=: {', '.join(fields)}."
        return text

    @property
    def spec(self) -> dict[str, Any] | None:
        return {"source": "corpus", "path": str(self._corpus.path), "told": self.manifest}

    def preview(self, chars: int) -> str:
        """Return the beginnings of the first documents."""
        each = max(100, chars // _SHOWN_NAMES)
        parts = []
        for number, name, _ in self._corpus.names(limit=_SHOWN_NAMES):
            try:
                beginning = self._corpus.read(number, 0, each)
            except ConfigError as error:
                beginning = f"({error})"
            parts.append(f"[{number}] {on_one_line(name)}:\n{indent(beginning, '    ')}")
        return "\n".join(parts)[:chars]

    async def answer(self, method: str, arguments: dict[str, Any]) -> str:
        """Return the answer to a request of a cell, as JSON."""
        if method not in self._answers:
            raise DataRefused(f"a corpus has no method {method[:60]!r}")

        def work() -> str:
            return json.dumps(self._answers[method](arguments))

        try:
            return await in_thread(work)
        except (SearchRefused, ConfigError) as error:
            raise DataRefused(str(error)) from None
        except KeyError as error:
            raise DataRefused(str(error.args[0])) from None

    def close(self) -> None:
        """Keep it open: it only maps files, and another run may use it."""

    # -- requests ------------------------------------------------------------------------------

    def _search(self, given: dict[str, Any]) -> Any:
        query, where = _text(given, "query"), given.get("where")
        if where is not None and not isinstance(where, dict):
            raise DataRefused("where must be a dict of field names and values")
        hits = self._corpus.search(query, _number(given, "k", 10, 1, MAX_HITS), where)
        return [hit._asdict() for hit in hits]

    def _grep(self, given: dict[str, Any]) -> Any:
        found = self._corpus.grep(
            _text(given, "pattern"),
            _number(given, "max_matches", 50, 1, MAX_MATCHES),
            given.get("ignore_case") is True,
            seconds=GREP_SECONDS,
        )
        matches = [match._asdict() for match in found]
        return {"matches": matches, "complete": found.complete, "left_out": len(found.changed)}

    def _read(self, given: dict[str, Any]) -> Any:
        key = given.get("document")
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise DataRefused("a document is identified by a number or a name")
        start = _number(given, "start", 0, 0, 1 << 60)
        size = _number(given, "size", READ_BYTES, 0, READ_BYTES)
        return self._corpus.part(key, start, size)._asdict()

    def _sample(self, given: dict[str, Any]) -> Any:
        seed = given.get("seed", 0)
        if not isinstance(seed, int | str):
            raise DataRefused("a seed must be a number or a string")
        return self._corpus.sample(_number(given, "n", 10, 0, PAGE_DOCUMENTS), seed)

    def _names(self, given: dict[str, Any]) -> Any:
        limit = _number(given, "limit", PAGE_DOCUMENTS, 1, PAGE_DOCUMENTS)
        return self._corpus.names(_number(given, "after", 0, 0, 1 << 60), limit)


def _read_manifest(told: object, now: Manifest) -> Manifest:
    """Return a recorded manifest; ConfigError if it belongs to another corpus."""
    try:
        read = msgspec.convert(told, Manifest)
    except msgspec.ValidationError:
        read = None
    if read is None or read.id.rpartition("-")[0] != now.id.rpartition("-")[0]:
        raise ConfigError("that folder now contains another corpus")
    return read


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise DataRefused(f"{name} must be a string")
    return value


def _number(given: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DataRefused(f"{name} must be a number from {least:,} to {most:,}")
    return value


def _is_plain(name: str) -> bool:
    """Return whether a name may be in a prompt: short, and without control characters."""
    return len(name) <= _SHOWN_NAME_CHARS and name.isprintable()
