"""Turn what a tool returns into a value that a cell can hold, within limits."""

import itertools
import re
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from rlm.errors import ToolError
from rlm.worker import tagged

__all__ = ["collected", "cut", "error_line", "one_line", "plain", "problem", "with_notes"]

MAX_NOTE_CHARS = 100
MAX_NOTES_CHARS = 400


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int) -> str:
    """Return untrusted text on one line: no control characters, no end of a code span."""
    some = text[: 8 * most]
    kept = (
        " " if each.isspace() or unicodedata.category(each) in {"Zl", "Zp"} else each
        for each in some
        if each.isspace() or unicodedata.category(each)[0] != "C"
    )
    return cut(" ".join("".join(kept).replace("`", "'").split()), most)


def with_notes(text: str, notes: Mapping[str, str]) -> str:
    """Return a description followed by short notes about parameters."""
    told, left = [], MAX_NOTES_CHARS
    for name, note in notes.items():
        line = f"{name}: {one_line(note, MAX_NOTE_CHARS).rstrip('.')}"
        left -= len(line)
        if left < 0:
            break
        told.append(line)
    if not told:
        return text
    return f"{text} ({'; '.join(told)})" if text else f"({'; '.join(told)})"


MAX_RESULT_BYTES = 16 << 20
MAX_ITEMS = 1_000_000
"""The most items to collect from an iterator, which may be endless."""

_LISTED = (Iterator, AbstractSet, Sequence, ValuesView)
_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_CHARS = 500
_MAX_PROBLEMS = 3
_HOST_PATH = re.compile(
    r"""(?<![\w:/.])(/[^\s/'"]+)/(?:[^\s/'"]+/)*|\b[A-Za-z]:\\(?:[^\\'"]+\\)+"""
)


def plain(value: Any, hidden: Any = None) -> Any:
    """Return the result as data, never as an object; ToolError if it is too large.

    Data is what `rlm.worker.tagged` can write: JSON's types, tuples, sets and bytes. `hidden` is an
    object that is shown only by the name of its type, even if its class is a data class.
    """
    try:
        value = _Conversion(hidden).data(value)
        text = tagged.dumps(value)
    except RecursionError:
        raise ToolError("the result refers to itself or is nested too deeply") from None
    if len(text) > MAX_RESULT_BYTES:
        raise _too_large()
    return value


def _too_large() -> ToolError:
    most = MAX_RESULT_BYTES >> 20
    return ToolError(f"the result is larger than {most} MiB as JSON; ask for less")


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    """Return everything that an async generator yields."""
    found = []
    async for item in items:
        found.append(item)
        _check_count(len(found))
    return found


def error_line(error: BaseException, arguments: Any) -> str:
    """Return `ValueError: text` on one line, without host paths that the model did not name."""
    kind, text = type(error).__name__, _safe_text(error)
    return _shortened(f"{kind}: {text}" if text else kind, arguments)


def problem(error: Exception, arguments: Any) -> str:
    """Return what is wrong with arguments, for the model."""
    if (listed := _listed_problems(error)) is not None:
        text = listed
    elif isinstance(error, TypeError | msgspec.ValidationError):
        text = _safe_text(error)
    else:
        text = error_line(error, arguments)
    notes = [f"{note}: " for note in getattr(error, "__notes__", ())]
    return _shortened("".join(notes) + text, arguments)


def _listed_problems(error: Exception) -> str | None:
    """Return the problems that pydantic lists, whose own text has many lines."""
    listed = getattr(error, "errors", None) or getattr(error.__cause__, "errors", None)
    if not callable(listed):
        return None
    try:
        found = listed()[:_MAX_PROBLEMS]
        places = [".".join(map(str, each["loc"])) for each in found]
        texts = [str(each["msg"]) for each in found]
    except Exception:  # noqa: BLE001 - the plugin boundary: not pydantic's
        return None
    return "; ".join(": ".join(filter(None, pair)) for pair in zip(places, texts, strict=True))


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the plugin boundary: the type alone says enough
        return ""


