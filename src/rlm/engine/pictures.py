"""Pictures for the prompts of a run: those a cell sends, and those of its contexts by name.

A name is looked up only in the contexts, never in a folder or on the network.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rlm.errors import CallRefused
from rlm.images import Picture, content_of, media_type_of
from rlm.worker.images import MAX_IMAGES

__all__ = ["RunPictures"]

MAX_PROMPT_BYTES = 20 << 20
"""As base64 that is 27 MB; the smallest limit of a large provider is 32 MB for a whole request."""

MAX_BYTES_UNDER_WAY = 128 << 20
"""How many bytes of pictures are in memory at a time: a batch may name thousands."""

_SHOWN_NAMES = 5
_SHOWN_CHARS = 80


class RunPictures:
    """The pictures a run may look at. `contexts` may grow during the run."""

    def __init__(self, contexts: Mapping[str, Any]) -> None:
        self._contexts = contexts
        self._free_bytes = MAX_BYTES_UNDER_WAY
        self._lock = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def by_name(self) -> dict[str, Picture]:
        """All pictures by name; if two contexts share a name, that of the first."""
        return {
            name: picture
            for pictures in reversed(list(self._all()))
            for name, picture in pictures.items()
        }

    @asynccontextmanager
    async def content(
        self, prompt: str, images: Sequence[Any]
    ) -> AsyncGenerator[str | list[dict[str, Any]], None]:
        """Return the content for a prompt; its pictures are read when there is room for them."""
        if not images:
            yield prompt
            return
        found = self._find_all(images)
        size = sum(len(each) if isinstance(each, bytes) else each.size_bytes for each in found)
        if size > MAX_PROMPT_BYTES:
            raise _refusal(
                f"the images of this prompt have {size:,} bytes; at most {MAX_PROMPT_BYTES >> 20} "
                "MiB are allowed: ask about fewer at once, or make them smaller"
            )
        await self._take(size)
        try:
            yield await asyncio.to_thread(_content, prompt, found)
        finally:
            self._free_bytes += size
            self._freed.set()

    async def _take(self, size: int) -> None:
        """Wait, first come first served, until `size` more bytes may be in memory."""
        async with self._lock:
            while size > self._free_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._free_bytes -= size

    def _find_all(self, images: Sequence[Any]) -> list[bytes | Picture]:
        if not isinstance(images, list) or len(images) > MAX_IMAGES:
            raise _refusal(f"images must be a list of at most {MAX_IMAGES} images")
        return [self._find(each) if isinstance(each, str) else _known(each) for each in images]

    def _find(self, name: str) -> Picture:
        for pictures in self._all():
            if name in pictures:
                return pictures[name]
        raise _refusal(_no_such(name, list(self.by_name)))

    def _all(self) -> Iterator[Mapping[str, Picture]]:
        return (getattr(each, "pictures", {}) for each in self._contexts.values())


def _content(prompt: str, found: list[bytes | Picture]) -> list[dict[str, Any]]:
    data = [each if isinstance(each, bytes) else each.read() for each in found]
    return content_of(prompt, [(media_type_of(each) or "", each) for each in data])


def _known(image: Any) -> bytes:
    if not isinstance(image, bytes) or media_type_of(image) is None:
        raise _refusal("an image must be the bytes of a PNG, JPEG, GIF or WebP file, or a name")
    return image


def _no_such(name: str, names: list[str]) -> str:
    """Return the message for an unknown name, with the most similar names first."""
    missing = f"the context has no picture {name[:_SHOWN_CHARS]!r}"
    if not names:
        return (
            f"{missing}, or any other; send bytes, as in images=[open(name, 'rb').read()] (file "
            "names and URLs are not opened)"
        )
    import difflib  # Imported late: rarely needed.

    close = difflib.get_close_matches(name[:_SHOWN_CHARS], names, _SHOWN_NAMES)
    few = list(dict.fromkeys([*close, *names[:_SHOWN_NAMES]]))[:_SHOWN_NAMES]
    more = f" and {len(names) - len(few):,} more" if len(names) > len(few) else ""
    shown = ", ".join(repr(each[:_SHOWN_CHARS]) for each in few)
    return f"{missing}; it has {shown}{more} (other files and URLs are not opened: send bytes)"


def _refusal(message: str) -> CallRefused:
    return CallRefused(message, limit="images")
