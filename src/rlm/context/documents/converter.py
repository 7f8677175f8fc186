"""Convert PDF, Office and other documents to text, in a process with limits."""

from pathlib import Path

from rlm._util.distribution import install_command
from rlm._util.limited import JobLimits, Jobs, JobStopped
from rlm.context.documents.formats import FORMATS, missing_module
from rlm.data.filesystem.opening import display_path, unreadable
from rlm.data.filesystem.skipping import FAILED, NEEDS_EXTRA, NO_TEXT
from rlm.errors import ConfigError

__all__ = ["Converter", "DocumentError"]

_JOBS = Jobs("rlm.context.documents.formats")
_MIN_SECONDS, _MAX_SECONDS, _BYTES_A_SECOND = 30.0, 600.0, 50_000
_MIN_MEMORY_BYTES, _MAX_MEMORY_BYTES, _MEMORY_FACTOR = 512 << 20, 4 << 30, 100
_MIN_TEXT_BYTES, _MAX_TEXT_BYTES, _TEXT_FACTOR = 16 << 20, 256 << 20, 20
_ALSO_TEXT = frozenset((".htm", ".html"))
"""Formats that are text: converted if possible, else read unchanged."""


class DocumentError(ConfigError):
    """A document that cannot be converted; `reason` says why a folder skips it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Converter:
    """Converts documents, each in its own process."""

    def text_of(self, path: Path) -> str | None:
        """Return the text of a document as Markdown; None if the file should be read unchanged."""
        suffix = path.suffix.lower()
        if suffix not in FORMATS:
            return None
        try:
            return self._text_of(path, suffix)
        except DocumentError:
            if suffix in _ALSO_TEXT:
                return None
            raise

    def _text_of(self, path: Path, suffix: str) -> str:
        if missing_module(suffix) is not None:
            raise _missing(path, suffix)
        limits = _limits_for(path)
        try:
            found = _JOBS.call("convert", str(path.absolute()), suffix, limits=limits)
        except JobStopped as stopped:
            raise _stopped(path, stopped, limits) from None
        if isinstance(found, dict):
            if "refused" in found:
                raise _refused(path, found["refused"])
            raise _failed(path, found["problem"])
        text = str(found)
        if not text.strip():
            raise DocumentError(
                f"{display_path(path)} contains no text; if its pages are scanned, run OCR on it "
                "first",
                NO_TEXT,
            )
        return text


def _missing(path: Path, suffix: str) -> DocumentError:
    return DocumentError(
        f"{display_path(path)} is a {suffix} document; to read it, {install_command('documents')}",
        NEEDS_EXTRA,
    )


def _refused(path: Path, words: str) -> DocumentError:
    return DocumentError(f"{display_path(path)} could not be converted: {words}", FAILED)


def _failed(path: Path, problem: str) -> DocumentError:
    return DocumentError(
        f"{display_path(path)} could not be converted ({problem}); is it damaged or "
        "password-protected?",
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
        "output": f"its text is larger than {limits.output_bytes >> 20} MiB",
    }
    if stopped.reason not in most:
        return _failed(path, "the converter crashed")
    return _refused(path, f"{most[stopped.reason]}; pass part of it, or its text")
