"""The way to full Python: a session of `local`, with all that can be carried into it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlm.environments.monty.carry import deliver
from rlm.environments.monty.doubts import Doubt
from rlm.environments.monty.repl import Repl
from rlm.errors import ConfigError
from rlm.protocols import ContextSource, Environment, Host, Session

__all__ = ["Mover", "note_of"]

_ALTERNATIVE = "Write it without, or use environment='local', or monty with promote=True"


class Mover:
    """Opens sessions for one that has to move; `asked` counts what their cells ask the host."""

    def __init__(self, local: Environment | None, host: Host, options: dict[str, Any]) -> None:
        self._local = local
        self._host = host
        self._options = options
        self.asked = 0

    @property
    def may_move(self) -> bool:
        """Whether there is anywhere to go."""
        return self._local is not None

    async def opened(
        self, repl: Repl, doubt: Doubt | None, contexts: Mapping[str, ContextSource]
    ) -> tuple[Session, dict[str, str]]:
        """A fresh session with all that can be carried into it; and what was lost, and why.

        ConfigError if there is none to be had, or no isolation for it on this machine.
        """
        if self._local is None:
            raise ConfigError(_ALTERNATIVE)
        session = await self._local.open(self, self._options)
        try:
            lost = await deliver(await repl.cargo(doubt), contexts, session)
        except BaseException:
            await session.close()
            raise
        self.asked = 0
        return session, lost

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """The Host protocol, counted."""
        self.asked += 1
        return await self._host.answer(kind, arguments, parts)


def note_of(why: str, lost: Mapping[str, str]) -> str:
    """One line for the model."""
    ending = f"; lost: {', '.join(lost)}" if lost else ""
    return f"{why}: the session goes on in `local`{ending}"
