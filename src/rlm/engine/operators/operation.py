"""One operator in progress: its calls, its figures, and how it ends.

Whatever happens to single calls, the operator returns what it has and says what is missing. It
raises only if it has nothing at all.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from random import Random
from typing import Any, TypeVar

from msgspec import Struct, field

from rlm import prompts
from rlm._util.off_loop import off_loop
from rlm._util.text import counted
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.concurrency import concurrently
from rlm.errors import CallRefused, ModelError, RLMError
from rlm.events import OperatorEnded, OperatorStarted
from rlm.messages import Message, Request
from rlm.prompts.observation import cut

__all__ = ["NOWHERE", "Found", "Operation", "Packing", "digest_of", "distinct"]

Value = TypeVar("Value")

SYSTEM = Message(
    "system", "You are a sub-LLM. Answer from the text in the prompt, briefly and exactly."
)
PROMPTS_PER_SLOT = 4
MAX_ROUNDS = 12
PROBES = 3
"""How many items are asked about alone after a whole round of prompts brought nothing."""

FEW, TRIES = 20, 5
"""The last FEW items are given up only after TRIES rounds in a row without a result."""

ITEMS_PER_PROMPT = {"frontier": 100, "standard": 50, "small": 20, "tiny": 10}
CHARS_PER_PROMPT = {"frontier": 40_000, "standard": 16_000, "small": 6_000, "tiny": 3_000}
"""Models lose items of long lists long before their window is full, weak ones sooner."""

WEAK = ("small", "tiny")

SHOWN_CHARS = 500
ROOM_FOR_WORDS = 1_000


class Packing(Struct, frozen=True):
    """How much goes into one prompt; `item_chars` is the longest item that is shown whole."""

    items: int
    chars: int
    item_chars: int
    line_tokens: int
    """The longest line that a weak model is expected to write about an item."""

    def packs(self, numbers: Sequence[int], texts: Sequence[str], most: int) -> list[list[int]]:
        """Split numbers of texts into prompts, in order."""
        packs: list[list[int]] = []
        used = 0
        for number in numbers:
            size = min(len(texts[number]), self.item_chars) + 8
            if not packs or len(packs[-1]) >= most or used + size > self.chars:
                packs.append([])
                used = 0
            packs[-1].append(number)
            used += size
        return packs


NOWHERE = -1
"""The index among the distinct items of an item that is None."""


class Found(Struct, frozen=True):
    """The figures of an operator that has ended; `text` gives them in one line."""

    text: str
    missing: tuple[int, ...] = ()
    reason: str = ""
    limit: str | None = None


class Figures(Struct):
    """What an operator has done so far."""

    items: int = 0
    distinct: int = 0
    absent: int = 0
    prompts: int = 0
    failed: int = 0
    asked_again: int = 0
    looked_again: int = 0
    changed: int = 0
    shortened: int = 0
    notes: list[str] = field(default_factory=list)

    def words(self) -> list[str]:
        words = [counted(self.items, "item")]
        if self.distinct != self.items:
            words.append(f"{self.distinct:,} distinct")
        if self.absent:
            words.append(f"{self.absent:,} None, with no result")
        words.append(counted(self.prompts, "prompt"))
        if self.failed:
            words.append(f"{self.failed:,} failed")
        if self.asked_again:
            words.append(f"{self.asked_again:,} asked again")
        if self.looked_again:
            words.append(f"{self.looked_again:,} looked at again")
            words.append(f"{self.changed:,} changed")
        if self.shortened:
            words.append(f"{self.shortened:,} too long, shown with the middle cut out")
        return [*words, *self.notes]


class Operation:
    """Asks the prompts of one operator through the one paid path."""

    def __init__(
        self, name: str, calls: Calls, scope: Scope, config: RunConfig, model: str
    ) -> None:
        self.name = name
        self.scope = scope
        self.config = config
        self.model = model
        self.info = calls.info(model)
        self.profile = config.profile or self.info.profile
        self.figures = Figures()
        self.error: RLMError | None = None
        """The last failure of a call."""
        self.refusal: CallRefused | None = None
        """Set when a limit of the run allows no further prompt."""
        self._calls = calls
        self._id = ""
        self._is_open = False
        self._started = time.monotonic()
        self._replies = 0

    # -- its events --------------------------------------------------------------------------

    def begin(self, task: str, items: int, unique: int, digest: str) -> None:
        """Report the start; `task` describes what is asked, for people."""
        self.figures.items, self.figures.distinct = items, unique
        key = self.scope.key("operator", digest)
        self._id = self.scope.call_id(key)
        self._started = time.monotonic()
        self._is_open = True
        self.scope.emit(
            OperatorStarted,
            operator_id=self._id,
            name=self.name,
            task=cut(task, SHOWN_CHARS),
            items=items,
            distinct=unique,
        )

    def end(self, missing: Collection[int] = ()) -> Found:
        """Report the figures and return them; raise if every call failed."""
        failed = len(missing) - self.figures.absent
        reason = self._reason() if failed else "they are None" if missing else ""
        if failed:
            verb = "has" if failed == 1 else "have"
            self.figures.notes.append(f"{failed:,} {verb} no result: {reason}")
        text = f"{self.name}: {', '.join(self.figures.words())}"
        problem = self.refusal or self.error
        nothing = problem is not None and self._replies == 0
        self._report(text, len(missing), str(problem) if nothing else None)
        if nothing and problem is not None:
            raise problem
        limit = self.refusal.limit if self.refusal else None
        return Found(text, tuple(sorted(missing)), reason, limit)

    def abort(self, error: BaseException) -> None:
        """Report an end by an outside cause, such as a cancellation, unless one was reported."""
        if not self._is_open:
            return
        message = str(error) or type(error).__name__
        self._report(f"{self.name}: {', '.join(self.figures.words())}", 0, message)

    def _report(self, text: str, missing: int, error: str | None) -> None:
        figures = self.figures
        self._is_open = False
        self.scope.emit(
            OperatorEnded,
            operator_id=self._id,
            name=self.name,
            summary=text,
            prompts=figures.prompts,
            asked_again=figures.asked_again,
            looked_again=figures.looked_again,
            changed=figures.changed,
            missing=missing,
            seconds=time.monotonic() - self._started,
            error=error,
        )

    def _reason(self) -> str:
        if self.refusal is not None:
            return str(self.refusal)
        if self.error is not None:
            return f"calls failed; the last error: {cut(str(self.error), SHOWN_CHARS)}"
        return "the model gave no usable reply about them"

    # -- asking ------------------------------------------------------------------------------

    def packing(self, *, per_item: float = 1.0, line_tokens: int = 16) -> Packing:
        """Return the size of prompts for this model; `per_item` < 1 if replies are long."""
        largest = max(ROOM_FOR_WORDS, prompts.call_chars(self.info) * 3 // 4 - ROOM_FOR_WORDS)
        items = ITEMS_PER_PROMPT.get(self.profile, ITEMS_PER_PROMPT["standard"])
        chars = CHARS_PER_PROMPT.get(self.profile, CHARS_PER_PROMPT["standard"])
        return Packing(max(1, int(items * per_item)), min(chars, largest), largest, line_tokens)

    def shown(self, text: str, packing: Packing) -> str:
        """Return an item as the prompt shows it: only both ends if it is too long."""
        if len(text) <= packing.item_chars:
            return text
        return cut(text, packing.item_chars - 100)

    async def ask(self, prompt: str, output_tokens: int | None = None) -> str | None:
        """Return the reply to one prompt, or None if there is none."""
        (reply,) = await self.ask_all([prompt], output_tokens)
        return reply

    async def ask_all(
        self, questions: Sequence[str], output_tokens: int | None = None
    ) -> list[str | None]:
        """Return the replies in order; None for each call that failed or was not made."""
        limits = self.config.limits
        cap = min(limits.call_output_tokens, output_tokens or limits.call_output_tokens)

        async def ask(index: int) -> str | None:
            if self.refusal is not None:
                return None
            request = Request(
                model=self.model,
                messages=(SYSTEM, Message("user", questions[index])),
                max_output_tokens=cap,
                sampling=self.config.sub_sampling,
            )
            self.figures.prompts += 1
            try:
                reply = await self._calls.counted_call(self.scope, request, self._id)
            except CallRefused as refusal:
                self.figures.prompts -= 1
                self.refusal = refusal
                return None
            self._replies += 1
            return reply.text

        at_once = PROMPTS_PER_SLOT * limits.max_concurrent_calls
        outcomes = await concurrently(len(questions), ask, at_once)
        for each in outcomes:
            if isinstance(each, RLMError):
                self.figures.failed += 1
                self._note_failure(each)
        return [each if isinstance(each, str) else None for each in outcomes]

    def _note_failure(self, error: RLMError) -> None:
        self.error = error
        if isinstance(error, ModelError) and self.scope.budget.seconds_left == 0:
            self.refusal = CallRefused("the run is out of time (max_seconds)", limit="seconds")

    def output_tokens(self, packing: Packing, items: int) -> int | None:
        """Return the cap on a reply: weak models do not stop, and reasoning models need room."""
        return items * packing.line_tokens + 100 if self.profile in WEAK else None

    async def each(
        self,
        numbers: Sequence[int],
        texts: Sequence[str],
        packing: Packing,
        prompt: Callable[[list[int], list[str]], str],
        read: Callable[[str, list[int]], Mapping[int, Value]],
    ) -> dict[int, Value]:
        """Ask about these texts until each has a value, or asking again is no use.

        `read` returns values by the index of an item in its prompt, from 0. Items without a value
        are asked about again in smaller prompts, sized by what the model has managed so far. After
        a round that brought nothing, a few items are tried alone before the rest; the last few
        items left are tried several more times.
        """
        found: dict[int, Value] = {}
        left, size, in_vain = list(numbers), packing.items, 0
        for round_number in range(MAX_ROUNDS):
            packs = packing.packs(left, texts, size)
            probing = size == 0
            if probing:
                packs, size = [[number] for number in left[:PROBES]], 1
            if round_number:
                self.figures.asked_again += sum(map(len, packs))
            brought = await self._round(packs, texts, packing, prompt, read)
            found |= brought
            left = [number for number in left if number not in found]
            in_vain = 0 if brought else in_vain + 1
            few = bool(found) and len(left) <= FEW
            given_up = in_vain == TRIES if few else in_vain and (probing or size == 1)
            if not left or self.refusal is not None or given_up:
                break
            size = 1 if few and not brought else _next_size(size, len(brought), len(packs))
        return found

    async def _round(
        self,
        packs: list[list[int]],
        texts: Sequence[str],
        packing: Packing,
        prompt: Callable[[list[int], list[str]], str],
        read: Callable[[str, list[int]], Mapping[int, Value]],
    ) -> dict[int, Value]:
        def write_all() -> list[str]:
            return [prompt(p, [self.shown(texts[n], packing) for n in p]) for p in packs]

        questions = await off_loop(sum(len(texts[n]) for p in packs for n in p), write_all)
        most = max(map(len, packs), default=1)
        replies = await self.ask_all(questions, self.output_tokens(packing, most))

        def read_all() -> dict[int, Value]:
            brought: dict[int, Value] = {}
            for pack, reply in zip(packs, replies, strict=True):
                if reply is not None:
                    brought |= {pack[place]: value for place, value in read(reply, pack).items()}
            return brought

        return await off_loop(sum(len(reply or "") for reply in replies), read_all)

    def shuffled(self, numbers: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Return numbers in another order, the same on every execution, for other neighbours."""
        order = list(numbers)
        Random(_digest(*(texts[number][:200] for number in order))).shuffle(order)
        return order


def _next_size(size: int, brought: int, packs: int) -> int:
    """Return how many items the next prompts hold; 0 to try a few alone first."""
    if not brought:
        return 0
    return max(1, min(size // 2, ceil(brought / packs)))


def distinct(texts: Sequence[str], absent: Collection[int] = ()) -> tuple[list[str], list[int]]:
    """Return the distinct texts, and for every text its index among them.

    Those that are `absent` have the index `NOWHERE`.
    """
    places: dict[str, int] = {}
    where = [
        NOWHERE if number in absent else places.setdefault(text.strip(), len(places))
        for number, text in enumerate(texts)
    ]
    return list(places), where


def _digest(*texts: str) -> str:
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


def digest_of(name: str, options: Any, texts: Sequence[str]) -> str:
    """Return a digest of an operator's task, which names it on every execution."""
    return _digest(name, json.dumps(options, sort_keys=True, default=str), *texts)
