"""Every request is counted before it is served and recorded before it is answered."""

from collections.abc import Sequence
from typing import Any

from rlm._util.text import sendable
from rlm.gateway.paths import Root
from rlm.gateway.provenance import Provenance, digest
from rlm.gateway.refusals import Refused
from rlm.gateway.sessions import GatewaySession, Sessions

__all__ = ["Answer", "Ledger"]

Answer = dict[str, Any]
"""What a tool says: plain values, with no path of this machine in them."""


class Ledger:
    """Sessions and the record, as all tools use them.

    `shows_names`: clients see paths below the roots; otherwise files are known by handle alone.
    """

    def __init__(self, sessions: Sessions, provenance: Provenance, *, shows_names: bool) -> None:
        self.sessions = sessions
        self.provenance = provenance
        self.shows_names = shows_names

    def begin(self, principal: str, session_id: str) -> GatewaySession:
        """The session of a request, which is counted."""
        session = self.sessions.get(session_id, principal)
        session.count_call(self.sessions.clock())
        return session

    def left(self, session: GatewaySession) -> Answer:
        return session.left(self.sessions.clock())

    def name(self, parts: Sequence[str]) -> Answer:
        """The name of a file as a part of an answer, if names are shown."""
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
