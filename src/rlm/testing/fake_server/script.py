"""Scripts: answers, the ways in which an answer can go wrong, and script files."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from rlm._util.text import counted
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply, Usage
from rlm.testing.fake_server.requests import Asked

__all__ = [
    "BEHAVIOURS",
    "Answer",
    "Call",
    "Entry",
    "Pattern",
    "Script",
    "UsedUp",
    "as_answer",
    "read_script",
]

Behaviour: TypeAlias = Literal[
    "close",
    "crlf",
    "cut",
    "drip",
    "empty_body",
    "error_event",
    "gzip",
    "html",
    "huge",
    "malformed",
    "never",
    "no_choices",
    "no_content",
    "no_done",
    "no_usage",
    "redirect",
    "reset",
    "reset_midway",
    "stale",
    "truncated",
    "unstreamed",
    "wrong_type",
]

BEHAVIOURS: dict[Behaviour, str] = {
    "close": "closes the connection after the reply, without having announced it",
    "crlf": "a stream with CRLF line endings, comments and unexpected fields",
    "cut": "closes the connection halfway through the body",
    "drip": "sends the body byte by byte, so that characters are split",
    "empty_body": "the status, and no body",
    "error_event": "reports an error (`status`, `error`) in a reply or stream of status 200",
    "gzip": "compresses the body",
    "html": "an HTML page instead of JSON",
    "huge": "a text of `size_bytes`, whatever the request's output cap",
    "malformed": "invalid JSON: the whole body, or one event of a stream",
    "never": "accepts the request and never answers",
    "no_choices": "a well-formed reply without an answer",
    "no_content": "status 204",
    "no_done": "a chat stream without its [DONE]",
    "no_usage": "a reply that does not report its usage",
    "redirect": "sends the client to `location` (status 307 unless another is given)",
    "reset": "resets the connection before anything is sent",
    "reset_midway": "resets the connection halfway through the body",
    "stale": "answers, and drops the next request that comes on the same connection",
    "truncated": "a body or stream that ends halfway over a working connection",
    "unstreamed": "answers a streaming request with a plain reply",
    "wrong_type": "the right body under the content type text/plain",
}
"""Every behaviour an answer can have, and what it does."""

HUGE_BYTES = 100 * 1024**2
LARGEST_SCRIPT_BYTES = 256 * 1024**2

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
Pattern: TypeAlias = str | re.Pattern[str]
"""The condition of a rule on the text of a whole request: a substring or a compiled regex."""


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """One native tool call; without an id, one is made in the dialect's style."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class Counts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token counts to report instead of computed ones, as in `rlm.messages.Usage`."""

    input_tokens: Annotated[int, Meta(ge=0)]
    output_tokens: Annotated[int, Meta(ge=0)]
    cached_tokens: Annotated[int, Meta(ge=0)] = 0
    cache_write_tokens: Annotated[int, Meta(ge=0)] = 0
    reasoning_tokens: Annotated[int, Meta(ge=0)] = 0


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One answer. `when` makes it a rule; `times` says how often it is given.

    A rule without `times` is given whenever it matches, any other answer once.
    """

    reply: str = ""
    when: str | None = None
    times: Annotated[int, Meta(ge=1)] | None = None
    tool_calls: tuple[Call, ...] = ()
    reasoning: str = ""
    refusal: str = ""
    finish_reason: Literal["stop", "length", "tool_calls", "refusal"] | None = None
    usage: Counts | None = None
    delay_seconds: Seconds = 0.0
    pause_seconds: Seconds = 0.0
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    error: str = ""
    headers: dict[str, str] = {}
    retry_after: Seconds | None = None
    retry_after_form: Literal["seconds", "date", "milliseconds"] = "seconds"
    location: str = "/elsewhere"
    size_bytes: Annotated[int, Meta(ge=0)] = HUGE_BYTES
    behaviour: Behaviour | tuple[Behaviour, ...] = ()

    @property
    def behaviours(self) -> frozenset[str]:
        given = self.behaviour
        return frozenset([given] if isinstance(given, str) else given)


Fixed: TypeAlias = str | Mapping[str, Any] | Answer | Reply | ModelError
Entry: TypeAlias = Fixed | Callable[[Asked], Fixed]
"""What answers a request: as for `ScriptedClient`, or an `Answer` with all its options."""


class UsedUp(Exception):
    """No answer is left; the text says what to do."""


def as_answer(given: object) -> Answer:
    """Convert an answer in a script, in any form; raise ConfigError if it is not one."""
    if isinstance(given, Answer):
        return given
    if isinstance(given, str):
        return Answer(reply=given)
    if isinstance(given, Reply):
        return _of_reply(given)
    if isinstance(given, ModelError):
        wait = given.retry_after_seconds
        return Answer(status=given.status or 500, error=str(given), retry_after=wait)
    if not isinstance(given, Mapping):
        raise ConfigError(f"an answer must be a string or a table, not {type(given).__name__}")
    try:
        return msgspec.convert(dict(given), Answer)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{error}; an answer has: {', '.join(Answer.__struct_fields__)}"
        ) from None


def _of_reply(reply: Reply) -> Answer:
    reason = reply.finish_reason
    known = None if reason == "other" or reason == "failed" else reason
    return Answer(
        reply=reply.text,
        tool_calls=tuple(Call(call.name, call.arguments, call.id) for call in reply.tool_calls),
        reasoning=reply.reasoning,
        finish_reason=known,
        usage=None if reply.usage is None else _counts(reply.usage),
    )


def _counts(usage: Usage) -> Counts:
    return Counts(**{name: getattr(usage, name) for name in Counts.__struct_fields__})


def as_pattern(text: str) -> Pattern:
    """Compile `/regex/`, or return the text as a substring."""
    if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
        return text
    try:
        return re.compile(text[1:-1], re.DOTALL)
    except re.error as error:
        raise ConfigError(f"`when` is not a valid regular expression: {text}: {error}") from None


class _Planned:
    """An entry, and how many times it may still be given; None means no limit."""

    def __init__(self, entry: Entry, *, times: int | None) -> None:
        self.entry = entry if callable(entry) else as_answer(entry)
        given = self.entry.times if isinstance(self.entry, Answer) else None
        self.times = given or times
        self.left = self.times

    def give(self) -> Entry:
        if self.left is not None:
            self.left -= 1
        return self.entry


class Script:
    """Hands out answers: the first rule that matches, else the next one of the script."""

    def __init__(
        self,
        script: Iterable[Entry] = (),
        rules: Iterable[tuple[Pattern, Entry]] = (),
        *,
        loop: bool = False,
    ) -> None:
        self._rules = [(pattern, _Planned(entry, times=None)) for pattern, entry in rules]
        self._script: list[_Planned] = []
        self._loop = loop
        for entry in script:
            planned = _Planned(entry, times=1)
            when = planned.entry.when if isinstance(planned.entry, Answer) else None
            if when is None:
                self._script.append(planned)
            else:
                self._rules.append((as_pattern(when), _Planned(planned.entry, times=None)))
        if not self._script and not self._rules:
            raise ConfigError("the script has no answers; write one, such as reply = 'hello'")

    def take(self, text: str) -> Entry:
        """Return the entry for a request with this text; raise UsedUp if there is none."""
        for pattern, planned in self._rules:
            found = pattern in text if isinstance(pattern, str) else pattern.search(text)
            if found and planned.left != 0:
                return planned.give()
        return self._next().give()

    def _next(self) -> _Planned:
        for _ in range(2):
            for planned in self._script:
                if planned.left:
                    return planned
            if not self._loop:
                break
            self.rewind()
        raise UsedUp(
            f"the script is exhausted: it has {counted(len(self._script), 'answer')} and no rule "
            "matches; "
            "add an answer, or one with `when`, or start the script again with --loop (loop=True)"
        )

    def rewind(self) -> None:
        """Start again, with all rules and answers as at first."""
        for planned in (*self._script, *(planned for _, planned in self._rules)):
            planned.left = planned.times


# -- script files ---------------------------------------------------------------------------------


def read_script(path: str | Path) -> list[Answer]:
    """Read and check the answers of a file; raise a ConfigError that names the place."""
    path = Path(path)
    read = {".toml": _toml, ".json": _json, ".jsonl": _json_lines}.get(path.suffix)
    if read is None:
        raise ConfigError(f"{path.name}: a script's name must end in .toml, .json or .jsonl")
    if path.stat().st_size > LARGEST_SCRIPT_BYTES:
        raise ConfigError(f"{path.name} is larger than {LARGEST_SCRIPT_BYTES >> 20} MiB")
    try:
        given = read(path.read_text("utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # TOMLDecodeError and JSONDecodeError are ValueErrors.
        raise ConfigError(f"{path.name}: {error}") from None
    return [_check_answer(path.name, number, each) for number, each in enumerate(given, start=1)]


def _check_answer(name: str, number: int, given: object) -> Answer:
    try:
        answer = as_answer(given)
        as_pattern(answer.when or "")
    except ConfigError as error:
        raise ConfigError(f"{name}, answer {number}: {error}") from None
    return answer


def _toml(text: str) -> list[Any]:
    return _list_of_answers(tomllib.loads(text))


def _json(text: str) -> list[Any]:
    return _list_of_answers(json.loads(text))


def _json_lines(text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def _list_of_answers(document: Any) -> list[Any]:
    """Return a list of answers, given as such or as a table with the only key `answers`."""
    answers = document
    if isinstance(document, dict):
        if unknown := sorted(document.keys() - {"answers"}):
            raise ValueError(f"unknown key {unknown[0]!r}: answers begin with [[answers]]")
        answers = document.get("answers", [])
    if not isinstance(answers, list):
        raise ValueError("answers are a list: begin each with [[answers]]")
    return answers
