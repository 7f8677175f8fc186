"""The job of searching files; `rlm._util.limited` runs it, as a client's pattern may never end.

It opens files as the gateway does, below roots that it has been given.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from rlm._util import patterns
from rlm._util.patterns import compile_for_lines
from rlm.errors import ConfigError
from rlm.gateway.bm25 import Corpus
from rlm.gateway.denial import Denials
from rlm.gateway.listing import files_below
from rlm.gateway.paths import Root
from rlm.gateway.refusals import Refused
from rlm.worker.search import words_of

__all__ = ["search"]

SNIFFED_BYTES = 8_192
LONGEST_LINE_CHARS = 20_000
SHOWN_CHARS = 400
BLOCK_BYTES = 1 << 20

patterns.prepare()  # Once, in the process that the others are forked from.


def search(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Hits as they are found, and at the end, if it comes to that, why there are no more."""
    try:
        yield from _hits(job)
    except Refused as refusal:
        yield {"refused": str(refusal)}
    except (re.error, OverflowError, RecursionError) as error:
        yield {"refused": f"this is no regular expression: {error}"}


def _hits(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    root = _root(job)
    names = _files(root, job)
    if job["ranked"]:
        yield from _ranked(root, names, job)
    else:
        yield from _matching(root, names, job)


def _root(job: dict[str, Any]) -> Root:
    """The folder that the gateway opened, and not what may have been put in its place since."""
    try:
        root = Root(job["folder"], job["root"], Denials(job["denied"]))
    except ConfigError:
        raise Refused("this root is gone") from None
    if root.identity != tuple(job["identity"]):
        root.close()
        raise Refused("this root is gone")
    return root


def _files(root: Root, job: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The files to look through: those that are named, or all below a folder."""
    if job["files"] is not None:
        yield from (tuple(parts) for parts in job["files"])
        return
    wanted = compile_for_lines(str(job["names"])) if job["names"] else None
    for entry in files_below(root, job["below"], ignored=job["ignored"]):
        if wanted is None or wanted.search(entry.path):
            yield entry.parts


def _matching(
    root: Root, names: Iterator[tuple[str, ...]], job: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    pattern = compile_for_lines(job["query"], ignore_case=job["ignore_case"])
    left = job["most"]
    after = (tuple(job["after"][0]), job["after"][1]) if job["after"] else ((), 0)
    for parts in names:
        for number, text in _lines(root, parts):
            if (parts, number) <= after:
                continue
            if pattern.search(text):
                yield {"parts": parts, "line": number, "text": text[:SHOWN_CHARS]}
                left -= 1
                if left <= 0:
                    return


def _ranked(
    root: Root, names: Iterator[tuple[str, ...]], job: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    words = words_of(job["query"])
    if not words:
        raise Refused("the query has no words; give some, or a regular expression")
    corpus = Corpus(words)
    having = [parts for parts in names if corpus.count(_lines(root, parts))]

    def lines_of(parts: tuple[str, ...]) -> Callable[[], Iterator[tuple[int, str]]]:
        return lambda: _lines(root, parts)

    files = (("/".join(parts), lines_of(parts)) for parts in having)
    for score, name, number, text in corpus.best(files, job["most"]):
        parts = name.split("/")
        yield {
            "parts": parts,
            "line": number,
            "text": text[:SHOWN_CHARS],
            "score": round(score, 4),
        }


def _lines(root: Root, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The lines of a text file; none of one that is binary, or is gone."""
    try:
        fd = root.open_file(parts)
    except Refused:
        return
    with os.fdopen(fd, "rb") as file:
        if b"\0" in file.read(SNIFFED_BYTES):
            return
        file.seek(0)
        number = 0
        while line := file.readline(BLOCK_BYTES):
            number += 1
            yield number, line[:LONGEST_LINE_CHARS].decode("utf-8", "replace").rstrip("\r\n")
            while line and not line.endswith(b"\n"):
                line = file.readline(BLOCK_BYTES)
