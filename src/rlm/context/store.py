"""Store what callers pass in. Blocking; may run in any thread."""

import json
import re
from collections.abc import Iterator, Mapping
from os import PathLike, fsdecode
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from rlm._util.lazy import pattern
from rlm._util.public_calls import warn_caller
from rlm.context.describe import describe
from rlm.context.fileset import FileSet
from rlm.context.parts import EncodedTexts, HeldTexts
from rlm.context.pictures import describe_picture
from rlm.context.stored import StoredContext
from rlm.context.streams import advice_for, is_open_file, read_file, read_items
from rlm.data import (
    Database,
    DataSource,
    Fetched,
    GivenTables,
    OpenCorpus,
    Place,
    given_data,
    open_data,
    reopen_data,
    tables_of,
)
from rlm.data.frames import Frame
from rlm.data.places.addresses import is_address
from rlm.errors import ConfigError
from rlm.images import Picture, picture_of

__all__ = [
    "ContextValue",
    "EncodedJson",
    "StoredContext",
    "restore_source",
    "store_context",
    "store_encoded",
    "store_source",
    "warn_of_path",
]

ContextValue = (
    str
    | bytes
    | bytearray
    | memoryview
    | list[Any]
    | tuple[Any, ...]
    | dict[str, Any]
    | PathLike[Any]
    | FileSet
    | Frame
    | GivenTables
    | Database
    | OpenCorpus
    | Place
    | Fetched
    | IO[str]
    | IO[bytes]
    | Iterator[Any]
    | None
)
"""A `str` is always text, never a path; files are `Path` objects, lists of those, or `files(…)`.

An open file is read from its position, and an iterator to its end, both within bounds. Data frames,
files that can only be tables, and the values of `table` and `database` stay on the host, for SQL.
The value of `place` is fetched.
"""


def store_context(
    value: ContextValue | StoredContext, pictures: Mapping[str, Picture] | None = None
) -> StoredContext:
    """Store what the caller passed in; None is an empty text; a StoredContext is kept as it is.

    `pictures` of another context can be named besides its own; the description omits them.
    """
    if isinstance(value, StoredContext):
        return value
    stored = _stored(value)
    if pictures:
        stored.pictures = {**pictures, **stored.pictures}
    return stored


MAX_PATH_CHARS = 1_024
_LIKE_A_FILE = pattern(
    r"[\w .~/\\:()+-]{1,200}\.(?:pdf|docx?|pptx?|xlsx?|epub|txt|md|csv|tsv|jsonl?|html?|xml|log)",
    re.IGNORECASE,
)


