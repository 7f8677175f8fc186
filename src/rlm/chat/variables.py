"""Take the variables out of a session, and restore them in another.

The host runs its own cell (`inside.py`) and fetches a text, which works in any session. The bytes
that it gets are not trusted, only stored; only a sandbox unpickles them.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import msgspec
from msgspec import Struct

from rlm._util.untrusted import JsonBounds, read_json
from rlm.chat.saved import MAX_VARIABLES_BYTES, SavedVariables
from rlm.context import StoredContext
from rlm.errors import SessionError
from rlm.protocols import ContextSource, Session

__all__ = ["Variables", "bring_back", "take"]

HELD, BYTES = "_rlm_saved", "_rlm_bytes"
"""Hidden names in the REPL; `inside.py` uses them too."""
CELL_SECONDS = 60.0
HELD_BYTES = 16 << 20
MAX_NAMES = 10_000
REPORT = JsonBounds(8_000_000, 10 * MAX_NAMES, depth=4)
MAX_PIECES = 1_000
"""Each piece but the last holds 6 MiB, so a session that sends more would never end."""
MAX_DEFINITIONS_CHARS = 4_000_000


class Variables(Struct, frozen=True):
    """What was taken: facts for `chat.json`, and bytes; or the `problem`."""

    facts: SavedVariables = SavedVariables()
    data: IO[bytes] | None = None
    problem: str = ""


class _Report(Struct):
    """The report of a sandbox, checked on arrival."""

    names: tuple[str, ...] = ()
    imports: dict[str, str] = {}
    definitions: tuple[tuple[str, str], ...] = ()
    lost: dict[str, str] = {}
    problem: str = ""


async def take(session: Session, contexts: Sequence[str]) -> Variables:
    """Return everything the code of the session has bound, as far as it can be saved."""
    data: IO[bytes] = SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115 - its reader closes it
    try:
        call = f"['save'](globals(), {list(contexts)!r}, {MAX_VARIABLES_BYTES})"
        report = await _ask(session, call)
        size = pieces = 0
        while piece := await session.fetch(HELD):
            chunk = base64.b64decode(piece, validate=True)
            size += len(chunk)
            pieces += 1
            if size > MAX_VARIABLES_BYTES or pieces > MAX_PIECES:
                raise SessionError("the variables are larger than reported")
            data.write(chunk)
    except (SessionError, binascii.Error) as error:
        data.close()
        return Variables(problem=str(error))
    facts = SavedVariables(
        names=report.names,
        imports=report.imports,
        definitions=report.definitions,
        lost=report.lost,
        size_bytes=size,
    )
    return Variables(facts, data)


async def bring_back(
    session: Session, facts: SavedVariables, data: ContextSource
) -> dict[str, str]:
    """Define functions and classes, then bind the variables; return what is lost, and why."""
    imported = await _ask(session, f"['import_all'](globals(), {facts.imports!r})")
    await session.load(BYTES, data)
    await _ask(session, f"['restore_first'](globals(), {BYTES})")
    failed = await _define(session, facts.definitions)
    report = await _ask(session, call := f"['restore'](globals(), {BYTES})")
    if failed:  # They may have needed variables, which exist now.
        again = [each for each in facts.definitions if each[0] in failed]
        failed = await _define(session, again)
        report = await _ask(session, call)
    await session.load(BYTES, StoredContext("bytes", b"", ""))
    lost = {**failed, **imported.lost}
    if report.problem:
        known = {*facts.imports, *(name for name, _ in facts.definitions)}
        lost |= {name: report.problem for name in facts.names if name not in known}
    return lost


async def _define(session: Session, definitions: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Run one cell per definition, so that each can be found again; return those that failed."""
    failed = {}
    for name, source in definitions:
        result = await session.execute(source, timeout_seconds=CELL_SECONDS)
        if result.error is not None:
            failed[name] = f"{result.error.type}: {result.error.message}"[:256]
    return failed


async def _ask(session: Session, call: str) -> _Report:
    """Run a function of `inside.py` in the session and return its report."""
    made = "(lambda space: exec(%r, space) or space)({'__name__': 'rlm_chats_inside'})"
    code = f"{HELD} = {made % _source()}{call}"
    result = await session.execute(code, timeout_seconds=CELL_SECONDS)
    if result.error is not None:
        raise SessionError(f"{result.error.type}: {result.error.message}"[:300])
    text = await session.fetch(HELD)
    return await asyncio.to_thread(_checked, text or "")


@cache
def _source() -> str:
    return Path(__file__).with_name("inside.py").read_text("utf-8")


def _checked(text: str) -> _Report:
    try:
        plain: Any = read_json(text, REPORT)
        report = msgspec.convert(plain, _Report)
        names = {*report.names, *report.imports, *report.lost, *(n for n, _ in report.definitions)}
        if len(names) > MAX_NAMES or not all(map(_is_name, names)):
            raise ValueError("it has invalid names")
        if sum(len(source) for _, source in report.definitions) > MAX_DEFINITIONS_CHARS:
            raise ValueError("its functions and classes are too long")
    except (ValueError, msgspec.ValidationError) as error:
        raise SessionError(
            f"the session's report on its variables can't be read: {error}"
        ) from error
    return report


def _is_name(name: str) -> bool:
    return name.isidentifier() and len(name) <= 1_000
