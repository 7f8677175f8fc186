"""Object stores through fsspec: S3 by s3fs, Google's by gcsfs, Azure's by adlfs.

These libraries run on fsspec's event loop, in its own thread, which also closes them.
"""

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import Any

from rlm.data.filesystem.matching import fits
from rlm.data.places.addresses import Place
from rlm.data.places.problems import not_installed
from rlm.data.places.stores import Changed, Entry

__all__ = ["ObjectStore"]

BLOCK_BYTES = 4 << 20
CONNECT_SECONDS = 10
READ_SECONDS = 60
REQUEST_SECONDS = 300.0
"""The time limit for a whole listing, or for one block."""
_MARKS = ("ETag", "etag", "generation", "md5Hash", "last_modified", "LastModified", "updated")
"""Keys under which libraries report the version of an object; the first found counts."""

_CLASSES = {
    "s3": ("s3fs", "S3FileSystem"),
    "gs": ("gcsfs", "GCSFileSystem"),
    "az": ("adlfs", "AzureBlobFileSystem"),
}


class MissingAccount(Exception):
    """There is no account to read from."""


class ContainerNotFound(FileNotFoundError):
    """There is no such container."""


class ObjectStore:
    """One object, or those below a prefix. Implements `rlm.data.places.stores.Store`."""

    resumes = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self._library = self._opened(place.options)
        self._root, self._wildcards = place.wildcards
        self._without: Exception | None = None
        """The error about missing credentials, once we continue without any."""

    async def find(self) -> list[Entry]:
        """Return the object with this name, or else those below it."""
        try:
            return await self._found()
        except self._no_credentials() as error:
            # Public objects need no credentials.
            self._library = self._opened({**self._place.options, "anon": True})
            self._without = error
            return await self._found()

    async def find_again(self) -> list[Entry] | None:
        return await self._found()

    async def blocks(self, entry: Entry, start: int) -> AsyncIterator[bytes]:
        """Yield the bytes in ranges; if there are fewer than listed, the object changed."""
        size = entry.size or 0
        while start < size:
            end = min(size, start + BLOCK_BYTES)
            block = await self._call("cat_file", entry.key, start=start, end=end)
            if len(block) != end - start:
                raise Changed(entry.name)
            yield block
            start = end

    async def close(self) -> None:
        """Leave connections to fsspec, which closes them with its loop."""

    def _no_credentials(self) -> type[Exception] | tuple[()]:
        """Return the error that a library raises if it finds no credentials; nothing was sent."""
        if self._place.scheme != "s3":
            return ()
        found: type[Exception] = importlib.import_module("botocore.exceptions").NoCredentialsError
        return found

    def _opened(self, options: dict[str, Any]) -> Any:
        module, name = _CLASSES[self._place.scheme]
        try:
            made = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise not_installed(self._place, error) from error
        given = {**_settings(self._place.scheme), **options}
        try:
            library = made(use_listings_cache=False, skip_instance_cache=True, **given)
        except ValueError as error:  # adlfs without an account
            raise MissingAccount from error
        _without_retries(library)
        return library

    async def _found(self) -> list[Entry]:
        root = self._root
        if not self._wildcards and not root.endswith("/") and "/" in root:
            try:
                facts = await self._call("info", root)
            except FileNotFoundError:
                facts = {}
            if facts.get("type") == "file":
                return [self._entry({**facts, "name": root}, root.rpartition("/")[2])]
        listed = await self._call("find", root.rstrip("/"), detail=True)
        prefix = root.rstrip("/") + "/"
        entries = []
        for key, facts in listed.items():
            name = key.removeprefix(prefix)
            is_folder = facts.get("type") == "directory" or not name or name.endswith("/")
            if is_folder or not key.startswith(prefix):
                continue
            if not self._wildcards or fits(tuple(name.split("/")), self._wildcards):
                entries.append(self._entry({**facts, "name": key}, name))
        if not listed and self._place.scheme == "az":
            await self._check_container(prefix.partition("/")[0])
        return entries

    async def _check_container(self, name: str) -> None:
        """Distinguish an empty container from a missing one, which adlfs lists alike."""
        try:
            await self._call("info", name)
        except FileNotFoundError as error:
            raise ContainerNotFound(name) from error

    def _entry(self, facts: dict[str, Any], name: str) -> Entry:
        version = next((str(facts[mark]) for mark in _MARKS if facts.get(mark)), None)
        return Entry(facts["name"], name, facts.get("size"), version)

    async def _call(self, method: str, *given: Any, **named: Any) -> Any:
        """Await a method on the loop of the library; cancelling ends it there too.

        In fsspec, `_find` is the coroutine of `find`, and so on.
        """
        work = getattr(self._library, f"_{method}")(*given, **named)
        running = asyncio.run_coroutine_threadsafe(work, self._library.loop)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await asyncio.wrap_future(running)
        except PermissionError as error:
            raise self._without or error from None


def _settings(scheme: str) -> dict[str, Any]:
    """Return options that keep a library from waiting for minutes, and from writing."""
    if scheme == "s3":
        timeouts = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
        return {"config_kwargs": {**timeouts, "retries": {"max_attempts": 1}}}
    if scheme == "gs":
        return {"access": "read_only"}
    return {"connection_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}


def _without_retries(library: Any) -> None:
    """Let a library try only once: we retry, limit the time, and count the attempts."""
    if hasattr(library, "retries"):  # s3fs
        library.retries = 1
    client = getattr(library, "service_client", None)  # adlfs
    policy = getattr(getattr(client, "_config", None), "retry_policy", None)
    if policy is not None:
        policy.total_retries = 0
