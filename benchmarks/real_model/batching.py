"""Decide which requests a model works on in each step. Nothing here knows about tensors.

Every request has a slot of its own for its keys and values while it is in work. A step reads some
tokens of prompts and then decodes one token of every request whose prompt has been read. Requests
join and leave between steps, so a long reply holds nobody back.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = ["Batcher", "Generation", "Model", "Reading", "Step", "computed"]


@dataclass(eq=False)
class Generation:
    """One request: the tokens of its prompt, those produced so far, and why it ended."""

    prompt: list[int]
    max_tokens: int
    produced: list[int] = field(default_factory=list)
    slot: int | None = None
    read: int = 0
    """How many tokens of the prompt are in the slot."""
    finish_reason: Literal["stop", "length", "cancelled"] | None = None

    @property
    def is_read(self) -> bool:
        return self.read == len(self.prompt)


@dataclass(frozen=True)
class Reading:
    """Tokens `begin` to `end` of a prompt, to be read in a step."""

    of: Generation
    begin: int
    end: int

    @property
    def is_last(self) -> bool:
        return self.end == len(self.of.prompt)


@dataclass(frozen=True)
class Step:
    """What a model does at once: parts of prompts to read, and requests to decode."""

    readings: list[Reading]
    decodings: list[Generation]

    def __bool__(self) -> bool:
        return bool(self.readings or self.decodings)


class Batcher:
    """Requests that wait and requests in slots. `ends` are the tokens that end a reply."""

    def __init__(
        self, *, slots: int, window_tokens: int, ends: Collection[int], step_tokens: int = 4_096
    ) -> None:
        self.window_tokens = window_tokens
        self._free = set(range(slots))
        self._ends = frozenset(ends)
        self._step_tokens = step_tokens
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, generation: Generation) -> None:
        """Add a request; it gets a slot in the order of arrival."""
        room = self.window_tokens - len(generation.prompt)
        if not generation.prompt or room < 1:
            raise ValueError(
                f"maximum context length is {self.window_tokens} tokens; "
                f"the prompt has {len(generation.prompt)}"
            )
        generation.max_tokens = max(1, min(generation.max_tokens, room))
        self._waiting.append(generation)

    def cancel(self, generation: Generation) -> None:
        """End a request whose client has gone; its slot is free in the next step."""
        if generation.finish_reason is None:
            generation.finish_reason = "cancelled"
            if generation in self._waiting:
                self._waiting.remove(generation)

    def plan(self) -> Step:
        """Return the next step; empty if there is nothing to do."""
        self._release(each for each in self._running if each.finish_reason is not None)
        while self._waiting and self._free:
            generation = self._waiting.popleft()
            generation.slot = min(self._free)  # Low slots keep the batch of a step small.
            self._free.remove(generation.slot)
            self._running.append(generation)
        decodings = [each for each in self._running if each.is_read]
        readings, room = [], self._step_tokens
        for each in self._running:
            if not each.is_read and room > 0:
                end = min(len(each.prompt), each.read + room)
                readings.append(Reading(each, each.read, end))
                room -= end - each.read
        return Step(readings, decodings)

    def finish(self, step: Step, tokens: Mapping[int, int]) -> list[Generation]:
        """Take the next token of each slot that has one, and return the requests that ended.

        A slot has a token if it was decoded, or if the last part of its prompt was read.
        """
        for reading in step.readings:
            reading.of.read = reading.end
        produced = [each.of for each in step.readings if each.is_last] + step.decodings
        for generation in produced:
            assert generation.slot is not None
            self._take(generation, tokens[generation.slot])
        ended = [each for each in self._running if each.finish_reason is not None]
        self._release(ended)
        return ended

    def _take(self, generation: Generation, token: int) -> None:
        if generation.finish_reason is not None:  # cancelled during the step
            return
        if token in self._ends:
            generation.finish_reason = "stop"
            return
        generation.produced.append(token)
        if len(generation.produced) >= generation.max_tokens:
            generation.finish_reason = "length"

    def _release(self, ended: Iterable[Generation]) -> None:
        for generation in list(ended):
            self._running.remove(generation)
            if generation.slot is not None:
                self._free.add(generation.slot)
                generation.slot = None


class Model(Protocol):
    """What computes tokens; see `qwen2.Qwen2`."""

    def read(self, slot: int, tokens: Sequence[int], begin: int) -> int: ...

    def decode(self, last: Mapping[int, tuple[int, int]]) -> dict[int, int]: ...


def computed(model: Model, step: Step) -> dict[int, int]:
    """Return the next token of each slot. Slots don't change while a step is computed."""
    tokens: dict[int, int] = {}
    for reading in step.readings:
        slot = reading.of.slot
        assert slot is not None
        part = reading.of.prompt[reading.begin : reading.end]
        tokens[slot] = model.read(slot, part, reading.begin)
    if step.decodings:
        last = {
            each.slot: (each.produced[-1], len(each.prompt) + len(each.produced) - 1)
            for each in step.decodings
            if each.slot is not None
        }
        tokens |= model.decode(last)
    return tokens
