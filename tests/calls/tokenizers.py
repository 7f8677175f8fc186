"""Tokenizers for providers that keep honest books: each message is encoded by itself."""

import functools
import random
import zlib

from rlm.messages import MESSAGE_OVERHEAD_TOKENS, Message


class RandomTokenizer:
    """Any byte-level tokenizer with any chat template, chosen by a seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self._longest = rng.randint(1, 12)
        self._overhead = rng.randint(1, MESSAGE_OVERHEAD_TOKENS)
        self._seed = seed
        self._tokens = functools.cache(self._count)

    def count(self, messages: tuple[Message, ...]) -> int:
        texts = (str(each.content).encode("utf-8", "surrogatepass") for each in messages)
        return sum(self._overhead + self._tokens(text) for text in texts)

    def _count(self, data: bytes) -> int:
        """Cut the bytes into pieces of random lengths, the same ones every time."""
        rng, left, tokens = random.Random(self._seed ^ zlib.crc32(data)), len(data), 0
        while left > 0:
            left -= rng.randint(1, self._longest)
            tokens += 1
        return tokens
