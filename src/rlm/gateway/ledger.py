"""Counts every request before it is served, and records it before it is answered."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from rlm._util.text import sendable
from rlm.gateway.errors import Refused
from rlm.gateway.paths import Root
from rlm.gateway.provenance import Provenance, digest
from rlm.gateway.sessions import GatewaySession, Sessions

__all__ = ["Answer", "Ledger", "cursor_of", "read_cursor"]

MAX_CURSOR_CHARS = 20_000


def cursor_of(value: Any) -> str:
    """Encode where an answer ended, as a text that the client sends back."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def read_cursor(cursor: str, kind: Any) -> Any:
    """Decode a cursor; a client may send anything."""
    if len(cursor) > MAX_CURSOR_CHARS:
        raise Refused("this is not the cursor of an earlier answer")
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return msgspec.convert(value, kind)
    except (binascii.Error, ValueError, RecursionError):
        raise Refused("this is not the cursor of an earlier answer") from None


Answer = dict[str, Any]
"""The answer of a tool: plain values, without any path of this machine."""


class Ledger:
    """Sessions and the record, as all tools use them.

    `shows_names`: clients see paths below the roots; otherwise they know files by handle alone.
    """

    def __init__(self, sessions: Sessions, provenance: Provenance, *, shows_names: bool) -> None:
        self.sessions = sessions
        self.provenance = provenance
        self.shows_names = shows_names

    def begin(self, principal: str, session_id: str) -> GatewaySession:
        """Return the session of a request, and count the request."""
        session = self.sessions.get(session_id, principal)
        session.count_call(self.sessions.clock())
        return session

    def left(self, session: GatewaySession) -> Answer:
        return session.left(self.sessions.clock())

    def name(self, parts: Sequence[str]) -> Answer:
        """Return the name of a file as part of an answer, if names are shown."""
        return {"name": sendable("/".join(parts))} if self.shows_names else {}

    def root(self, session: GatewaySession, name: str | None) -> Root:
        if name is None and session.roots:
            return next(iter(session.roots.values()))
        if name is None or name not in session.roots:
            raise Refused(f"this session has no root {name!r}; roots: {', '.join(session.roots)}")
        return session.roots[name]

    def record(self, session: GatewaySession, tool: str, arguments: Answer, **facts: Any) -> None:
        self.provenance.record(
            principal=session.principal,
            session=session.id,
            tool=tool,
            arguments=digest(arguments),
            **facts,
        )
