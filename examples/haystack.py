"""Generate haystacks: one needle in filler text, among similar needles with other keys.

`make_haystack(size_bytes, seed)` returns the text, a question and the value that answers it. The
same seed gives the same haystack on every machine. Run it to write one: python examples/haystack.py
"""

import argparse
import json
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Shape = Literal["prose", "words", "log", "csv", "jsonl"]

SHAPES: tuple[Shape, ...] = ("prose", "words", "log", "csv", "jsonl")
DISTRACTORS = 12
FILLER_LINES = 1_500

ADJECTIVES = (
    *("amber", "bold", "brave", "calm", "clever", "copper", "crimson", "distant", "eager"),
    *("gentle", "golden", "hidden", "hollow", "icy", "jolly", "lucky", "mellow", "misty"),
    *("noble", "pale", "quiet", "rapid", "rusty", "silver", "solemn", "swift", "velvet", "wild"),
)
NOUNS = (
    *("anchor", "badger", "beacon", "canyon", "comet", "cricket", "dolphin", "ember", "falcon"),
    *("garden", "harbor", "heron", "island", "lantern", "meadow", "monsoon", "orchid", "otter"),
    *("pebble", "quarry", "raven", "saddle", "thicket", "tunnel", "valley", "walnut", "willow"),
)
OTHER_WORDS = (
    *("above", "across", "again", "almost", "along", "answer", "bread", "bring", "carry", "chair"),
    *("clear", "cloud", "colour", "count", "cover", "drive", "early", "earth", "every", "field"),
    *("final", "floor", "follow", "given", "glass", "green", "group", "happen", "heavy", "horse"),
    *("house", "larger", "later", "leave", "letter", "listen", "matter", "middle", "morning"),
    *("music", "never", "north", "notice", "often", "order", "paper", "people", "picture"),
    *("plant", "point", "quick", "reach", "ready", "river", "season", "second", "several"),
    *("simple", "small", "sound", "south", "stand", "stone", "story", "street", "table", "teach"),
    *("their", "thing", "think", "travel", "under", "until", "usual", "voice", "water", "while"),
)
WORDS = (*ADJECTIVES, *NOUNS, *OTHER_WORDS)

PHRASINGS = (
    ("The access code for {key} is {value}.", "What is the access code for {key}?"),
    ("{key} was assigned the identifier {value}.", "What is the access code for {key}?"),
    (
        "One of the special magic numbers for {key} is: {value}.",
        "What is the special magic number for {key} mentioned in the text?",
    ),
    ("Remember that {value} belongs to {key}.", "Which number belongs to {key}?"),
    ("Note: {key} = {value}", "Find the value of {key}. Answer with the value only."),
    ("To open {key}, dial {value} twice.", "What must be dialled to open {key}?"),
    ("After the audit, {key} received serial no. {value}.", "Tell me the serial number of {key}."),
    ("Use {value} whenever {key} asks for a passcode.", "What is {key}'s passcode?"),
    ("{key} can be reached on extension {value}.", "On which extension can I reach {key}?"),
    (
        "It was {value} that the committee registered under the name {key}.",
        "Under which reference is {key} registered?",
    ),
)
"""The wording of a needle, and of the question for it."""


class Haystack(NamedTuple):
    text: str
    question: str
    value: str


def _pair(rng: random.Random) -> tuple[str, str]:
    return rng.choice(ADJECTIVES), rng.choice(NOUNS)


KEYS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: "-".join(_pair(rng)),
    lambda rng: f"{''.join(rng.choices('BCDFGHJKLMNPQRSTVWXZ', k=2))}-{rng.randint(1000, 9999)}",
    lambda rng: f"{rng.getrandbits(40):010x}",
    lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    lambda rng: "Project " + " ".join(_pair(rng)).title(),
)
"""The kinds of key: pairs of words, codes, hexadecimal ids, UUIDs and names of projects."""


def make_haystack(
    size_bytes: int, seed: int, *, shape: Shape | None = None, absent: bool = False
) -> Haystack:
    """Return about `size_bytes` of filler with one needle in it; with `absent`, without it."""
    rng = random.Random(seed)
    line_shape = rng.choice(SHAPES) if shape is None else shape
    make_key = KEYS[seed % len(KEYS)]
    needle, question = PHRASINGS[seed // len(KEYS) % len(PHRASINGS)]
    key, *others = _distinct(make_key, rng)
    value = str(rng.randint(1_000_000, 9_999_999))
    lines = list(_filler(size_bytes, line_shape, rng))
    said = [needle.format(key=k, value=rng.randint(1_000_000, 9_999_999)) for k in others]
    said += [] if absent else [needle.format(key=key, value=value)]
    for sentence in said:
        lines.insert(rng.randrange(len(lines)) + 1, _line(sentence, line_shape, rng))
    return Haystack("\n".join(lines) + "\n", question.format(key=key), value)


def _distinct(make_key: Callable[[random.Random], str], rng: random.Random) -> list[str]:
    keys: dict[str, None] = {}
    while len(keys) <= DISTRACTORS:
        keys[make_key(rng)] = None
    return list(keys)


def _filler(size_bytes: int, shape: Shape, rng: random.Random) -> Iterator[str]:
    """Yield lines drawn from a stock, which makes ten megabytes fast."""
    stock = [_line(_sentence(shape, rng), shape, rng) for _ in range(FILLER_LINES)]
    average = sum(map(len, stock)) / len(stock) + 1
    if shape == "csv":
        yield "time,number,source,note"
    yield from rng.choices(stock, k=max(1, int(size_bytes / average)))


def _sentence(shape: Shape, rng: random.Random) -> str:
    words = " ".join(rng.choices(WORDS, k=rng.randint(6, 16)))
    return words if shape == "words" else words.capitalize() + "."


def _line(sentence: str, shape: Shape, rng: random.Random) -> str:
    """Format a sentence as a line of the given shape."""
    stamp = f"2031-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:00:00Z"
    number = rng.randint(100, 999)
    source = rng.choice(OTHER_WORDS)
    if shape == "log":
        return f"{stamp} INFO [{source}-{number}] {sentence}"
    if shape == "csv":
        return f'{stamp},{number},{source},"{sentence}"'
    if shape == "jsonl":
        return json.dumps({"time": stamp, "number": number, "source": source, "note": sentence})
    return sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000_000, help="bytes (default 10 million)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    haystack = make_haystack(options.size, options.seed)
    sys.stdout.write(haystack.text)
    sys.stderr.write(f"question: {haystack.question}\nvalue: {haystack.value}\n")


if __name__ == "__main__":
    main()
