"""How large a context is, in tokens, without anybody's tokenizer.

A token is four characters here, and every generated context is ASCII, so four bytes: that is what
common tokenizers make of English, give or take a tenth. Names and numbers cost them more. The rule
needs no download and never changes, so that a size means the same for every model.
"""

import re

from rlm.errors import ConfigError

__all__ = ["CHARS_A_TOKEN", "parse_size", "parse_sizes", "show_size", "size_chars"]

CHARS_A_TOKEN = 4
SMALLEST, LARGEST = 500, 100_000_000
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kKmM]?)")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def size_chars(tokens: int) -> int:
    """The characters of a context of so many tokens."""
    return tokens * CHARS_A_TOKEN


def parse_size(text: str) -> int:
    """`8k` is 8,000 tokens and `1M` a million."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no size in tokens, such as 8000, 8k, 1.5M")
    whole, _, part = found[1].partition(".")
    unit = _UNITS[found[2].lower()]
    tokens = int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
    if not SMALLEST <= tokens <= LARGEST:
        least, most = show_size(SMALLEST), show_size(LARGEST)
        raise ConfigError(f"a context has {least} to {most} tokens, not {text}")
    return tokens


def parse_sizes(text: str) -> tuple[int, ...]:
    """Several, with commas between them; in their order, none twice."""
    return tuple(dict.fromkeys(parse_size(part) for part in text.split(",") if part.strip()))


def show_size(tokens: int) -> str:
    """As people write it: 8k, 1.5M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= unit and tokens * 1_000 % unit == 0:
            return f"{tokens / unit:.3f}".rstrip("0").rstrip(".") + letter
    return str(tokens)
