"""Values that the engine binds in a REPL besides contexts."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from rlm.protocols import ContextSource
from rlm.worker import tagged

__all__ = [
    "ANSWER_AFTER_SETUP",
    "FRESH_ANSWER",
    "ChangingValue",
    "Loadable",
    "ReplValue",
    "current",
]


class ReplValue:
    """A small value to bind in the REPL; implements `rlm.protocols.ContextSource`."""

    def __init__(self, kind: Literal["text", "json", "tagged_json"], text: str) -> None:
        self.kind = kind
        self._data = text.encode("utf-8", "surrogatepass")

    @classmethod
    def of(cls, value: object) -> "ReplValue":
        """Return data of any kind; unlike contexts, variables can be numbers and sets."""
        text = tagged.dumps(value)
        return cls("tagged_json" if '"$' in text else "json", text)

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        yield self._data


FRESH_ANSWER: ContextSource = ReplValue("json", '{"content": "", "ready": false}')
"""The value of `answer` at the start of every run."""

ANSWER_AFTER_SETUP: ContextSource = ReplValue(
    "json", '{"content": "", "ready": false, "after_setup": true}'
)
"""The same after `setup_code`, whose threads and tasks may make calls in every run."""


class ChangingValue:
    """A value that changes during a run; `make` returns what a new worker gets of it."""

    def __init__(self, make: Callable[[], ContextSource]) -> None:
        self.make = make


Loadable: TypeAlias = ContextSource | ChangingValue
"""A variable that every new worker gets."""


async def current(value: Loadable) -> ContextSource:
    """Return what to load into a new worker; a changing value may be large."""
    return await asyncio.to_thread(value.make) if isinstance(value, ChangingValue) else value
