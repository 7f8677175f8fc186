"""Replies kept on disk, so that the same question need not be paid twice.

A reply is found by a digest of the whole request: which server, which model, every message, all
sampling options, tools and the output cap. Only how long cells took is left out of it: no two
executions agree on that. Whatever goes wrong with the cache is a miss, never an
error of a run; what must not be lost is the journal's business.
"""

import asyncio
import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rlm.errors import ConfigError
from rlm.messages import Message, Reply, Request

if TYPE_CHECKING:
    from rlm.calls.cache.file import CacheFile

__all__ = ["ReplyCache", "as_cache"]

KEY_VERSION = 1
"""Part of every key: it changes when the same request would no longer get the same reply."""

USUAL_BYTES = 1024**3
KEPT_FINISHES = frozenset({"stop", "length", "tool_calls"})

_TIME_TAKEN = re.compile(r"(?m)^(stdout [\d.]+[KM]? chars(?: \| \d+ calls?)?) \| \d+\.\d s \|")
"""In the line below the output of cells, as `prompts.observation` writes it."""

T = TypeVar("T")
log = logging.getLogger("rlm")


def _timeless(message: Message) -> Message:
    """A message without the time that cells took."""
    if message.role not in ("user", "tool") or not isinstance(message.content, str):
        return message
    text = _TIME_TAKEN.sub(r"\1 |", message.content)
    return message if text == message.content else msgspec.structs.replace(message, content=text)


class ReplyCache:
    """Replies in one folder, shared by every process of one user.

    Requests at temperature 0 are looked up and kept; with `always`, all are; with `calls_only`,
    none but calls from cells. What was used least recently goes when there are more than
    `max_bytes`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        always: bool = False,
        calls_only: bool = False,
        max_bytes: int = USUAL_BYTES,
    ) -> None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes <= 0:
            raise ConfigError(f"max_bytes must be a positive whole number, not {max_bytes!r}")
        self.folder = Path(folder).expanduser()
        self.always = always
        self.calls_only = calls_only
        self.max_bytes = max_bytes
        self._thread: _CacheThread | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make the folder, so that one that can't be used shows before a run does."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            usable = os.access(self.folder, os.R_OK | os.W_OK | os.X_OK)
        except OSError as error:
            raise ConfigError(f"the cache folder {self.folder} can't be made: {error}") from error
        if not usable:
            raise ConfigError(f"the cache folder {self.folder} can't be written to; name another")

    def wants(self, request: Request, *, is_call: bool = True) -> bool:
        """Whether replies to this request may be used again; `is_call`: a cell asked for it."""
        if self.calls_only and not is_call:
            return False
        temperature = request.sampling.get("temperature")
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        return self.always or (is_number and temperature == 0)

    def key(self, identity: str, request: Request, number: int) -> bytes | None:
        """The digest of a request as it goes on the wire; None if it can't be written down.

        `number` is its number among equal requests of its run: those are separate samples.
        """
        timeless = msgspec.structs.replace(
            request, messages=tuple(map(_timeless, request.messages))
        )
        whole = (KEY_VERSION, identity, timeless, number)
        try:
            return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).digest()
        except (TypeError, UnicodeEncodeError):
            return None

    async def get(self, key: bytes) -> Reply | None:
        """The reply kept under a key; one that can't be read is as good as none."""
        return await self._own_thread().run(lambda file: file.get(key))

    async def put(self, key: bytes, reply: Reply) -> None:
        """Keep a reply, unless it looks like an accident."""
        if reply.finish_reason in KEPT_FINISHES and (reply.text or reply.tool_calls):
            await self._own_thread().run(lambda file: file.put(key, reply))

    async def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.close)

    def _own_thread(self) -> "_CacheThread":
        with self._lock:
            if self._thread is None or self._thread.process != os.getpid():
                self._thread = _CacheThread(self.folder, self.max_bytes)
            return self._thread


class _CacheThread:
    """One thread with one connection: a slow disk never holds up the event loop."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.process = os.getpid()  # neither threads nor connections survive a fork
        self._folder = folder
        self._max_bytes = max_bytes
        self._executor = ThreadPoolExecutor(1, "rlm-cache")
        self._file: CacheFile | None = None
        self._told = False

    async def run(self, work: "Callable[[CacheFile], T]") -> T | None:
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._executor, self._guarded, work)
        except RuntimeError:  # closed meanwhile, or the interpreter is about to end
            return None
        return await future

    def _guarded(self, work: "Callable[[CacheFile], T]") -> T | None:
        from rlm.calls.cache.file import CacheFile, CacheTrouble

        try:
            if self._file is None:
                self._file = CacheFile.open(self._folder, self._max_bytes)
            return work(self._file)
        except CacheTrouble as trouble:
            self._file = None
            if not self._told:
                self._told = True
                log.warning("the reply cache in %s is of no use now: %s", self._folder, trouble)
            return None

    def close(self) -> None:
        self._executor.submit(self._close_file)
        self._executor.shutdown()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()


def as_cache(
    given: "bool | str | Path | ReplyCache | None", variables: Mapping[str, str]
) -> ReplyCache | None:
    """What `RLM(cache=...)` means: True is the user's cache folder, a path is a folder."""
    if given is None or given is False:
        return None
    if given is True:
        named = variables.get("XDG_CACHE_HOME", "")
        # The specification wants relative paths to be ignored.
        base = Path(named) if named.startswith("/") else Path.home() / ".cache"
        given = base / "rlm"
    if not isinstance(given, ReplyCache | str | Path):
        raise ConfigError(f"cache must be True, a folder or a ReplyCache, not {given!r}")
    cache = given if isinstance(given, ReplyCache) else ReplyCache(given)
    cache.prepare()
    return cache