def warn_of_path(value: object) -> None:
    """Warn if a text is the name of a file: a `str` is always the context itself."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PATH_CHARS or "\n" in value:
        return
    if is_address(value) and not any(map(str.isspace, value)):
        shown = value.partition("?")[0].rpartition("@")[2]
        warn_caller(
            f"the context is the address itself, as text ({shown[:80]}); to read what it points "
            "to, pass place(…)"
        )
        return
    try:
        path = Path(value)
        exists = path.is_file() or ("/" in value and path.is_dir())
    except (OSError, ValueError):
        return
    if exists:
        _warn(f"the context is the string {value!r}, not the file of that name", value)
    elif _LIKE_A_FILE.fullmatch(value):
        _warn(f"the context is the string {value!r}; no file of that name exists here", value)


def _warn(what: str, path: str) -> None:
    warn_caller(f"{what}; to read the file, pass Path({path!r})")


class EncodedJson(Struct, frozen=True):
    """A list or dict that another process has decoded, described and encoded again."""

    text: str
    description: str
    are_texts: bool


def store_encoded(value: EncodedJson, beside: dict[str, Any]) -> StoredContext:
    """Store encoded JSON, or a dict of it (as `context`) and other values."""
    if beside:
        text = f'{{"context": {value.text}, {json.dumps(beside, ensure_ascii=False)[1:]}'
        return StoredContext("json", text, describe({"context": None, **beside}))
    texts = EncodedTexts(value.text) if value.are_texts else None
    return StoredContext("json", value.text, value.description, texts=texts)


def _stored(value: ContextValue) -> StoredContext:
    if value is None:
        value = ""
    if isinstance(value, str):
        text = value if type(value) is str else str.__getitem__(value, slice(None))
        return StoredContext("text", text, describe(text))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _store_bytes(bytes(value))
    if isinstance(value, Place | Fetched):
        return _store_fetched(_fetched(value))
    if (given := given_data(value)) is not None:
        return store_source(open_data(given))
    if isinstance(value, (PathLike, FileSet)):
        return _store_files(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], _FILES):
        return _store_several(value)
    if is_open_file(value):
        return _stored(read_file(value))
    if isinstance(value, Iterator):
        return _stored(read_items(value))
    return _store_json(value)


_FILES = (PathLike, Place, Fetched)


def store_source(source: DataSource) -> StoredContext:
    """Return the context of a source; the same data gives the same bytes."""
    manifest = json.dumps(source.manifest, sort_keys=True).encode()
    return StoredContext("source", manifest, source.description, source=source)


def restore_source(spec: dict[str, Any] | None, sha256: str, description: str) -> StoredContext:
    """Open the data of a recorded run again; ConfigError if it is gone or has changed."""
    found = store_source(reopen_data(spec))
    if found.sha256 != sha256:
        raise ConfigError("the data of this run has changed since then; pass the same data again")
    found.description = description
    return found


def _fetched(value: Place | Fetched) -> Fetched:
    if isinstance(value, Fetched):
        return value
    from rlm.data.places import fetch  # Imported late: few contexts are elsewhere.

    return fetch(value)


def _store_fetched(fetched: Fetched) -> StoredContext:
    """Store what was fetched as tables, one file, or several; it is never treated as a corpus."""
    if (given := tables_of(fetched)) is not None:
        stored = store_source(open_data(given))
    elif len(fetched.paths) == 1:
        stored = _store_files(fetched.paths[0])
    else:
        from rlm.context.gathering import gather_folder
        from rlm.context.reading import store_files

        stored = store_files(gather_folder(fetched.folder, fetched.place.shown))
    stored.remark(fetched.remarks)
    return stored


def _store_several(values: list[Any] | tuple[Any, ...]) -> StoredContext:
    """Store paths and places side by side."""
    paths: list[Path] = []
    remarks: list[str] = []
    labels: dict[Path, str] = {}
    for value in values:
        if not isinstance(value, _FILES):
            raise ConfigError(f"a list of files can contain only paths, not {type(value).__name__}")
        if isinstance(value, PathLike):
            paths.append(Path(fsdecode(value)))
            continue
        fetched = _fetched(value)
        remarks += fetched.remarks
        paths.append(fetched.folder)
        labels[fetched.folder] = fetched.label
    stored = _store_files(paths, labels)
    stored.remark(remarks)
    return stored


def _store_files(
    value: PathLike[Any] | FileSet | list[Path], labels: Mapping[Path, str] | None = None
) -> StoredContext:
    """Store files; the imports are here because many programs pass only texts."""
    from rlm.context.gathering import gather_folder, gather_paths, gather_set
    from rlm.context.reading import store_file, store_files
    from rlm.data.filesystem.opening import is_folder

    if isinstance(value, list):
        return store_files(gather_paths(value, labels or {}))
    if isinstance(value, FileSet):
        return store_files(gather_set(value))
    path = Path(fsdecode(value))
    return store_files(gather_folder(path)) if is_folder(path) else store_file(path)


def _store_bytes(data: bytes) -> StoredContext:
    picture = picture_of(data)
    if picture is None:
        return StoredContext("bytes", data, describe(data))
    description = describe_picture(picture, "context")
    return StoredContext("bytes", data, description, pictures={"context": picture})


def _store_json(value: Any) -> StoredContext:
    if (texts := _texts_of(value)) is not None:
        return StoredContext("json", [texts], describe(value), texts=texts)
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        advice = advice_for(value) or str(error)
        raise ConfigError(
            "a context must be text, bytes, files, or lists and dicts that JSON can represent: "
            f"{advice}"
        ) from None
    return StoredContext("json", text, describe(value))


def _texts_of(value: Any) -> HeldTexts | None:
    """Return the current texts of a list or dict that holds nothing else."""
    if isinstance(value, (list, tuple)):
        texts = tuple(value)
        return HeldTexts(texts) if texts and _are_texts(texts) else None
    if isinstance(value, dict):
        names, texts = tuple(value), tuple(value.values())
        return HeldTexts(texts, names) if texts and _are_texts(names + texts) else None
    return None


def _are_texts(values: tuple[Any, ...]) -> bool:
    return set(map(type, values)) == {str}
