"""What one job may use, and how the end of a job that used more is reported."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["JobLimits", "JobStopped", "Reason"]

Reason = Literal["time", "memory", "output", "crash"]


@dataclass(frozen=True)
class JobLimits:
    """The limits of one job; its processor time is limited to `seconds`, too."""

    seconds: float = 10.0
    memory_bytes: int = 512 << 20
    output_bytes: int = 64 << 20


class JobStopped(Exception):
    """A job has no result: a limit was exceeded (`reason`), or it failed in its process."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
