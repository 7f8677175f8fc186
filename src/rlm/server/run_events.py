"""The events of a background run as a stream, from its journal: each exactly once.

`Last-Event-ID` continues after the event it names, even after a restart of the server.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from rlm._util.slow_numbers import decode
from rlm.errors import ConfigError
from rlm.records.journal import events_after
from rlm.server.errors import bad_request
from rlm.server.runs import Runs
from rlm.server.settings import Settings
from rlm.server.tokens import Token
from rlm.web.events import HEARTBEAT, RETRY, event
from rlm.web.responses import json_bytes

__all__ = ["events_of_run", "position_of"]

PORTION = 200
FLUSH_SECONDS = 0.15
"""A journal writes events a tenth of a second after they happen."""

_POSITION = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})")


def position_of(text: str | None) -> tuple[int, int]:
    """Parse the position of the last event that a client has seen."""
    if not text:
        return 0, -1
    found = _POSITION.fullmatch(text)
    if found is None:
        raise bad_request("this is not the id of an event", "Last-Event-ID")
    return int(found[1]), int(found[2])


async def events_of_run(
    runs: Runs, run_id: str, token: Token, position: tuple[int, int], settings: Settings
) -> AsyncGenerator[bytes, None]:
    """Yield every event after a position while the run lasts; then the run itself, as `end`."""
    path = runs.journal(run_id, token)
    yield RETRY
    beat = time.monotonic()
    while True:
        live = runs.live(run_id)
        if live is not None:
            live.changed.clear()
        events = await asyncio.to_thread(_portion, path, position)
        for _, chunk in events:
            yield chunk
        if events:
            position, beat = events[-1][0], time.monotonic()
        elif live is None or runs.closing:
            break
        else:
            if await _changed(live.changed, settings.heartbeat_seconds):
                await asyncio.sleep(FLUSH_SECONDS)
            elif time.monotonic() - beat >= settings.heartbeat_seconds:
                beat = time.monotonic()
                yield HEARTBEAT
    if not runs.closing:
        yield event(json_bytes(runs.get(run_id, token)), "end")


async def _changed(changed: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return False
    return True


def _portion(path: Path, position: tuple[int, int]) -> list[tuple[tuple[int, int], bytes]]:
    try:
        found = events_after(path, *position, PORTION)
    except ConfigError:
        return []  # There is no journal yet, or none any more.
    return [((row, line), event(_public(data), "", f"{row}.{line}")) for row, line, data in found]


def _public(data: bytes) -> bytes:
    """Remove the operator's settings, which only the first event of a run contains."""
    if b'"type":"run_started"' not in data[:200]:
        return data
    plain: dict[str, Any] = decode(data, dict[str, Any])
    plain.pop("settings", None)
    return msgspec.json.encode(plain)
