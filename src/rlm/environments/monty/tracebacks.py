"""An error in monty as a model should see it: as in `rlm.worker.tracebacks`, without our frames."""

from typing import Any, NamedTuple

from rlm.environments.monty.cell import ASYNC_PREFIX, ECHO_LINE
from rlm.environments.monty.inside import FEED_NAME
from rlm.results import CellError
from rlm.worker.capture import cut

__all__ = ["Raised"]

_FRAMES_READ = 40
_FRAMES_SHOWN = 12
_TRACEBACK_CHARS = 8_000
_MESSAGE_CHARS = 4_000
_FATAL = "the worker exceeded its memory limit and was terminated"


class _Frame(NamedTuple):
    feed: str
    line: int
    function: str
    source: str


class Raised(Exception):
    """Code in monty raised: the type, the message, and the lines it came through."""

    def __init__(self, kind: str, message: str, frames: list[_Frame]) -> None:
        super().__init__(message)
        self.type = kind
        self.message = message
        self.frames = frames

    @classmethod
    def of(cls, error: Any) -> "Raised":
        """What one of pydantic-monty's errors tells."""
        kind, _, message = error.display("type-msg").partition(":")
        frames = [
            _Frame(each.filename, each.line, each.function_name or "<module>", each.source_line)
            for each in error.traceback()[-_FRAMES_READ:]
            if each.filename != FEED_NAME and each.source_line
        ]
        return cls(kind.rpartition(".")[2], message.strip(), frames)

    @property
    def is_fatal(self) -> bool:
        """Whether the worker did not survive it."""
        return self.message == _FATAL

    def as_cell_error(self, name: str, echo_line: int, published: str | None = None) -> CellError:
        """The error of the cell `name`; `published` is its type, if monty has another."""
        kind = published or self.type
        message = cut(self.message, _MESSAGE_CHARS)
        lines = ["Traceback (most recent call last):"]
        here = self.frames[0].feed if self.frames else ""
        for frame in self.frames[-_FRAMES_SHOWN:]:
            is_here = frame.feed == here
            line = frame.line - (is_here and frame.line > echo_line)
            where = name if is_here else "an earlier cell"
            lines.append(f'  File "{where}", line {line}, in {frame.function}')
            source = frame.source.strip().replace(ASYNC_PREFIX, "")
            lines += [f"    {source}"] if source != ECHO_LINE else []
        lines.append(f"{kind}: {message}" if message else kind)
        return CellError(kind, message, cut("\n".join(lines) + "\n", _TRACEBACK_CHARS))
