"""What a worker may say, checked: a frame becomes a typed value or a ProtocolViolation.

The code in a sandbox may be hostile and write to the stream itself, so nothing in a frame is
believed before it has been looked at here.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from rlm.errors import ProtocolViolation
from rlm.results import CellError, CellResult, Submission
from rlm.worker import wire

__all__ = ["Call", "Done", "read_call", "read_done", "read_value"]


class Call(Struct, frozen=True):
    """A question from a cell. `prompts` is how many model calls it stands for."""

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


class _ContextKind(Struct, forbid_unknown_fields=True):
    kind: Literal["text", "json"]


class _RlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    contexts: list[_ContextKind | None]


class _ToolArguments(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


class _NoArguments(Struct, forbid_unknown_fields=True):
    pass


_Shape = TypeVar("_Shape")
_Text = Literal["submission", "answer_content", "submission_json"]


class _DoneMeta(Struct, forbid_unknown_fields=True):
    stdout_chars: int
    stderr_chars: int
    error: CellError | None
    interrupted: bool
    how: Literal["FINAL", "FINAL_VAR", "SUBMIT", "submit_answer", "answer"] | None
    new_variables: dict[str, str]
    changed_variables: dict[str, str]
    deleted_variables: list[str]
    texts: list[_Text]


_ARGUMENTS: dict[str, type[Struct]] = {
    "llm": _LlmArguments,
    "rlm": _RlmArguments,
    "tool": _ToolArguments,
    "budget": _NoArguments,
}


def read_call(frame: wire.Frame) -> Call:
    """Check a CALL frame."""
    kind = _text(frame, 0)
    if kind not in _ARGUMENTS:
        raise ProtocolViolation(f"the worker asked for {kind[:40]!r}, which does not exist")
    arguments, checked = _checked(frame, 1, _ARGUMENTS[kind])
    parts = [_text(frame, index) for index in range(2, len(frame.parts))]
    prompts = 0
    if isinstance(checked, _LlmArguments):
        prompts, expected = len(parts), max(1, len(parts))
    elif isinstance(checked, _RlmArguments):
        prompts = len(checked.contexts)
        expected = max(1, prompts) + sum(context is not None for context in checked.contexts)
    else:
        expected = 0
    if len(parts) != expected or not (prompts <= 1 or arguments["batched"]):
        raise ProtocolViolation(f"a call of kind {kind!r} came with {len(parts)} parts")
    return Call(kind, arguments, parts, prompts)


def read_done(frame: wire.Frame) -> Done:
    """Check a DONE frame."""
    _, meta = _checked(frame, 0, _DoneMeta)
    if len(frame.parts) != 3 + len(meta.texts) or len(set(meta.texts)) != len(meta.texts):
        raise ProtocolViolation("the end of a cell came with the wrong number of parts")
    texts = {name: _text(frame, 3 + index) for index, name in enumerate(meta.texts)}
    submission = None
    if meta.how is not None and "submission" in texts:
        submission = Submission(texts["submission"], meta.how, texts.get("submission_json"))
    result = CellResult(
        stdout=_text(frame, 1),
        stderr=_text(frame, 2),
        stdout_chars=meta.stdout_chars,
        stderr_chars=meta.stderr_chars,
        error=meta.error,
        new_variables=meta.new_variables,
        changed_variables=meta.changed_variables,
        submission=submission,
        answer_content=texts.get("answer_content"),
        interrupted=meta.interrupted,
    )
    return Done(result, meta.deleted_variables)


def read_value(frame: wire.Frame) -> tuple[str | None, str | None]:
    """Check a VALUE frame: (the text it carries, the error it reports)."""
    meta, _ = _checked(frame, 0, dict[str, str])
    if len(frame.parts) > 2:
        raise ProtocolViolation("a value came with too many parts")
    return (_text(frame, 1) if len(frame.parts) == 2 else None), meta.get("error")


def _text(frame: wire.Frame, index: int) -> str:
    try:
        return frame.text(index)
    except wire.WireError as error:
        raise ProtocolViolation(f"the worker sent a malformed frame: {error}") from None


def _checked(frame: wire.Frame, index: int, shape: type[_Shape]) -> tuple[Any, _Shape]:
    """A JSON part as it came and in the shape it must have."""
    try:
        value = frame.json(index)
        return value, msgspec.convert(value, shape)
    except (wire.WireError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None
