"""Checks the frames of a worker: each becomes a typed value or a ProtocolViolation.

The code in a sandbox may be hostile and write to the stream itself. So nothing in a frame is
trusted before it was checked here, and nothing is decoded before its size was checked against
`rlm.worker.bounds` and the limits of the session.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, json

from rlm._util.untrusted import JsonBounds, TooLarge, check_json, read_json, read_texts
from rlm.errors import CallRefused, ProtocolViolation
from rlm.results import CellError, CellResult, Submission, bounded
from rlm.worker import bounds, wire
from rlm.worker.images import MAX_CALL_BYTES, MAX_IMAGE_BYTES, MAX_IMAGES, media_type_of

__all__ = [
    "Call",
    "Done",
    "SessionBounds",
    "read_call",
    "read_done",
    "read_files",
    "read_piece",
    "read_value",
]

_SMALL_FRAME = (bounds.MAX_META_BYTES, 2)
_CALL_FRAME = (wire.MAX_TO_HOST_BYTES, wire.MAX_PARTS)
_MAX_CHAR_BYTES = 4
_SLACK_BYTES = 4 << 10
"""Room for the heads of frames, short metadata, and the line that says how much was cut."""


class SessionBounds:
    """The limits on the frames of one session and on the texts in them.

    `kept_output_chars` and `max_submission_chars` are options of the session.
    """

    def __init__(
        self,
        kept_output_chars: int = 1_000_000,
        max_submission_chars: int = bounds.MAX_ANSWER_CHARS,
    ) -> None:
        self.kept_chars = kept_output_chars
        self.answer_chars = max_submission_chars
        kept_bytes = _MAX_CHAR_BYTES * kept_output_chars + _SLACK_BYTES
        answer_bytes = _MAX_CHAR_BYTES * max_submission_chars + _SLACK_BYTES
        done_bytes = bounds.MAX_META_BYTES + bounds.MAX_VARIABLES_BYTES + _SLACK_BYTES
        done_bytes = min(wire.MAX_TO_HOST_BYTES, done_bytes + 2 * kept_bytes + 4 * answer_bytes)
        value_bytes = {
            wire.FETCH: min(wire.MAX_TO_HOST_BYTES, answer_bytes),
            wire.LIST_FILES: bounds.MAX_FILES_BYTES + _SLACK_BYTES,
            wire.READ_FILE: bounds.MAX_PIECE_BYTES + _SLACK_BYTES,
        }
        self._usual = self._after(_SMALL_FRAME)
        self._by_request = {kind: self._after((size, 2)) for kind, size in value_bytes.items()}
        self._by_request[wire.EXEC] = {**self._usual, wire.DONE: (done_bytes, _MAX_DONE_PARTS)}

    @classmethod
    def of(cls, options: dict[str, Any]) -> "SessionBounds":
        """Return the limits of a session with these options."""
        names = ("kept_output_chars", "max_submission_chars")
        return cls(**{name: options[name] for name in names if name in options})

    def after(self, request: int) -> dict[int, tuple[int, int]]:
        """Return the limits on bytes and parts, by type of frame, during a request of this kind."""
        return self._by_request.get(request, self._usual)

    @staticmethod
    def _after(value: tuple[int, int]) -> dict[int, tuple[int, int]]:
        return {
            wire.READY: _SMALL_FRAME,
            wire.DONE: _SMALL_FRAME,
            wire.CALL: _CALL_FRAME,
            wire.VALUE: value,
        }


class Call(Struct, frozen=True):
    """A call from a cell. `prompts` is the number of model calls in it.

    `parts` are its texts. Pictures are in the arguments: `images` holds, for each prompt, a list
    of bytes and of names. It is missing if there are none.
    """

    kind: str
    arguments: dict[str, Any]
    parts: list[str]
    prompts: int


class Done(Struct, frozen=True):
    """The end of a cell."""

    result: CellResult
    deleted_variables: list[str]


class _LlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    images: list[list[int | str]] | None = None  # A number is the index of a part after the texts.


class _ContextKind(Struct, forbid_unknown_fields=True):
    kind: Literal["text", "json"]


class _RlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    contexts: list[_ContextKind | None]
    tools: list[str] | None = None


class _NoArguments(Struct, forbid_unknown_fields=True):
    pass


_Shape = TypeVar("_Shape")
_Text = Literal["submission", "answer_content", "submission_json"]


class _DoneMeta(Struct, forbid_unknown_fields=True):
    error: CellError | None
    how: Literal["FINAL", "FINAL_VAR", "SUBMIT", "submit_answer", "answer"] | None
    texts: list[_Text]


_NOTHING_TO_TELL = _DoneMeta(None, None, [])
_MAX_DONE_PARTS = 8
_MAX_VARIABLE_WORDS = 4 * bounds.MAX_CHANGED_VARIABLES + bounds.MAX_DELETED_VARIABLES
_META = JsonBounds(bounds.MAX_META_BYTES, 1_000)
_FILES = JsonBounds(bounds.MAX_FILES_BYTES, 4 * bounds.MAX_FILES)
_ARGUMENTS = {
    kind: JsonBounds(each.arguments_bytes, bounds.MAX_TOOL_VALUES)
    for kind, each in bounds.CALLS.items()
}
_ROWS = JsonBounds(bounds.CALLS[b"llm"].arguments_bytes, 4 * wire.MAX_PARTS)
"""In a batch, every prompt has a list of pictures, or an object that describes its context."""
_LLM = json.Decoder(_LlmArguments)
_RLM = json.Decoder(_RlmArguments)
_NOTHING = json.Decoder(_NoArguments)
_DONE = json.Decoder(_DoneMeta)
_VALUE = json.Decoder(dict[str, str])


def read_call(frame: wire.Frame) -> Call:
    """Check a CALL frame; raise CallRefused, which the cell sees, if it is too large."""
    kind = frame.parts[0] if frame.parts else b""
    read = _CALL_READERS.get(kind)
    if read is None:
        raise ProtocolViolation(f"the worker asked for {kind[:40]!r}, which does not exist")
    call = None
    if len(frame.parts) - 2 <= bounds.CALLS[kind].texts:
        if (problem := bounds.call_problem(frame.parts)) is not None:
            raise _refused(problem)
        try:
            call = read(frame)
        except TooLarge as error:
            raise _refused(f"a call of kind {kind.decode()!r} is too large: {error}") from None
    if call is None:
        raise ProtocolViolation(f"a call of kind {kind!r} came with {len(frame.parts) - 2} parts")
    return call


def _refused(problem: str) -> CallRefused:
    return CallRefused(problem, limit="size")


def _read_llm(frame: wire.Frame) -> Call | None:
    given = _checked(frame, 1, _LLM, _ROWS)
    _check_model(given.model)
    arguments: dict[str, Any] = {"model": given.model, "batched": given.batched}
    if given.images is None:
        parts = _texts(frame, 2)
    else:
        parts, arguments["images"] = _with_images(frame, given.images)
    if not parts or not (len(parts) == 1 or given.batched):
        return None
    return Call("llm", arguments, parts, len(parts))


def _with_images(
    frame: wire.Frame, given: list[list[int | str]]
) -> tuple[list[str], list[list[bytes | str]]]:
    """Return the prompts and the pictures of each; the last parts of the frame are pictures."""
    numbers = {each for row in given for each in row if not isinstance(each, str)}
    end = len(frame.parts) - len(numbers)
    if end != 2 + len(given) or numbers != set(range(len(numbers))):
        raise ProtocolViolation("a call came with other pictures than it counts")
    sent = frame.parts[end:]
    if any(len(row) > MAX_IMAGES for row in given) or sum(map(len, sent)) > MAX_CALL_BYTES:
        raise ProtocolViolation("a call came with too many pictures")
    if any(len(part) > MAX_IMAGE_BYTES or media_type_of(part) is None for part in sent):
        raise ProtocolViolation("a call came with a picture that is too large, or is none")
    prompts = _texts(wire.Frame(frame.type, frame.id, frame.parts[:end]), 2)
    return prompts, [[e if isinstance(e, str) else sent[e] for e in row] for row in given]


def _read_rlm(frame: wire.Frame) -> Call | None:
    given, parts = _checked(frame, 1, _RLM, _ROWS), _texts(frame, 2)
    _check_model(given.model)
    prompts = len(given.contexts)
    contexts = [context and {"kind": context.kind} for context in given.contexts]
    expected = max(1, prompts) + sum(context is not None for context in contexts)
    if len(parts) != expected or not (prompts <= 1 or given.batched):
        return None
    arguments: dict[str, Any] = {"model": given.model, "batched": given.batched}
    arguments["contexts"] = contexts
    if given.tools is not None:
        arguments["tools"] = given.tools
    return Call("rlm", arguments, parts, prompts)


def _check_model(model: str | None) -> None:
    if model is not None and len(model) > bounds.MAX_MODEL_CHARS:
        raise TooLarge(f"a model's name has at most {bounds.MAX_MODEL_CHARS} characters")


def _read_tool(frame: wire.Frame) -> Call | None:
    """Read with Python's json: msgspec reads only 40,000 numbers such as 1e300 a second."""
    try:
        given = read_json(frame.part(1), _ARGUMENTS[b"tool"])
    except TooLarge:
        raise
    except ValueError as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None
    if not isinstance(given, dict) or given.keys() != {"name", "arguments"}:
        raise ProtocolViolation("the worker called a tool in no known form")
    name, arguments = given["name"], given["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ProtocolViolation("the worker called a tool in no known form")
    if len(name) > bounds.MAX_MODEL_CHARS:
        raise TooLarge(f"a tool's name has at most {bounds.MAX_MODEL_CHARS} characters")
    return Call("tool", {"name": name, "arguments": arguments}, [], 0)


def _read_budget(frame: wire.Frame) -> Call | None:
    _checked(frame, 1, _NOTHING)
    return Call("budget", {}, [], 0)


def _read_told(frame: wire.Frame) -> Call | None:
    """Check a message of a cell: a key and a text."""
    _checked(frame, 1, _NOTHING)
    kind, parts = frame.text(0), _texts(frame, 2)
    return Call(kind, {}, parts, 0) if len(parts) == 2 else None


_CALL_READERS: dict[bytes, Callable[[wire.Frame], Call | None]] = {
    b"llm": _read_llm,
    b"rlm": _read_rlm,
    b"tool": _read_tool,
    b"stream": _read_told,
    b"note": _read_told,
    b"budget": _read_budget,
}


def read_done(
    frame: wire.Frame, *, calls: int, seconds: float, within: SessionBounds | None = None
) -> Done:
    """Check a DONE frame; `calls` and `seconds` were measured by the host."""
    within = within or _USUAL_BOUNDS
    parts = frame.parts
    if not 5 <= len(parts) <= _MAX_DONE_PARTS or len(parts[0]) != wire.DONE_COUNTS.size:
        raise ProtocolViolation("the end of a cell came with the wrong parts")
    stdout_chars, stderr_chars, new, changed, interrupted = wire.DONE_COUNTS.unpack(parts[0])
    meta = _metadata(frame, 1, _DONE) if parts[1] else _NOTHING_TO_TELL
    words = _variable_words(parts[4], new, changed)
    texts = dict(zip(meta.texts, _handed_in(parts[5:], within), strict=False))
    if not len(texts) == len(meta.texts) == len(parts) - 5:
        raise ProtocolViolation("the end of a cell came with the wrong number of parts")
    submission = None
    if meta.how is not None and "submission" in texts:
        submission = Submission(texts["submission"], meta.how, texts.get("submission_json"))
    result = CellResult(
        stdout=_output(parts[2], within.kept_chars),
        stderr=_output(parts[3], within.kept_chars),
        stdout_chars=stdout_chars,
        stderr_chars=stderr_chars,
        error=meta.error,
        new_variables=_pairs(words, 0, new),
        changed_variables=_pairs(words, new, changed),
        submission=submission,
        answer_content=texts.get("answer_content"),
        interrupted=interrupted,
        calls=calls,
        seconds=seconds,
    )
    deleted = words[2 * (new + changed) :]
    return Done(bounded(result, within.kept_chars, within.answer_chars), deleted)


def _variable_words(part: bytes, new: int, changed: int) -> list[str]:
    """Split names and descriptions, after checking how many there are."""
    if not part:
        words = []
    elif len(part) > bounds.MAX_VARIABLES_BYTES or part.count(b"\0") >= _MAX_VARIABLE_WORDS:
        raise ProtocolViolation("the end of a cell names more variables than are reported")
    else:
        words = _lenient(part).split("\0")
    if max(new, changed) > bounds.MAX_CHANGED_VARIABLES or 2 * (new + changed) > len(words):
        raise ProtocolViolation("the end of a cell counts more variables than it names")
    return words


def _handed_in(parts: list[bytes], within: SessionBounds) -> list[str]:
    """Decode a submitted text; one that is too long is cut before."""
    max_bytes = 2 * _MAX_CHAR_BYTES * within.answer_chars + _SLACK_BYTES
    return [
        _lenient(part) if len(part) <= max_bytes else str(part[:max_bytes], "utf-8", "replace")
        for part in parts
    ]


def _output(part: bytes, kept_chars: int) -> str:
    """Decode output; of very long output, only both ends are decoded."""
    if not part:
        return ""
    room = _MAX_CHAR_BYTES * kept_chars + _SLACK_BYTES
    if len(part) > room:
        half = room // 2
        return str(part[:half], "utf-8", "replace") + str(part[-half:], "utf-8", "replace")
    return _lenient(part)


def _lenient(part: bytes) -> str:
    """Decode text; lone surrogates are replaced if there are very many."""
    try:
        return _texts_of([part])[0]
    except TooLarge:
        return str(part, "utf-8", "replace")


def _pairs(words: list[str], start: int, count: int) -> dict[str, str]:
    """Return the pairs of name and description from index `start` on."""
    if not count:
        return {}
    words = words[2 * start : 2 * (start + count)]
    return dict(zip(words[::2], words[1::2], strict=True))


def read_value(
    frame: wire.Frame, within: SessionBounds | None = None
) -> tuple[str | None, str | None]:
    """Check a VALUE frame and return its text and its error."""
    within = within or _USUAL_BOUNDS
    meta = _metadata(frame, 0, _VALUE)
    if len(frame.parts) > 2:
        raise ProtocolViolation("a value came with too many parts")
    error = meta.get("error")
    text = _handed_in(frame.parts[1:], within)[0] if len(frame.parts) == 2 else None
    return (
        None if text is None else text[: within.answer_chars],
        None if error is None else error[: bounds.MAX_MESSAGE_CHARS],
    )


def read_files(frame: wire.Frame) -> list[tuple[str, int]]:
    """Check the answer to LIST_FILES: names and sizes, which may be lies."""
    try:
        listed = msgspec.convert(read_json(frame.part(1), _FILES), list[tuple[str, int]])
    except (ValueError, msgspec.ValidationError) as error:
        raise ProtocolViolation(f"the worker sent a malformed list of files: {error}") from None
    if len(listed) > bounds.MAX_FILES:
        raise ProtocolViolation(f"the worker listed {len(listed):,} files")
    return listed


def read_piece(frame: wire.Frame) -> bytes:
    """Check the answer to READ_FILE."""
    if len(frame.parts) != 2 or len(frame.parts[1]) > bounds.MAX_PIECE_BYTES:
        raise ProtocolViolation("a piece of a file came in the wrong form")
    return frame.parts[1]


def _texts(frame: wire.Frame, start: int) -> list[str]:
    return _texts_of(frame.parts[start:])


def _texts_of(parts: list[bytes]) -> list[str]:
    try:
        return read_texts(parts)
    except UnicodeDecodeError as error:
        reason = f"text is not UTF-8: {error.reason}"
        raise ProtocolViolation(f"the worker sent a malformed frame: {reason}") from None


def _metadata(frame: wire.Frame, index: int, decoder: json.Decoder[_Shape]) -> _Shape:
    """Check the size of an answer; one that is too large is a violation."""
    try:
        return _checked(frame, index, decoder)
    except TooLarge as error:
        raise ProtocolViolation(f"the worker sent metadata that is too large: {error}") from None


def _checked(
    frame: wire.Frame, index: int, decoder: json.Decoder[_Shape], allowed: JsonBounds = _META
) -> _Shape:
    """Decode a JSON part of a known shape."""
    try:
        part = frame.part(index)
        check_json(part, allowed)
        return decoder.decode(part)
    except TooLarge:
        raise
    except (wire.WireError, msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # It may still be valid: Python's json accepts NaN and lone surrogates.
    try:
        return msgspec.convert(read_json(frame.part(index), allowed), decoder.type)
    except TooLarge:
        raise
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None


_USUAL_BOUNDS = SessionBounds()