def _shortened(text: str, arguments: Any) -> str:
    known = repr(arguments)

    def hidden(found: re.Match[str]) -> str:
        first = found[1]
        is_ours = first is None or _exists(first)
        return "…/" if is_ours and found[0] not in known else found[0]

    line = _HOST_PATH.sub(hidden, " ".join(text[: 4 * _MAX_CHARS].split()))
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 1] + "…"


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # For example, the name is too long.
        return False


class _Conversion:
    """The conversion of one result, which stops once the result is too large.

    What is small in memory may be huge as data: one list may be an item of many others.
    """

    def __init__(self, hidden: Any) -> None:
        self._hidden = hidden
        self._left = MAX_RESULT_BYTES

    def data(self, value: Any) -> Any:
        """Return a value in the types of data, at any depth."""
        is_text = isinstance(value, str | bytes | bytearray)
        self._left -= len(value) + 2 if is_text else 2
        if self._left < 0:
            raise _too_large()
        if type(value) in _ATOMS:
            return value
        if self._hidden is not None and value is self._hidden:
            return f"<{type(value).__module__}.{type(value).__qualname__} object>"
        return self._container(value)

    def _container(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._key(key): self.data(each) for key, each in value.items()}
        if isinstance(value, set | frozenset):
            return self._set(value)
        if isinstance(value, tuple):
            return tuple(map(self.data, value))
        if isinstance(value, list):
            return list(map(self.data, value))
        if isinstance(value, bytearray | memoryview):
            return bytearray(value) if isinstance(value, bytearray) else bytes(value)
        if (found := _public_fields(value)) is not None:
            return {name: self.data(each) for name, each in found.items()}
        return self._known(value)

    def _known(self, value: Any) -> Any:
        """Return dates, enums and the like as msgspec does; the rest by their methods."""
        try:
            return msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_unknown)
        except _Unknown:
            return self.data(_encodable(value))

    def _set(self, value: AbstractSet[Any]) -> Any:
        """Return a set of data, or a list if its converted members are not hashable."""
        members = list(map(self.data, value))
        try:
            return frozenset(members) if isinstance(value, frozenset) else set(members)
        except TypeError:
            return members

    def _key(self, key: Any) -> Any:
        """Return the key of a dict as data, or as text if the data can't be a key."""
        found = self.data(key)
        try:
            hash(found)
        except TypeError:
            return str(key)
        return found


def _public_fields(value: Any) -> dict[str, Any] | None:
    """Return the public fields of a dataclass, attrs class or struct; None for any other value."""
    kind = type(value)
    found: dict[str, Any] = {}
    if is_dataclass(kind):
        names = {each.name: each.name for each in fields(kind)}
    elif isinstance(value, msgspec.Struct):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        if (tag_field := kind.__struct_config__.tag_field) is not None:
            found[tag_field] = kind.__struct_config__.tag
    elif isinstance(listed := getattr(kind, "__attrs_attrs__", None), tuple):
        names = {each.name: each.name for each in listed}
    else:
        return None
    for name, shown in names.items():
        if not name.startswith("_"):
            found[shown] = getattr(value, name, None)
    return found


def _unknown(value: Any) -> Any:
    raise _Unknown


class _Unknown(Exception):
    """Msgspec does not know the type of a value."""


def _encodable(value: Any) -> Any:
    """Convert a value that msgspec does not know to types it knows, or to text."""
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value) if base is not str else str.__str__(value)
    # Methods count only if the class has them: some objects have an attribute for any name.
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {key: value[key] for key in _to_list(value)}
    if isinstance(value, _LISTED):
        return _to_list(value)
    if callable(getattr(type(value), "tolist", None)):
        size = getattr(value, "size", None)
        _check_count(size if isinstance(size, int) else 0)
        return value.tolist()  # numpy's scalars and arrays, and what behaves like them
    return _ADDRESS.sub("", str(value))


def _to_list(items: Iterable[Any]) -> list[Any]:
    found = list(itertools.islice(items, MAX_ITEMS + 1))
    _check_count(len(found))
    return found


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise ToolError(f"the result has more than {MAX_ITEMS:,} items; ask for less")
