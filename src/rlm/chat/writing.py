"""A chat into its file: under another name first, so that what has the name is whole."""

import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from rlm._util.atomic import replacing
from rlm.chat.saved import (
    ABOUT,
    DEFLATED_BYTES,
    TEXTS,
    VARIABLES,
    About,
    SavedContext,
    about_to_bytes,
)
from rlm.context import StoredContext
from rlm.errors import ConfigError

__all__ = ["write_saved"]

CHUNK_BYTES = 1 << 20
LEVEL = 1
LARGE_BYTES = 1 << 30
"""Larger members may need more than 32 bits for their size, which has to be said beforehand."""


def write_saved(
    path: Path,
    about: About,
    texts: Iterable[bytes],
    contexts: Mapping[str, StoredContext],
    variables: IO[bytes] | None,
) -> None:
    """Write all of it, readable for nobody else. It blocks: call it in a thread."""
    described = tuple(_facts(name, stored) for name, stored in contexts.items())
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w", compresslevel=LEVEL) as archive:
            _write(archive, about, described, texts, contexts, variables)
    except OSError as error:
        raise ConfigError(f"the chat can't be saved to {path}: {error.strerror}") from error


def _facts(name: str, stored: StoredContext) -> SavedContext:
    return SavedContext(
        name=name,
        kind=stored.kind,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        description=stored.description,
        documents=stored.documents,
        pictures=tuple(stored.pictures),
    )


def _write(
    archive: zipfile.ZipFile,
    about: About,
    described: tuple[SavedContext, ...],
    texts: Iterable[bytes],
    contexts: Mapping[str, StoredContext],
    variables: IO[bytes] | None,
) -> None:
    data = about_to_bytes(replace(about, contexts=described))
    _add(archive, ABOUT, (data,), len(data))
    held = list(texts)
    _add(archive, TEXTS, held, sum(map(len, held)))
    for number, stored in enumerate(contexts.values()):
        _add(archive, f"contexts/{number}", stored.chunks(CHUNK_BYTES), stored.size_bytes)
        for index, picture in enumerate(stored.pictures.values()):
            _add(archive, f"pictures/{number}/{index}", (picture.read(),), picture.size_bytes)
    if variables is not None:
        size = variables.seek(0, os.SEEK_END)
        variables.seek(0)
        with _member(archive, VARIABLES, size) as member:
            shutil.copyfileobj(variables, member, CHUNK_BYTES)


def _add(archive: zipfile.ZipFile, name: str, chunks: Iterable[bytes], size: int) -> None:
    with _member(archive, name, size) as member:
        for chunk in chunks:
            member.write(chunk)


def _member(archive: zipfile.ZipFile, name: str, size: int) -> IO[bytes]:
    archive.compression = zipfile.ZIP_DEFLATED if size <= DEFLATED_BYTES else zipfile.ZIP_STORED
    return archive.open(name, "w", force_zip64=size > LARGE_BYTES)
