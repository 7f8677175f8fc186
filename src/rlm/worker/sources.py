"""Data that stays on the host, by its kind: tables, and corpora of documents."""

from __future__ import annotations

import json

from .corpora import Corpus, CorpusView
from .tables import Table, Tables, TablesView, made_tables

__all__ = ["made_source", "view_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .calls import Dialogue


def made_source(
    data: bytes | bytearray, answer_of: Callable[[Dialogue], Any]
) -> Table | Tables | Corpus:
    """Return the context that a manifest describes; raise ValueError if its kind is unknown.

    `answer_of` carries out a dialogue with the host.
    """
    told = json.loads(bytes(data).decode("utf-8", "surrogatepass"))
    if told.get("source") == "corpus":
        return Corpus(told, answer_of)
    if told.get("source") == "tables":
        return made_tables(told, answer_of)
    raise ValueError(f"unknown kind of source in this sandbox: {told.get('source')!r}")


def view_of(value: object) -> TablesView | CorpusView | None:
    """Return `ctx` over data that stays on the host; None for any other context."""
    if isinstance(value, Corpus):
        return CorpusView(value)
    return TablesView(value) if isinstance(value, (Table, Tables)) else None
