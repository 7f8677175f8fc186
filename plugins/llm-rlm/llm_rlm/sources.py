"""Fragments, attachments and piped text, as the contexts of a run."""

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import llm

if TYPE_CHECKING:
    from rlm.context import ContextValue

__all__ = ["contexts_of", "free_name", "named_texts"]


def named_texts(fragments: Iterable[str], piped: str) -> dict[str, str]:
    """Texts by a short name: no path of this machine is told to a model."""
    texts: dict[str, str] = {}
    for number, fragment in enumerate(fragments, 1):
        source = getattr(fragment, "source", "") or f"fragment_{number}"
        texts[free_name(_short(source), texts)] = str(fragment)
    if piped:
        texts[free_name("stdin", texts)] = piped
    return texts


def contexts_of(
    texts: dict[str, str], attachments: Sequence[llm.Attachment], *, by_name: bool = False
) -> list["ContextValue"]:
    """Values for `context`, `context_1` and so on: texts first, then files, then the rest.

    One text is a str, unless it is wanted by name; several are a dict. Files are read by the
    engine, when they are needed.
    """
    texts, paths, others = dict(texts), list[Path](), list[bytes]()
    for number, each in enumerate(attachments, 1):
        if each.path:
            paths.append(Path(each.path))
            continue
        data = each.content_bytes() or b""
        text = _as_text(data)
        if text is None:
            others.append(data)
        else:
            name = _short(each.url) if each.url else f"attachment_{number}"
            texts[free_name(name, texts)] = text
    contexts: list[ContextValue] = []
    if texts:
        is_dict = by_name or len(texts) > 1
        contexts.append(dict(texts) if is_dict else next(iter(texts.values())))
    if paths:
        contexts.append(paths if len(paths) > 1 else paths[0])
    return [*contexts, *others]


def free_name(name: str, taken: dict[str, str]) -> str:
    """The name, or one like it that is not taken yet."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


def _short(source: str) -> str:
    """The last part of a path or an address."""
    path = urlsplit(source).path if "://" in source else source
    return PurePosixPath(path).name or urlsplit(source).netloc or "fragment"


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
