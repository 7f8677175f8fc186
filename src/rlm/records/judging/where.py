"""Conditions on runs, such as `score>0.8 and not tag=draft`: parsed, checked, and applied.

Nothing is executed: a condition is parsed into a small tree of comparisons.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from rlm._util.text import closest
from rlm.errors import ConfigError

__all__ = [
    "FIELDS",
    "STATUSES",
    "Condition",
    "RunValues",
    "Values",
    "parse_condition",
    "status_words",
]

MAX_CHARS = 2_000
MAX_COMPARISONS = 100
MAX_DEPTH = 50
"""A condition comes from a command line or a URL; parsing it must be cheap."""

SHOWN_CHARS = 60
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~"]
ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
KEYWORDS = frozenset({"and", "or", "not"})
STATUSES: Mapping[str, str] = {
    "running": "running",
    "interrupted": "interrupted",
    "killed": "interrupted",
    "answer": "answer",
    "answered": "answer",
    "passages": "passages",
    "steps": "steps",
    "limit": "limit",
    "cancelled": "cancelled",
    "error": "error",
    "failed": "error",
}
"""Each word for a status, with the word that `rlm runs` uses for it."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<paren>[()])
      | (?P<operator>!=|<=|>=|==|[=<>~])
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[^\s()=<>!~"']+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = re.compile(r"[^\s()=<>!~\"'\\]+")


class Values(Protocol):
    """What conditions compare: figures of one root run, and what people noted about it."""

    @property
    def id(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def status(self) -> frozenset[str]: ...
    @property
    def tag(self) -> tuple[str, ...]: ...
    @property
    def score(self) -> float | None: ...
    @property
    def comment(self) -> tuple[str, ...]: ...
    @property
    def cost(self) -> float | None: ...
    @property
    def tokens(self) -> float: ...
    @property
    def steps(self) -> float: ...
    @property
    def seconds(self) -> float | None: ...


class RunValues(Struct, frozen=True, kw_only=True):
    """`Values` that are all known."""

    id: str = ""
    query: str = ""
    answer: str = ""
    model: str = ""
    status: frozenset[str] = frozenset()
    tag: tuple[str, ...] = ()
    score: float | None = None
    comment: tuple[str, ...] = ()
    cost: float | None = None
    tokens: float = 0
    steps: float = 0
    seconds: float | None = None


class _Field(NamedTuple):
    kind: Literal["number", "text", "status"]
    meaning: str


FIELDS: Mapping[str, _Field] = {
    "score": _Field("number", "the score that a person, or the bench, gave"),
    "tag": _Field("text", "one of its tags"),
    "status": _Field("status", "how it ended, as in `rlm runs`"),
    "model": _Field("text", "the model, with or without its provider"),
    "cost": _Field("number", "US dollars, child runs included"),
    "tokens": _Field("number", "tokens, child runs included"),
    "steps": _Field("number", "steps of the root run"),
    "seconds": _Field("number", "how long it took"),
    "query": _Field("text", "the query"),
    "answer": _Field("text", "the answer"),
    "comment": _Field("text", "one of its comments"),
    "id": _Field("text", "the id of the run"),
}


def status_words(status: str, stop_reason: str = "", error: object = None) -> frozenset[str]:
    """Return the words of `rlm runs` that are true of a run with these words in its log."""
    if status in {"interrupted", "running"}:
        return frozenset({status})
    if stop_reason in {"steps", "limit"}:
        return frozenset({stop_reason, "limit"})
    if stop_reason in {"cancelled", "passages"}:
        return frozenset({stop_reason})
    return frozenset({"error" if error or stop_reason == "error" else "answer"})


# -- the tree -------------------------------------------------------------------------------------


class Comparison(Struct, frozen=True, tag=True):
    """One field, compared with one value."""

    field: str
    operator: Operator
    value: str | float

    def holds(self, run: Values) -> bool:
        if self.operator == "!=":
            return not _is(run, self.field, self.value)
        if self.operator == "=":
            return _is(run, self.field, self.value)
        if self.operator == "~":
            part = str(self.value).casefold()
            return any(part in text.casefold() for text in _texts(run, self.field))
        found = getattr(run, self.field)
        if found is None or not isinstance(self.value, float):
            return False
        return ORDER[self.operator](found, self.value)

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{_written(self.value)}"


class Negation(Struct, frozen=True, tag=True):
    """True if its part is false."""

    part: "Part"

    def holds(self, run: Values) -> bool:
        return not self.part.holds(run)

    def __str__(self) -> str:
        return f"not {_bracketed(self.part)}"


class Joined(Struct, frozen=True, tag=True):
    """Parts of which all (`and`) or at least one (`or`) must be true."""

    word: Literal["and", "or"]
    parts: tuple["Part", ...]

    def holds(self, run: Values) -> bool:
        combine = all if self.word == "and" else any
        return combine(part.holds(run) for part in self.parts)

    def __str__(self) -> str:
        return f" {self.word} ".join(map(_bracketed, self.parts))


Part = Comparison | Negation | Joined


def _bracketed(part: Part) -> str:
    return f"({part})" if isinstance(part, Joined) else str(part)


class Condition(Struct, frozen=True):
    """A parsed condition; `str` returns a text that parses to the same condition."""

    tree: Part

    def holds(self, run: Values) -> bool:
        """Return whether it is true of a run; a missing figure is neither more nor less."""
        return self.tree.holds(run)

    def __str__(self) -> str:
        return str(self.tree)


def _texts(run: Values, field: str) -> Collection[str]:
    found = getattr(run, field)
    return (found,) if isinstance(found, str) else found


def _is(run: Values, field: str, value: str | float) -> bool:
    if isinstance(value, float):
        return bool(getattr(run, field) == value)
    texts = _texts(run, field)
    if value in texts:
        return True
    return field == "model" and run.model.partition("/")[2] == value


def _written(value: str | float) -> str:
    if not isinstance(value, str):
        return repr(float(value))
    if _PLAIN.fullmatch(value) and value.lower() not in KEYWORDS:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# -- parsing --------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: Literal["paren", "operator", "word", "quoted", "end"]
    text: str


def parse_condition(text: str) -> Condition:
    """Parse a condition; raise a ConfigError that says what is wrong, and what would be right."""
    if len(text) > MAX_CHARS:
        raise ConfigError(
            f"a condition can have at most {MAX_CHARS:,} characters, not {len(text):,}"
        )
    parser = _Parser(list(_tokens(text)))
    tree = parser.alternatives(0)
    parser.expect_end()
    return Condition(tree)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            rest = text[at:].strip()
            why = "its quote is not closed" if rest[0] in "\"'" else "write != for not equal"
            raise ConfigError(f"a condition can't continue with {_short(rest)}: {why}")
        at = found.end()
        kind = found.lastgroup
        if kind in {"double", "single"}:
            yield _Token("quoted", _ESCAPED.sub(r"\1", found[kind]))
        elif kind == "operator":
            yield _Token("operator", "=" if found[kind] == "==" else found[kind])
        elif kind == "paren":
            yield _Token("paren", found[kind])
        else:
            yield _Token("word", found["word"])


class _Parser:
    """Reads tokens from left to right; `and` binds more tightly than `or`."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._comparisons = 0

    def alternatives(self, depth: int) -> Part:
        return self._joined("or", depth)

    def expect_end(self) -> None:
        token = self._next()
        if token.kind != "end":
            hint = "join comparisons with `and` or `or`"
            if token.text == ")":
                hint = "no ( precedes it"
            raise ConfigError(f"a condition can't continue with {_short(token.text)}: {hint}")

    def _joined(self, word: Literal["and", "or"], depth: int) -> Part:
        parts = [self._joined("and", depth) if word == "or" else self._part(depth)]
        while self._is_word(word):
            self._at += 1
            parts.append(self._joined("and", depth) if word == "or" else self._part(depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _part(self, depth: int) -> Part:
        if depth > MAX_DEPTH:
            raise ConfigError(f"a condition can have at most {MAX_DEPTH} levels of ( and not")
        if self._is_word("not"):
            self._at += 1
            return Negation(self._part(depth + 1))
        token = self._next()
        if token == ("paren", "("):
            inside = self.alternatives(depth + 1)
            if self._next() != ("paren", ")"):
                raise ConfigError("a ( in the condition is not closed")
            return inside
        return self._comparison(token)

    def _comparison(self, token: _Token) -> Comparison:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise ConfigError(f"a condition can have at most {MAX_COMPARISONS} comparisons")
        field = _field(token)
        operator = self._next()
        if operator.kind != "operator":
            raise ConfigError(
                f"{field} must be followed by one of {_operators(field)}, as in {_sample(field)}"
            )
        value = self._next()
        if value.kind not in {"word", "quoted"}:
            raise ConfigError(
                f"{field}{operator.text} must be followed by a value, as in {_sample(field)}; "
                'a text with spaces or punctuation needs quotes: query~"two words"'
            )
        wanted: Any = operator.text
        return Comparison(field, wanted, _value(field, operator.text, value.text))

    def _is_word(self, word: str) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token is not None and token.kind == "word" and token.text.lower() == word

    def _next(self) -> _Token:
        token = self._tokens[self._at] if self._at < len(self._tokens) else _Token("end", "")
        self._at += 1
        return token


def _field(token: _Token) -> str:
    name = token.text.lower()
    if token.kind == "word" and name in FIELDS:
        return name
    if token.kind == "end":
        raise ConfigError(f"the condition ends where a comparison should be: {_sample('score')}")
    meant = closest(name, tuple(FIELDS)) if token.kind == "word" else None
    hint = f" Did you mean {meant}?" if meant else ""
    raise ConfigError(
        f"a comparison can't begin with {_short(token.text)}.{hint} Fields: {', '.join(FIELDS)}"
    )


def _operators(field: str) -> str:
    kind = FIELDS[field].kind
    return {"number": "= != < <= > >=", "text": "= != ~", "status": "= !="}[kind]


def _sample(field: str) -> str:
    samples = {"number": f"{field}>0.8", "text": f"{field}=good", "status": "status=answer"}
    return samples[FIELDS[field].kind]


def _value(field: str, operator: str, text: str) -> str | float:
    if operator not in _operators(field).split():
        raise ConfigError(f"{field} can't be compared with {operator}: use {_operators(field)}")
    kind = FIELDS[field].kind
    if kind == "text":
        return text
    if kind == "status":
        if text.lower() not in STATUSES:
            meant = closest(text.lower(), tuple(STATUSES))
            hint = f" Did you mean {meant}?" if meant else ""
            words = ", ".join(dict.fromkeys(STATUSES.values()))
            raise ConfigError(f"no run has the status {_short(text)}.{hint} Statuses: {words}")
        return STATUSES[text.lower()]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{field} must be compared with a number, not {_short(text)}")
    return number


def _short(text: str) -> str:
    return ascii(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
