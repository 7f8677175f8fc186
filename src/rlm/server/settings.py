"""What the operator decided: a frozen value that every part of the server reads."""

from pathlib import Path

from msgspec import Struct, field

from rlm.errors import ConfigError
from rlm.limits import Limits

__all__ = ["Settings"]

MIB = 1 << 20


class Settings(Struct, frozen=True, kw_only=True):
    """Ceilings that no client can raise, and where the server stores its data.

    `limits` apply to a request that asks for none, and a request may only ask for less.
    `context_over`: messages with more characters become a context. `max_bodies_bytes` limits all
    requests on disk while they arrive and wait, `max_memory_bytes` all requests in memory once they
    have been read.
    """

    folder: Path
    limits: Limits = field(default_factory=lambda: Limits(max_seconds=3_600.0))
    context_over: int = 8_000
    max_concurrent_runs: int = 32
    max_queued: int = 256
    queue_seconds: float = 60.0
    max_body_bytes: int = 64 * MIB
    max_bodies_bytes: int = 2_048 * MIB
    max_memory_bytes: int = 1_024 * MIB
    max_file_bytes: int = 512 * MIB
    max_files_bytes: int = 4_096 * MIB
    file_days: float = 30.0
    grace_seconds: float = 20.0
    heartbeat_seconds: float = 10.0
    send_seconds: float = 30.0
    body_seconds: float = 120.0
    cors_origins: tuple[str, ...] = ()
    resumes: bool = True

    def __post_init__(self) -> None:
        for name in (
            *("context_over", "max_concurrent_runs", "max_body_bytes", "max_file_bytes"),
            *("max_bodies_bytes", "max_memory_bytes"),
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)!r}")
        if self.max_queued < 0:
            raise ConfigError(f"max_queued must be 0 or more, not {self.max_queued}")
