"""Contexts of a run, from fragments, attachments and piped text; and `-f rlm:PATH`.

llm copies fragments into its logs database, but of an attachment it stores only path and hash. So
`rlm:PATH` loads files as attachments.
"""

import glob
import mimetypes
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import llm

if TYPE_CHECKING:
    from rlm.context import ContextValue

__all__ = ["contexts_of", "free_name", "load_files", "named_texts"]

MAX_FILES = 10_000


def named_texts(fragments: Iterable[str], piped: str) -> dict[str, str]:
    """Return texts by short names, so that models see no path of this machine."""
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
    """Return the values of `context`, `context_1` and so on: texts, then files, then the rest.

    One text is a str unless `by_name`; several are a dict. The engine reads files when it needs
    them.
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
    """Return the name, with a number if it is taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


def load_files(argument: str) -> list[llm.Fragment | llm.Attachment]:
    """Load a file, or the files that match a pattern, as attachments.

    Use it as `rlm:FILE` or with a pattern such as `rlm:logs/**/*.log`. The files become `context`.
    """
    path = Path(argument).expanduser()
    if path.is_dir():
        raise ValueError(f"{argument} is a folder: name files, such as 'rlm:{argument}/**/*.txt'")
    if path.is_file():
        return [_attachment(path)]
    if path.exists():
        raise ValueError(f"{argument} is not a regular file; read it first, as in `llm … < pipe`")
    names = glob.iglob(str(path), recursive=True)  # noqa: PTH207 - an absolute pattern may be given
    found = [Path(name) for name in islice(names, MAX_FILES + 1) if Path(name).is_file()]
    if not found:
        raise ValueError(f"no such file: {argument}; check the path")
    if len(found) > MAX_FILES:
        raise ValueError(
            f"{argument} matches more than {MAX_FILES:,} files; use a narrower pattern"
        )
    return [_attachment(each) for each in sorted(found)]


def _attachment(path: Path) -> llm.Attachment:
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return llm.Attachment(type=kind, path=str(path.resolve()))


def _short(source: str) -> str:
    """Return the last part of a path or an address."""
    path = urlsplit(source).path if "://" in source else source
    return PurePosixPath(path).name or urlsplit(source).netloc or "fragment"


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
