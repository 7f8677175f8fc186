"""The job of converting one document; `rlm._util.limited` runs it in a process of its own.

Only the converters named here are used: no plugin, nothing that reaches for the network.
"""

import importlib
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlm.context.opening import open_regular

__all__ = ["CONVERTERS", "convert", "preload"]

CONVERTERS = {
    ".docx": "DocxConverter",
    ".epub": "EpubConverter",
    ".htm": "HtmlConverter",
    ".html": "HtmlConverter",
    ".msg": "OutlookMsgConverter",
    ".pdf": "PdfConverter",
    ".pptx": "PptxConverter",
    ".xls": "XlsConverter",
    ".xlsx": "XlsxConverter",
}


def preload() -> None:
    """Load markitdown and all that its converters need."""
    with suppress(ImportError):
        _engine()


def convert(path: str, suffix: str) -> str | dict[str, str]:
    """The text of a document, or the problem with it: what it is called, and what it says."""
    markitdown = importlib.import_module("markitdown")
    info = markitdown.StreamInfo(extension=suffix)
    handle, _ = open_regular(Path(path))
    try:
        with handle, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(_engine().convert_stream(handle, stream_info=info).text_content)
    except markitdown.MarkItDownException as error:
        cause = _cause(error)
        if isinstance(cause, MemoryError):
            raise MemoryError from error
        if isinstance(cause, markitdown.MissingDependencyException):
            return {"missing": suffix}
        return _problem(cause)
    except (OSError, ValueError, RecursionError) as error:
        return _problem(error)


@cache
def _engine() -> Any:
    markitdown = importlib.import_module("markitdown")
    converters = importlib.import_module("markitdown.converters")
    engine = markitdown.MarkItDown(enable_builtins=False, enable_plugins=False)
    for name in sorted(set(CONVERTERS.values())):
        engine.register_converter(getattr(converters, name)())
    return engine


def _cause(error: Exception) -> BaseException:
    """One of the many errors that markitdown lists: what its first attempt ran into."""
    attempts = [each for each in getattr(error, "attempts", None) or () if each.exc_info]
    cause: BaseException = attempts[0].exc_info[1] if attempts else error
    return cause


def _problem(cause: BaseException) -> dict[str, str]:
    return {"problem": f"{type(cause).__name__}: {' '.join(str(cause)[:2_000].split())[:200]}"}
