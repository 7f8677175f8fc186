"""A client that knows the right label of every item and makes mistakes at a set rate.

It measures how well an algorithm uses an imperfect model: how many labels are wrong in the end, and
for how many tokens. Nothing in it is random: what it says about an item depends on the seed, the
text of the item, and how often it was asked about it before.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Literal, NamedTuple

from rlm.clients._estimate import capped_reply, message_text, word_by_word
from rlm.errors import ConfigError, ModelError
from rlm.messages import ModelInfo, Price, Reply, Request
from rlm.testing.label_prompts import DRIFTS, Prompt, Verdict, written

__all__ = ["Noise", "NoisyOracle"]

Noise = Literal["independent", "concentrated"]

# Parameters of the noise. Published results depend on them.
AMBIGUOUS = 0.2
"""Concentrated: the share of items that are ambiguous."""
ERRORS_OF_AMBIGUOUS = 0.95
"""Concentrated: the share of all errors that are made on ambiguous items."""
REPEATED = 0.8
"""Concentrated: how often a later look says the same of an item as the first one, right or not."""
UNSURE_AMBIGUOUS = 0.5
"""Concentrated: the share of ambiguous items that are marked as unsure, at every look."""
UNSURE_OTHER = 0.05
"""Concentrated: the share of other items that are marked as unsure, right or not, at every look."""

MAX_ERROR_CONCENTRATED = AMBIGUOUS / ERRORS_OF_AMBIGUOUS
_NAMED_CHARS = 60


class NoisyOracle:
    """Answer requests for labels from `gold`, with errors, omissions and drifting forms.

    `gold` maps the text of each item to its label, or to True or False for a condition; texts are
    compared without regard to white space. It answers prompts of `rlm.operators` and `plain_prompt`
    (see `rlm.testing.label_prompts`), and any other with an error.

    With *independent* noise, each label is wrong with probability `error_rate` at each look, and
    every other label is equally likely instead. With *concentrated* noise, a fifth of the items are
    ambiguous and carry 95 % of the errors, so that the rate over all items is `error_rate`. What is
    said of an ambiguous item, when it is wrong, is always the same other label. A later look
    repeats the first one in 80 % of all cases. Half of the ambiguous items are marked with `?`,
    and 5 % of the others, whether their labels are right or wrong. A list of candidates in a
    prompt changes nothing.

    An item is left out of a reply with probability `omission_rate`; a reply drifts to one of the
    forms in `DRIFTS` with probability `drift_rate`. `requests` holds everything received, `looks`
    how often each item was asked about. Usage counts a token per four bytes of prompt and reply.
    """

    model_name = "noisy-oracle"

    def __init__(
        self,
        gold: Mapping[str, str | bool],
        *,
        error_rate: float = 0.0,
        noise: Noise = "independent",
        omission_rate: float = 0.0,
        drift_rate: float = 0.0,
        seed: int = 0,
        price: Price | None = None,
        window_tokens: int | None = None,
    ) -> None:
        _check_rates(error_rate, omission_rate, drift_rate, noise)
        self._gold = {_normal(text): _label(label) for text, label in gold.items()}
        self._error_rate, self._noise = error_rate, noise
        self._omission_rate, self._drift_rate = omission_rate, drift_rate
        self._seed = seed
        self._info = ModelInfo(window_tokens=window_tokens, price=price)
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.looks: Counter[str] = Counter()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Return a reply with a label for each item of the prompt, except those left out."""
        return capped_reply(request, self._answer(request))

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the reply word by word, then whole."""
        async for part in word_by_word(
            await self.complete(request, timeout_seconds=timeout_seconds)
        ):
            yield part

    def info(self, model: str) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Do nothing."""

    def _answer(self, request: Request) -> str:
        asked = [message_text(each) for each in request.messages if each.role == "user"]
        prompt = Prompt.read(asked[-1]) if asked else None
        if prompt is None or not prompt.items:
            shown = asked[-1][:_NAMED_CHARS] if asked else ""
            raise ModelError(f"the noisy oracle answers only labelling prompts, not {shown!r}")
        texts = {number: _normal(text) for number, text in prompt.items.items()}
        looks = self._count(request, texts)
        verdicts = {
            number: self._verdict(text, looks[number], prompt)
            for number, text in texts.items()
            if not self._is_left_out(text, looks[number])
        }
        first = next(iter(texts))
        return written(prompt, verdicts, self._drift(texts[first], looks[first]))

    def _count(self, request: Request, texts: Mapping[int | None, str]) -> dict[int | None, int]:
        """Return how many times each item was asked about, including this time."""
        if unknown := [text for text in texts.values() if text not in self._gold]:
            shown = unknown[0][:_NAMED_CHARS]
            raise ModelError(f"the noisy oracle has no gold label for the item {shown!r}")
        looks = {}
        with self._lock:
            self.requests.append(request)
            for number, text in texts.items():
                self.looks[text] += 1
                looks[number] = self.looks[text]
        return looks

    # Each decision has its own number from 0 to 1.

    def _is_left_out(self, text: str, look: int) -> bool:
        return self._omission_rate > 0 and self._drawn(text, look).omit < self._omission_rate

    def _drift(self, text: str, look: int) -> str:
        drawn = self._drawn(text, look)
        if drawn.drift >= self._drift_rate:
            return ""
        return DRIFTS[int(drawn.form * len(DRIFTS))]

    def _verdict(self, text: str, look: int, prompt: Prompt) -> Verdict:
        item, gold = self._drawn(text, 0), self._gold[text]
        others = sorted({*prompt.codes.values()} - {gold})
        is_concentrated = self._noise == "concentrated"
        is_ambiguous = is_concentrated and item.ambiguous < AMBIGUOUS
        marked = UNSURE_AMBIGUOUS if is_ambiguous else UNSURE_OTHER
        unsure = is_concentrated and item.unsure < marked
        drawn = self._drawn(text, look)
        if is_concentrated and look > 1 and drawn.repeat < REPEATED:
            drawn = self._drawn(text, 1)
        is_wrong = drawn.wrong < self._rate(is_ambiguous)
        if others and (is_wrong or gold not in prompt.codes.values()):
            which = item.which if is_ambiguous else drawn.which
            return Verdict(others[int(which * len(others))], unsure)
        return Verdict(gold, unsure)

    def _rate(self, is_ambiguous: bool) -> float:
        if self._noise == "independent":
            return self._error_rate
        share = ERRORS_OF_AMBIGUOUS if is_ambiguous else 1 - ERRORS_OF_AMBIGUOUS
        return self._error_rate * share / (AMBIGUOUS if is_ambiguous else 1 - AMBIGUOUS)

    def _drawn(self, text: str, look: int) -> "_Drawn":
        """Return the numbers of a look; those of look 0 belong to the item itself."""
        key = f"{self._seed}\0{look}\0{text}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=4 * len(_Drawn.__annotations__)).digest()
        words = (digest[place : place + 4] for place in range(0, len(digest), 4))
        return _Drawn(*(int.from_bytes(word, "big") / 2**32 for word in words))


class _Drawn(NamedTuple):
    """Numbers from 0 to 1, each for one decision."""

    ambiguous: float
    unsure: float
    repeat: float
    wrong: float
    which: float
    omit: float
    drift: float
    form: float


def _normal(text: str) -> str:
    return " ".join(text.split())


def _label(label: str | bool) -> str:
    return ("no", "yes")[label] if isinstance(label, bool) else label


def _check_rates(error: float, omission: float, drift: float, noise: str) -> None:
    if noise not in {"independent", "concentrated"}:
        raise ConfigError(f"noise must be 'independent' or 'concentrated', not {noise!r}")
    most = MAX_ERROR_CONCENTRATED if noise == "concentrated" else 1.0
    if not 0 <= error <= most:
        raise ConfigError(
            f"error_rate must be from 0 to {most:.2f} with {noise} noise, not {error!r}"
        )
    for name, rate in (("omission_rate", omission), ("drift_rate", drift)):
        if not 0 <= rate < 1:
            raise ConfigError(f"{name} must be at least 0 and below 1, not {rate!r}")
