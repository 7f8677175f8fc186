"""PDF, Office and HTML files become text, by way of markitdown, the extra `documents`.

Only the converters named here are used: no plugin, nothing that reaches for the network.
"""

import importlib
from functools import cached_property
from pathlib import Path
from typing import Any

from rlm.context.opening import open_regular, shown
from rlm.context.skipping import FAILED, NEEDS_EXTRA, NO_TEXT
from rlm.errors import ConfigError

__all__ = ["CONVERTERS", "Converter", "DocumentError"]

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
_ALSO_TEXT = frozenset((".htm", ".html"))
"""What is text already: converted if that is possible, else read as it is."""

_EXTRAS = {".msg": "outlook", ".xls": "xls"}
"""Formats for which markitdown has extras of its own that ours does not include."""


class DocumentError(ConfigError):
    """A document that can't be converted; `reason` is why a folder would leave it out."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Converter:
    """Converts documents; markitdown is loaded when the first one comes."""

    def text_of(self, path: Path) -> str | None:
        """The text of a document, as Markdown; None if the file is to be read as it is."""
        suffix = path.suffix.lower()
        if suffix not in CONVERTERS:
            return None
        try:
            return self._text_of(path, suffix)
        except DocumentError:
            if suffix in _ALSO_TEXT:
                return None
            raise

    @cached_property
    def _available(self) -> bool:
        try:
            importlib.import_module("markitdown")
        except ImportError:
            return False
        return True

    def _text_of(self, path: Path, suffix: str) -> str:
        if not self._available:
            raise _missing(path, suffix, "rlm-engine[documents]")
        handle, _ = open_regular(path)
        with handle:
            text = self._convert(handle, path, suffix)
        if not text.strip():
            raise DocumentError(
                f"{shown(path)} holds no text; if its pages are scanned, run OCR on it first",
                NO_TEXT,
            )
        return text

    def _convert(self, handle: Any, path: Path, suffix: str) -> str:
        markitdown = importlib.import_module("markitdown")
        info = markitdown.StreamInfo(extension=suffix)
        try:
            text = self._engine.convert_stream(handle, stream_info=info).text_content
        except markitdown.MarkItDownException as error:
            raise _problem(path, suffix, error, markitdown.MissingDependencyException) from error
        except (OSError, ValueError) as error:
            raise _failed(path, error) from error
        return str(text)

    @cached_property
    def _engine(self) -> Any:
        markitdown = importlib.import_module("markitdown")
        converters = importlib.import_module("markitdown.converters")
        engine = markitdown.MarkItDown(enable_builtins=False, enable_plugins=False)
        for name in sorted(set(CONVERTERS.values())):
            engine.register_converter(getattr(converters, name)())
        return engine


def _problem(path: Path, suffix: str, error: Exception, missing: type[Exception]) -> DocumentError:
    """One line out of the many that markitdown writes: what its first attempt ran into."""
    attempts = [each for each in getattr(error, "attempts", None) or () if each.exc_info]
    cause = attempts[0].exc_info[1] if attempts else error
    if isinstance(cause, missing):
        return _missing(path, suffix, f"markitdown[{_EXTRAS.get(suffix, suffix[1:])}]")
    return _failed(path, cause)


def _missing(path: Path, suffix: str, package: str) -> DocumentError:
    return DocumentError(
        f"{shown(path)} is a {suffix} document; to read it, pip install '{package}'", NEEDS_EXTRA
    )


def _failed(path: Path, cause: BaseException) -> DocumentError:
    words = " ".join(str(cause).split())[:200]
    return DocumentError(
        f"{shown(path)} could not be converted ({type(cause).__name__}: {words}); "
        "is it damaged, or protected by a password?",
        FAILED,
    )
