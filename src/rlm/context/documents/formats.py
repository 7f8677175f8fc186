"""Convert one document, inside the process of a job: which module reads which format."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rlm.data.filesystem.opening import open_regular

__all__ = ["FORMATS", "Refused", "convert", "missing_module", "preload"]


class Refused(Exception):
    """A document that cannot be converted; the message is a clause that says what to do."""


class Format(NamedTuple):
    """The module in this package that reads a format, and the packages that it needs."""

    module: str
    packages: tuple[str, ...]


_HTML = Format("html", ("bs4", "markdownify"))
_EXCEL = Format("excel", ("openpyxl", "xlrd"))
FORMATS = {
    ".docx": Format("word", ("mammoth", *_HTML.packages)),
    ".epub": Format("epub", _HTML.packages),
    ".htm": _HTML,
    ".html": _HTML,
    ".msg": Format("outlook", ("olefile", *_HTML.packages)),
    ".pdf": Format("pdf", ("pdfminer",)),
    ".pptx": Format("powerpoint", ()),
    ".xls": _EXCEL,
    ".xlsx": _EXCEL,
}


def missing_module(suffix: str) -> str | None:
    """Return a package that a format needs but that is not installed."""
    for name in FORMATS[suffix].packages:
        if importlib.util.find_spec(name) is None:
            return name
    return None


def preload() -> None:
    """Load everything that the formats need, before processes are forked."""
    for each in FORMATS.values():
        importlib.import_module(f"{__package__}.{each.module}")
        for package in each.packages:
            with suppress(ImportError):
                importlib.import_module(package)


def convert(path: str, suffix: str) -> str | dict[str, str]:
    """Return the text of a document, or the problem with it.

    `refused` is a sentence that says what to do; `problem` is the error of a library.
    """
    module = importlib.import_module(f"{__package__}.{FORMATS[suffix].module}")
    try:
        handle, _ = open_regular(Path(path))
        with handle, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(module.text_of(handle))
    except Refused as error:
        return {"refused": str(error)}
    except RecursionError:
        return {"refused": "its parts are nested too deeply; pass its text instead"}
    except Exception as error:  # A damaged document makes libraries raise anything.
        if any(isinstance(each, MemoryError) for each in _causes(error)):
            raise MemoryError from error
        words = " ".join(str(error)[:2_000].split())[:200]
        return {"problem": f"{type(error).__name__}: {words}"}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; libraries hide one error behind another."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
