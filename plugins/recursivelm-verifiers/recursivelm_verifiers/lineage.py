"""Which request led to which: the edges that verifiers stores beside a trace."""

import hashlib

from verifiers.v1 import SemanticEdge, SemanticEdgeSet

from rlm.messages import ReplyKey

__all__ = ["Lineage", "request_id"]


def request_id(key: ReplyKey) -> str:
    """Return a name for a call that is the same in all its attempts, and no other call has."""
    return f"{key.kind}.{key.step}.{hashlib.sha256(str(key).encode()).hexdigest()[:32]}"


class Lineage:
    """Collects edges while a run makes its requests.

    `continuation`: the next request of the same run. `subagent_call`: from a step to a call that
    its code makes, or to the first request of a child run. `subagent_return`: from those to the
    step that sees their result. `compaction_attempt` and `compaction`: to a request that shortens
    the history, and from it to the request that goes on.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[str, str, str], None] = {}
        self._last: dict[str, str] = {}
        self._results: dict[str, dict[str, str]] = {}
        self._answered: set[str] = set()

    def asked(self, key: ReplyKey) -> str:
        """Note a request, once for all its attempts, and return its name."""
        name = request_id(key)
        if key.kind == "llm":
            self._link(self._last.get(key.path), name, "subagent_call")
            self._results.setdefault(key.path, {})[name] = name
        elif key.kind == "compaction":
            self._link(self._last.get(key.path), name, "compaction_attempt")
            self._results.setdefault(key.path, {})["compaction"] = name
        elif self._last.get(key.path) != name:
            self._own(key.path, name)
        return name

    def answered(self, name: str) -> None:
        """Note that a request has its reply: only such requests are in the trace."""
        self._answered.add(name)

    def edges(self) -> SemanticEdgeSet:
        """Return the edges between requests that have replies."""
        return SemanticEdgeSet(
            edges=[
                SemanticEdge(source_request_id=source, target_request_id=target, type=kind)
                for source, target, kind in self._edges
                if {source, target} <= self._answered
            ]
        )

    def _own(self, path: str, name: str) -> None:
        """Note a request of a run itself: a step, or its final answer."""
        parent = path.rpartition("/")[0]
        if path in self._last:
            self._link(self._last[path], name, "continuation")
        elif parent:
            self._link(self._last.get(parent), name, "subagent_call")
        for what, result in self._results.pop(path, {}).items():
            self._link(result, name, "compaction" if what == "compaction" else "subagent_return")
        self._last[path] = name
        if parent:
            self._results.setdefault(parent, {})[path] = name

    def _link(self, source: str | None, target: str, kind: str) -> None:
        if source is not None and source != target:
            self._edges[source, target, kind] = None
