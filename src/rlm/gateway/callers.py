"""Who waits for a run, as far as runs need to know: this is all of MCP that they see."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from rlm.errors import ModelError
from rlm.messages import Reply, Request

__all__ = ["Asking", "Caller", "Gone", "Sampling"]

Sampling = Literal["none", "each", "rounds"]
"""How a client lends its model: not at all, request by request, or all that wait in one round."""


class Gone(Exception):
    """The way to the client is closed; another request may open one."""


class Asking(Struct, frozen=True):
    """The run goes on when the client's model has answered all of these. `state` names the run."""

    requests: dict[str, Request]
    state: str


class Caller(Protocol):
    """One request of a client. `replies` answer an earlier `Asking`, whose `state` comes back."""

    sampling: Sampling
    state: str | None
    replies: Mapping[str, Reply | ModelError]

    async def progress(self, number: int, message: str) -> None: ...

    async def sample(self, request: Request) -> Reply:
        """Ask the client's model; ModelError if it does not answer, `Gone` if nobody is there."""
