"""Fetch the files of a place: within limits, whole, and of one version each. Blocking."""

import asyncio
import concurrent.futures
import hashlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from rlm._util.limited import check_wanted
from rlm._util.text import counted
from rlm.data.filesystem.opening import display_path
from rlm.data.places.addresses import Fetched, Place
from rlm.data.places.naming import file_names
from rlm.data.places.problems import is_transient, problem
from rlm.data.places.stores import Changed, Entry, Store
from rlm.data.places.storing import FetchedFiles, Unfinished
from rlm.errors import ConfigError

__all__ = ["Contents", "Fetching", "fetch", "fetch_contents", "open_store"]

AT_ONCE = 8
TRIES = 4
FIRST_WAIT_SECONDS = 0.5
ROUNDS = 3
"""How often an object that changes while it is read is read, including the first time."""
TELL_SECONDS = 0.1
_MEGA = 1_000_000
_WHERE = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ACCOUNT_NAME", "HF_ENDPOINT"),
    *("AZURE_STORAGE_CONNECTION_STRING", "STORAGE_EMULATOR_HOST"),
)
"""Variables that determine which server an address means."""
_Result = TypeVar("_Result")


@dataclass
class Fetching:
    """The progress of a fetch."""

    found_files: int = 0
    found_bytes: int = 0
    files: int = 0
    bytes: int = 0
    reused_files: int = 0


class Contents(Struct, frozen=True):
    """The contents of a place by file name, and what was left out."""

    by_name: dict[str, str]
    remarks: tuple[str, ...]


def fetch(place: Place, on_progress: Callable[[Fetching], None] = lambda _: None) -> Fetched:
    """Fetch the files of a place into the user's cache; ConfigError says why it failed.

    Objects that have not changed since an earlier fetch are not fetched again.
    """
    files = FetchedFiles()
    found = fetch_contents(place, files, on_progress)
    files.forget_unused()
    folder = files.folder(found.by_name)
    return Fetched(place, folder, tuple(sorted(found.by_name)), found.remarks)


def fetch_contents(
    place: Place, files: FetchedFiles, on_progress: Callable[[Fetching], None]
) -> Contents:
    """Fetch the contents of a place; `on_progress` is called often, in this thread."""
    work = _Fetch(place, files)
    return _wait_for(work.run(), lambda: on_progress(work.progress))


def _wait_for(work: Coroutine[Any, Any, _Result], tell: Callable[[], None]) -> _Result:
    """Run a coroutine in its own thread; cancel it on Ctrl-C, or if it is no longer wanted."""
    task: asyncio.Task[_Result] | None = None
    is_over = False

    async def cancellable() -> _Result:
        nonlocal task
        task = asyncio.create_task(work)
        if is_over:
            task.cancel()
        return await task

    with concurrent.futures.ThreadPoolExecutor(1, "rlm-fetch") as thread:
        future = thread.submit(lambda: asyncio.run(cancellable()))
        try:
            while not concurrent.futures.wait([future], TELL_SECONDS).done:
                check_wanted()
                tell()
            tell()
            return future.result()
        finally:
            is_over = True
            if task is not None and not future.done():
                task.get_loop().call_soon_threadsafe(task.cancel)


