"""Replies stored on disk, so that the same request need not be paid for twice.

A reply is found by a digest of the whole request: the server, the model, every message, all
sampling options, tools and the output cap. Only the time that cells took is left out, because it
differs between executions. A problem with the cache is a miss, never an error of a run; what must
not be lost is in the journal.
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

from rlm._util.finding import base_folder
from rlm.errors import ConfigError
from rlm.messages import Message, Reply, Request

if TYPE_CHECKING:
    from rlm.calls.cache.file import CacheFile

__all__ = ["ReplyCache", "as_cache"]

KEY_VERSION = 1
"""Part of every key; increased when the same request would no longer get the same reply."""

USUAL_BYTES = 1024**3
KEPT_FINISHES = frozenset({"stop", "length", "tool_calls"})

_TIME_TAKEN = re.compile(r"(?m)^(stdout [\d.]+[KM]? chars(?: \| \d+ calls?)?) \| \d+\.\d s \|")
"""The time in the line below the output of cells, as `prompts.observation` writes it."""

T = TypeVar("T")
log = logging.getLogger("rlm")


def _timeless(message: Message) -> Message:
    """Return a message without the time that cells took."""
    if message.role not in ("user", "tool") or not isinstance(message.content, str):
        return message
    text = _TIME_TAKEN.sub(r"\1 |", message.content)
    return message if text == message.content else msgspec.structs.replace(message, content=text)


class ReplyCache:
    """A store of replies in one folder, shared by all processes of one user.

    Requests at temperature 0 are looked up and stored; with `always`, all requests; with
    `calls_only`, only calls from cells. The least recently used replies are deleted when the
    file exceeds `max_bytes`.
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
            raise ConfigError(f"max_bytes must be a positive integer, not {max_bytes!r}")
        self.folder = Path(folder).expanduser().absolute()
        self.always = always
        self.calls_only = calls_only
        self.max_bytes = max_bytes
        self._thread: _CacheThread | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the folder, so that a bad one is reported before a run starts."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            usable = os.access(self.folder, os.R_OK | os.W_OK | os.X_OK)
        except OSError as error:
            raise ConfigError(
                f"the cache folder {self.folder} can't be created: {error}"
            ) from error
        if not usable:
            raise ConfigError(f"the cache folder {self.folder} is not writable; choose another")

    def wants(self, request: Request, *, is_call: bool = True) -> bool:
        """Whether replies to this request may be reused; `is_call`: a cell made it."""
        if self.calls_only and not is_call:
            return False
        temperature = request.sampling.get("temperature")
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        return self.always or (is_number and temperature == 0)

    def key(self, identity: str, request: Request, number: int, sample: int = 0) -> bytes | None:
        """Return the digest of a request as it is sent; None if it can't be encoded.

        `number` counts equal requests of one run, which are separate samples, and `sample` is the
        number of the run among several runs of one query.
        """
        timeless = msgspec.structs.replace(
            request, messages=tuple(map(_timeless, request.messages))
        )
        whole = (KEY_VERSION, identity, timeless, number, *((sample,) if sample else ()))
        try:
            return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).digest()
        except (TypeError, UnicodeEncodeError):
            return None

    async def get(self, key: bytes) -> Reply | None:
        """Return the reply stored under a key; None if there is none that can be read."""
        return await self._own_thread().run(lambda file: file.get(key))

    async def put(self, key: bytes, reply: Reply) -> None:
        """Store a reply, unless it is empty or was cut off by a failure."""
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
    """One thread with one connection: a slow disk never blocks the event loop."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.process = os.getpid()  # neither threads nor connections survive a fork
        self._folder = folder
        self._max_bytes = max_bytes
        self._executor = ThreadPoolExecutor(1, "rlm-cache")
        self._file: CacheFile | None = None
        self._warned = False

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
            if not self._warned:
                self._warned = True
                log.warning(
                    "the reply cache in %s is currently unusable: %s", self._folder, trouble
                )
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
    """Return the cache that `RLM(cache=...)` means; True stands for the user's cache folder."""
    if given is None or given is False:
        return None
    if given is True:
        given = base_folder(variables, "XDG_CACHE_HOME", ".cache") / "rlm"
    if not isinstance(given, ReplyCache | str | Path):
        raise ConfigError(f"cache must be True, a folder or a ReplyCache, not {given!r}")
    cache = given if isinstance(given, ReplyCache) else ReplyCache(given)
    cache.prepare()
    return cache
