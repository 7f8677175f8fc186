"""The texts of a context that can be cited, each with the name by which it is cited."""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from rlm.context.parts import Documents
from rlm.context.stored import StoredContext
from rlm.errors import ConfigError

__all__ = ["citable_texts"]

MAX_JSON_BYTES = 64 << 20
"""Larger JSON is not decoded for citations: that would need several times its size in memory."""


def citable_texts(context: StoredContext) -> Documents:
    """Yield the names and texts of a context, in its order; blocking.

    A file or a plain text is one text; a list or dict of texts, or a folder, has several. Other
    JSON yields its strings, named by where they are, such as `reports[3].title`.
    """
    texts = context.documents_in_order()
    if texts is not None and context.kind == "text":
        yield context.name, next(texts)[1]
    elif texts is not None:
        for number, (name, pieces) in enumerate(texts):
            yield f"[{number}]" if name is None else name, pieces
    elif context.kind == "text":
        yield context.name, _decoded(context.blocks())
    elif context.kind == "json":
        yield from ((name, iter((text,))) for name, text in _strings(_value(context)))


def _decoded(blocks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    try:
        for block in blocks:
            yield decoder.decode(block)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:  # A lone surrogate, cut between two blocks.
        raise ConfigError(f"the context can't be decoded: {error}") from error


def _value(context: StoredContext) -> Any:
    if context.size_bytes > MAX_JSON_BYTES:
        raise ConfigError(
            f"JSON larger than {MAX_JSON_BYTES >> 20} MiB can't be cited; pass texts or files"
        )
    try:
        return json.loads(context.data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the context is no longer valid JSON: {error}") from error


def _strings(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string within a JSON value, and where it is; without recursion."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, each = waiting.pop()
        if isinstance(each, str):
            yield name, each
        elif isinstance(each, list):
            waiting += ((f"{name}[{n}]", each[n]) for n in reversed(range(len(each))))
        elif isinstance(each, dict):
            dot = f"{name}." if name else ""
            waiting += ((f"{dot}{key}", each[key]) for key in reversed(each))