class _Fetch:
    def __init__(self, place: Place, files: FetchedFiles) -> None:
        self.progress = Fetching()
        self._place = place
        self._files = files
        self._gone: list[str] = []

    async def run(self) -> Contents:
        clock = asyncio.timeout(self._place.limits.seconds)
        try:
            async with clock:
                store = open_store(self._place)
                try:
                    return await self._fetch(store)
                finally:
                    await store.close()
        except Exception as error:  # Libraries raise anything.
            if clock.expired():
                raise ConfigError(
                    f"{self._place.shown} takes more than {self._place.limits.seconds:,.0f} s to "
                    f"fetch ({self._amount()} so far); choose less, or allow more with "
                    "FetchLimits(seconds=…) in Python"
                ) from None
            raise problem(self._place, error) from error

    async def _fetch(self, store: Store) -> Contents:
        entries = await _retried(store.find)
        self._check(entries)
        names = file_names(entry.name for entry in entries)
        contents: dict[str, str] = {}
        current = {entry.key: entry for entry in entries}
        pending = entries
        for _ in range(ROUNDS):
            unsteady = await self._get_all(store, pending, contents)
            pending = await self._changed(store, pending, unsteady)
            current |= {entry.key: entry for entry in pending}
            if not pending:
                break
        if pending:
            raise ConfigError(
                f"{counted(len(pending), 'object')} of {self._place.shown} changed while being "
                f"read, such as {display_path(pending[0].name)}; ask again when nothing is writing "
                "there, or choose a copy"
            )
        self._note(current.values(), contents)
        if not contents:
            raise ConfigError(
                f"everything in {self._place.shown} was removed while it was being read; ask again"
            )
        by_name = {names[name]: content for name, content in contents.items()}
        return Contents(by_name, tuple(self._remarks()))

    async def _changed(self, store: Store, read: list[Entry], unsteady: set[str]) -> list[Entry]:
        """Return the objects that must be read again, as they are listed now."""
        now = await _retried(store.find_again)
        if now is None and unsteady:
            now = await _retried(store.find)
        latest = {entry.key: entry for entry in now or ()}
        pairs = [(entry, latest.get(entry.key, entry)) for entry in read]
        return [new for old, new in pairs if old.key in unsteady or new != old]

    def _check(self, entries: list[Entry]) -> None:
        """Refuse an empty or too large place before anything is fetched."""
        limits, shown = self._place.limits, self._place.shown
        size = sum(entry.size or 0 for entry in entries)
        self.progress.found_files, self.progress.found_bytes = len(entries), size
        if not entries:
            raise ConfigError(f"nothing found at {shown}; check the address and its prefix")
        if len(entries) > limits.files:
            raise ConfigError(
                f"{shown} has more than {limits.files:,} files; choose fewer with a longer prefix "
                "or a pattern, or allow more with FetchLimits(files=…) in Python"
            )
        if size > limits.bytes:
            raise self._too_large(size)
        if size > (free := self._files.free_bytes()):
            raise ConfigError(
                f"{shown} has {size / _MEGA:,.0f} MB, but the disk of "
                f"{display_path(self._files.root)} has room for {free / _MEGA:,.0f} MB; set "
                "XDG_CACHE_HOME to a folder on a larger disk"
            )

    def _too_large(self, size: int) -> ConfigError:
        return ConfigError(
            f"{self._place.shown} has at least {size / _MEGA:,.1f} MB, and at most "
            f"{self._place.limits.bytes / _MEGA:,.1f} MB are fetched; choose less with a longer "
            "prefix or a pattern, or allow more with --max-fetch-mb (in Python, FetchLimits)"
        )

    async def _get_all(
        self, store: Store, entries: list[Entry], contents: dict[str, str]
    ) -> set[str]:
        """Fetch objects, several at once; return the keys of those that changed during it."""
        unsteady: set[str] = set()
        waiting = iter(entries)

        async def get_some() -> None:
            for entry in waiting:
                if contents.pop(entry.name, None) is None:
                    self.progress.files += 1
                else:
                    self.progress.bytes -= entry.size or 0
                try:
                    contents[entry.name] = await self._get(store, entry)
                except Changed:
                    unsteady.add(entry.key)
                except FileNotFoundError:
                    if len(entries) == 1:
                        raise
                    self._gone.append(entry.name)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(entries))):
                    group.create_task(get_some())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return unsteady

    async def _get(self, store: Store, entry: Entry) -> str:
        """Return the content of one object, from the cache if possible."""
        version = self._version(entry)
        if version is not None and (known := self._files.known(version, entry.size)) is not None:
            self.progress.reused_files += 1
            self.progress.bytes += entry.size or 0
            return known
        with self._files.adding() as unfinished:
            try:
                await _retried(lambda: self._read(store, entry, unfinished))
                if entry.size is not None and unfinished.size != entry.size:
                    raise Changed(entry.name)
            except Changed:
                self.progress.bytes -= unfinished.size
                raise
            return self._files.add(unfinished)

    async def _read(self, store: Store, entry: Entry, unfinished: Unfinished) -> None:
        """Read an object to its end; after a failure, continue from there if possible."""
        if not store.resumes:
            self.progress.bytes -= unfinished.size
            unfinished.restart()
        async for block in store.blocks(entry, unfinished.size):
            unfinished.write(block)
            self.progress.bytes += len(block)
            if self.progress.bytes > self._place.limits.bytes:
                raise self._too_large(self.progress.bytes)

    def _note(self, entries: Iterable[Entry], contents: dict[str, str]) -> None:
        """Remember versions, once it is certain that each content belongs to one version."""
        for entry in entries:
            version = self._version(entry)
            if version is not None and entry.name in contents:
                self._files.note(version, contents[entry.name])

    def _version(self, entry: Entry) -> str | None:
        """Return a key for an object, its version, and the credentials that may read it."""
        if entry.version is None:
            return None
        where = repr((sorted(self._place.options.items()), *map(os.environ.get, _WHERE)))
        reader = hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()
        return "\0".join((self._place.scheme, reader, entry.key, entry.version, str(entry.size)))

    def _remarks(self) -> list[str]:
        if not self._gone:
            return []
        first = display_path(self._gone[0])
        count = counted(len(self._gone), "object")
        shown = self._place.shown
        return [f"{count} of {shown} could be listed but not read, such as {first}"]

    def _amount(self) -> str:
        done = self.progress
        return f"{counted(done.files, 'file')}, {done.bytes / _MEGA:,.1f} MB"


def open_store(place: Place) -> Store:
    """Return the store of a place; what it needs is imported here."""
    if place.is_web:
        from rlm.data.places.web import WebStore

        return WebStore(place)
    if place.scheme == "hf":
        from rlm.data.places.hub import HubStore

        return HubStore(place)
    from rlm.data.places.objects import ObjectStore

    return ObjectStore(place)


async def _retried(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Retry work that failed for a transient reason; other errors are final."""
    for number in range(TRIES - 1):
        try:
            return await work()
        except Exception as error:
            if not is_transient(error):
                raise
        await asyncio.sleep(FIRST_WAIT_SECONDS * 2**number)
    return await work()
