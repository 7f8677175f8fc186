"""The texts of a context that can be cited, each with the name by which it is cited."""

import codecs
from collections.abc import Iterable, Iterator

from rlm.context.json_strings import strings_in
from rlm.context.parts import Documents
from rlm.context.stored import StoredContext
from rlm.errors import ConfigError

__all__ = ["citable_texts"]

MAX_JSON_BYTES = 64 << 20
"""Larger JSON is not searched for citations: ten megabytes can take seven seconds."""


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
        yield from ((name, iter((text,))) for name, text in _strings(context))


def _decoded(blocks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    try:
        for block in blocks:
            yield decoder.decode(block)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:  # A lone surrogate, cut between two blocks.
        raise ConfigError(f"the context can't be decoded: {error}") from error


def _strings(context: StoredContext) -> Iterator[tuple[str, str]]:
    if context.size_bytes > MAX_JSON_BYTES:
        raise ConfigError(
            f"JSON larger than {MAX_JSON_BYTES >> 20} MiB can't be cited; pass texts or files"
        )
    try:
        yield from strings_in(context.text())
    except ValueError as error:
        raise ConfigError(f"the strings of this JSON can't be cited: {error}") from error
