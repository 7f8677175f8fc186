"""A prompt of an editor as a query and contexts."""

import base64
from collections.abc import Sequence
from typing import Any

from acp import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from msgspec import Struct, field

from recursivelm_acp.folder import Folder

__all__ = ["Prompt", "read_prompt"]

MAX_QUERY_CHARS = 8_000
"""A longer message becomes a context: a model is shown its beginning."""
MAX_BLOCKS = 1_000


class Prompt(Struct):
    """The words of a prompt, the texts and files that came with it, and names of linked files."""

    query: str
    texts: dict[str, str] = field(default_factory=dict)
    blobs: list[tuple[str, bytes]] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)


def read_prompt(blocks: Sequence[Any], folder: Folder) -> Prompt:
    """Read the blocks of a prompt; RequestError says what can't be used. It looks at files."""
    if len(blocks) > MAX_BLOCKS:
        raise RequestError(-32602, f"a prompt can have at most {MAX_BLOCKS:,} parts")
    found = Prompt("")
    found.query = "".join([_word(block, folder, found) for block in blocks]).strip()
    if not found.query:
        raise RequestError(-32602, "the prompt contains no text: write what you want to know")
    if len(found.query) > MAX_QUERY_CHARS:
        found.texts["the whole message"] = found.query
        found.query = f"{found.query[:MAX_QUERY_CHARS]} … (cut)"
    return found


def _word(block: Any, folder: Folder, found: Prompt) -> str:
    """Return how a block reads within the query, and keep what it carries."""
    if isinstance(block, TextContentBlock):
        return block.text
    if isinstance(block, EmbeddedResourceContentBlock):
        _embed(block.resource, found)
        return f" [{block.resource.uri}] "
    if isinstance(block, ResourceContentBlock):
        name = folder.linked(block.uri)
        if name is None:  # Nothing is fetched from the network.
            return f" [{block.name}]({block.uri}) "
        found.linked.append(name)
        _, mark, part = block.uri.partition("#")
        return f" `{name}` ({part[:100]}) " if mark and part else f" `{name}` "
    raise RequestError(-32602, f"a prompt can't contain {block.type}: send text, links and files")


def _embed(resource: Any, found: Prompt) -> None:
    if isinstance(resource, TextResourceContents):
        found.texts[_free(resource.uri, found)] = resource.text
        return
    try:
        data = base64.b64decode(resource.blob, validate=True)
    except ValueError as error:
        raise RequestError(-32602, f"{resource.uri[:200]} is not base64: {error}") from None
    try:
        found.texts[_free(resource.uri, found)] = data.decode()
    except UnicodeDecodeError:
        found.blobs.append((resource.uri, data))


def _free(uri: str, found: Prompt) -> str:
    """Return a name for a text; two selections of one file may have the same address."""
    names = (uri, *(f"{uri} ({number})" for number in range(2, MAX_BLOCKS + 2)))
    return next(name for name in names if name not in found.texts)
