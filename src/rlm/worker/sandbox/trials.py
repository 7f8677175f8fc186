"""Tries, in child processes, what this machine allows a sandbox to do."""

from __future__ import annotations

import os

from . import interpreter, namespaces, permits, probes

__all__ = ["Trials"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .orders import Settings
    from .probes import Trial


class Trials:
    """Starts all trials; their results are available after `finish`.

    Create it single-threaded and still dumpable. A problem is "" where there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.readable, self.hidden = interpreter.readable_and_hidden(settings.readable)
        self._kinds = _kinds() if not settings.forbidden("namespaces") else []
        self._first = self._try_namespaces(self._kinds[0]) if self._kinds else None
        self._seccomp = self._begun("seccomp", probes.seccomp)
        self._landlock = self._begun("landlock", probes.landlock)
        self._permits = permits.trial()
        self._zero_copy = probes.zero_copy()

    def finish(self) -> None:
        """Wait for all of them."""
        self.seccomp_problem = self._seccomp()
        self.landlock_problem = self._landlock()
        self.permits_problem = self._permits()
        self.zero_copy = self._zero_copy()
        self.namespaces, self.pid_namespace_problem = "", ""
        problem = self.settings.forbidden("namespaces")
        self.namespace_problems = [f"namespaces: {problem}"] if problem else []
        self._find_namespaces()

    def _begun(self, layer: str, begin: Callable[[], Callable[[], str]]) -> Callable[[], str]:
        problem = self.settings.forbidden(layer)
        return (lambda: problem) if problem else begin()

    def _find_namespaces(self) -> None:
        """Choose the first way into namespaces that worked in a child.

        Entering one is not enough: some systems allow user namespaces but no mounts in them.
        """
        for kind in self._kinds:
            trial = self._first or self._try_namespaces(kind)
            self._first = None
            no_pids, problem = trial.outcome()
            if not problem:
                self.namespaces, self.pid_namespace_problem = kind, no_pids
                return
            self.namespace_problems.append(f"namespaces as {kind}: {problem}")

    def _try_namespaces(self, kind: str) -> Trial:
        def action() -> str:
            namespaces.move(kind, self.readable, self.hidden, self.settings.listable)
            _, no_pids = probes.attempt(lambda: None, namespaces.fork_into_pid_namespace)
            namespaces.enter_session(self.settings.scratch_bytes)
            return no_pids

        return probes.Trial(action)


def _kinds() -> list[str]:
    return [namespaces.ROOT, namespaces.USER] if os.geteuid() == 0 else [namespaces.USER]
