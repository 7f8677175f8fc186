"""The life of a session: one request at a time, and none after its end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from rlm.environments.monty.interpreter import Crashed
from rlm.environments.monty.tracebacks import Raised
from rlm.errors import ProtocolViolation, RLMError, SessionDied

__all__ = ["Life"]


class Life:
    """The first reason for its end is the one that counts."""

    def __init__(self) -> None:
        self._one_request = asyncio.Lock()
        self._ended: RLMError | None = None

    def end(self, error: RLMError) -> None:
        """Let nothing happen any more."""
        self._ended = self._ended or error

    @contextlib.asynccontextmanager
    async def request(self) -> AsyncGenerator[None, None]:
        """Around each request; what the worker does not survive ends the session."""
        async with self._one_request:
            self._check()
            try:
                yield
            except asyncio.CancelledError:
                self.end(SessionDied("the session was killed because its request was cancelled"))
                raise
            except Crashed as error:
                self.end(SessionDied(f"the monty worker is gone: {error}"))
                self._check()
            except ProtocolViolation as error:
                self.end(error)
                raise
            except Raised as error:  # No cell did: something of ours was called.
                self.end(ProtocolViolation(f"a cell broke the REPL's own names: {error}"))
                self._check()

    def _check(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))
