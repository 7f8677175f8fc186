"""Convert PDF, Office and other documents to text, in a process with limits."""

import importlib
import importlib.util
import warnings
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rlm._util.distribution import own_name
from rlm._util.limited import JobLimits, Jobs, JobStopped
from rlm.context.opening import display_path, open_regular, unreadable
from rlm.context.skipping import FAILED, NEEDS_EXTRA, NO_TEXT
from rlm.errors import ConfigError

__all__ = ["CONVERTERS", "Converter", "DocumentError", "convert", "preload"]

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
    """Load markitdown and everything its converters need."""
    with suppress(ImportError):
        _engine()


def convert(path: str, suffix: str) -> str | dict[str, str]:
    """Return the text of a document, or the problem with it: its kind and its message."""
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
    """Return one of the errors that markitdown lists: that of its first attempt."""
    attempts = [each for each in getattr(error, "attempts", None) or () if each.exc_info]
    cause: BaseException = attempts[0].exc_info[1] if attempts else error
    return cause


def _problem(cause: BaseException) -> dict[str, str]:
    return {"problem": f"{type(cause).__name__}: {' '.join(str(cause)[:2_000].split())[:200]}"}


_JOBS = Jobs("rlm.context.documents")
_MIN_SECONDS, _MAX_SECONDS, _BYTES_A_SECOND = 30.0, 600.0, 50_000
_MIN_MEMORY_BYTES, _MAX_MEMORY_BYTES, _MEMORY_FACTOR = 512 << 20, 4 << 30, 100
_MIN_TEXT_BYTES, _MAX_TEXT_BYTES, _TEXT_FACTOR = 16 << 20, 256 << 20, 20
_ALSO_TEXT = frozenset((".htm", ".html"))
"""Formats that are text: converted if possible, else read as they are."""

_EXTRAS = {".msg": "outlook", ".xls": "xls"}
"""Formats that need extras of markitdown which ours does not include."""


class DocumentError(ConfigError):
    """A document that cannot be converted; `reason` is why a folder would skip it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Converter:
    """Converts documents, each in a process of its own."""

    def text_of(self, path: Path) -> str | None:
        """Return the text of a document as Markdown; None if the file is to be read as it is."""
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
        return importlib.util.find_spec("markitdown") is not None

    def _text_of(self, path: Path, suffix: str) -> str:
        if not self._available:
            raise _missing(path, suffix, f"{own_name()}[documents]")
        limits = _limits_for(path)
        try:
            found = _JOBS.call("convert", str(path.absolute()), suffix, limits=limits)
        except JobStopped as stopped:
            raise _stopped(path, stopped, limits) from None
        if isinstance(found, dict):
            if "missing" in found:
                raise _missing(path, suffix, f"markitdown[{_EXTRAS.get(suffix, suffix[1:])}]")
            raise _failed(path, found["problem"])
        text = str(found)
        if not text.strip():
            raise DocumentError(
                f"{display_path(path)} holds no text; "
                "if its pages are scanned, run OCR on it first",
                NO_TEXT,
            )
        return text


def _missing(path: Path, suffix: str, package: str) -> DocumentError:
    return DocumentError(
        f"{display_path(path)} is a {suffix} document; to read it, pip install '{package}'",
        NEEDS_EXTRA,
    )


def _failed(path: Path, problem: str) -> DocumentError:
    return DocumentError(
        f"{display_path(path)} could not be converted ({problem}); "
        "is it damaged, or protected by a password?",
        FAILED,
    )


def _limits_for(path: Path) -> JobLimits:
    """Return the limits for a document: a large one may take more time and memory."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error
    return JobLimits(
        seconds=min(_MIN_SECONDS + size / _BYTES_A_SECOND, _MAX_SECONDS),
        memory_bytes=min(_MIN_MEMORY_BYTES + _MEMORY_FACTOR * size, _MAX_MEMORY_BYTES),
        output_bytes=min(_MIN_TEXT_BYTES + _TEXT_FACTOR * size, _MAX_TEXT_BYTES),
    )


def _stopped(path: Path, stopped: JobStopped, limits: JobLimits) -> DocumentError:
    most = {
        "time": f"it takes more than {limits.seconds:.0f} s",
        "memory": f"it takes more than {limits.memory_bytes >> 20:,} MiB of memory",
        "output": f"its text has more than {limits.output_bytes >> 20} MiB",
    }
    if stopped.reason not in most:
        return _failed(path, "the converter crashed")
    return DocumentError(
        f"{display_path(path)} could not be converted: {most[stopped.reason]}; "
        "hand in a part of it, or its text",
        FAILED,
    )
