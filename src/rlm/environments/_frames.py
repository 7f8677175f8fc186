"""What a worker may say, checked: a frame becomes a typed value or a ProtocolViolation.

The code in a sandbox may be hostile and write to the stream itself, so nothing in a frame is
believed before it has been looked at here.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, json, structs

from rlm.errors import ProtocolViolation
from rlm.results import CellError, CellResult, Submission
from rlm.worker import wire
from rlm.worker.images import MAX_CALL_BYTES, MAX_IMAGE_BYTES, MAX_IMAGES, media_type_of

__all__ = ["Call", "Done", "read_call", "read_done", "read_files", "read_piece", "read_value"]


class Call(Struct, frozen=True):
    """A question from a cell. `prompts` is how many model calls it stands for.

    `parts` are its texts. Pictures are in the arguments: `images` holds, for each prompt, a list
    of bytes and of names; it is missing where there are none.
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
    images: list[list[int | str]] | None = None  # A number is that of a part after the texts.


class _ContextKind(Struct, forbid_unknown_fields=True):
    kind: Literal["text", "json"]


class _RlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    contexts: list[_ContextKind | None]
    tools: list[str] | None = None


class _ToolArguments(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


class _NoArguments(Struct, forbid_unknown_fields=True):
    pass


_Shape = TypeVar("_Shape")
_Text = Literal["submission", "answer_content", "submission_json"]


class _DoneMeta(Struct, forbid_unknown_fields=True):
    error: CellError | None
    how: Literal["FINAL", "FINAL_VAR", "SUBMIT", "submit_answer", "answer"] | None
    texts: list[_Text]


_NOTHING_TO_TELL = _DoneMeta(None, None, [])
_LLM = json.Decoder(_LlmArguments)
_RLM = json.Decoder(_RlmArguments)
_TOOL = json.Decoder(_ToolArguments)
_NOTHING = json.Decoder(_NoArguments)
_DONE = json.Decoder(_DoneMeta)
_VALUE = json.Decoder(dict[str, str])


def read_call(frame: wire.Frame) -> Call:
    """Check a CALL frame."""
    kind = frame.parts[0] if frame.parts else b""
    read = _CALL_READERS.get(kind)
    if read is None:
        raise ProtocolViolation(f"the worker asked for {kind[:40]!r}, which does not exist")
    call = read(frame)
    if call is None:
        raise ProtocolViolation(f"a call of kind {kind!r} came with {len(frame.parts) - 2} parts")
    return call


def _read_llm(frame: wire.Frame) -> Call | None:
    given = _checked(frame, 1, _LLM)
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
    """The prompts, and for each its pictures; the last parts of the frame are those sent along."""
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
    given, parts = _checked(frame, 1, _RLM), _texts(frame, 2)
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


def _read_tool(frame: wire.Frame) -> Call | None:
    given = _checked(frame, 1, _TOOL)
    return None if len(frame.parts) > 2 else Call("tool", structs.asdict(given), [], 0)


def _read_budget(frame: wire.Frame) -> Call | None:
    _checked(frame, 1, _NOTHING)
    return None if len(frame.parts) > 2 else Call("budget", {}, [], 0)


def _read_told(frame: wire.Frame) -> Call | None:
    """Something a cell tells: a key, and the text under it."""
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


def read_done(frame: wire.Frame, *, calls: int, seconds: float) -> Done:
    """Check a DONE frame; `calls` and `seconds` are what the host knows of the cell."""
    parts = frame.parts
    if len(parts) < 5 or len(parts[0]) != wire.DONE_COUNTS.size:
        raise ProtocolViolation("the end of a cell came with the wrong parts")
    stdout_chars, stderr_chars, new, changed, interrupted = wire.DONE_COUNTS.unpack(parts[0])
    meta = _checked(frame, 1, _DONE) if parts[1] else _NOTHING_TO_TELL
    stdout, stderr, variables, *more = _texts(frame, 2)
    words = variables.split("\0") if variables else []
    if 2 * (new + changed) > len(words):
        raise ProtocolViolation("the end of a cell counts more variables than it names")
    texts = dict(zip(meta.texts, more, strict=False))
    if not len(texts) == len(meta.texts) == len(more):
        raise ProtocolViolation("the end of a cell came with the wrong number of parts")
    submission = None
    if meta.how is not None and "submission" in texts:
        submission = Submission(texts["submission"], meta.how, texts.get("submission_json"))
    result = CellResult(
        stdout=stdout,
        stderr=stderr,
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
    return Done(result, words[2 * (new + changed) :])


def _pairs(words: list[str], start: int, count: int) -> dict[str, str]:
    """The pairs of name and description from the `start`th on."""
    if not count:
        return {}
    words = words[2 * start : 2 * (start + count)]
    return dict(zip(words[::2], words[1::2], strict=True))


def read_value(frame: wire.Frame) -> tuple[str | None, str | None]:
    """Check a VALUE frame: (the text it carries, the error it reports)."""
    meta = _checked(frame, 0, _VALUE)
    if len(frame.parts) > 2:
        raise ProtocolViolation("a value came with too many parts")
    return (_texts(frame, 1)[0] if len(frame.parts) == 2 else None), meta.get("error")


def read_files(frame: wire.Frame) -> list[tuple[str, int]]:
    """Check the answer to LIST_FILES: names and sizes, which are not to be believed."""
    try:
        return msgspec.convert(frame.json(1), list[tuple[str, int]])
    except (wire.WireError, msgspec.ValidationError) as error:
        raise ProtocolViolation(f"the worker sent a malformed list of files: {error}") from None


def read_piece(frame: wire.Frame) -> bytes:
    """Check the answer to READ_FILE."""
    if len(frame.parts) != 2:
        raise ProtocolViolation("a piece of a file came with the wrong number of parts")
    return frame.parts[1]


def _texts(frame: wire.Frame, start: int) -> list[str]:
    try:
        return frame.texts(start)
    except wire.WireError as error:
        raise ProtocolViolation(f"the worker sent a malformed frame: {error}") from None


def _checked(frame: wire.Frame, index: int, decoder: json.Decoder[_Shape]) -> _Shape:
    """A JSON part in the shape it must have."""
    try:
        return decoder.decode(frame.part(index))
    except (wire.WireError, msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # It may be legal all the same: Python's own JSON knows NaN and lone surrogates.
    try:
        return msgspec.convert(frame.json(index), decoder.type)
    except (wire.WireError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None
