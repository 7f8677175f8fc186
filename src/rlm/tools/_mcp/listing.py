"""The tools that a server offers: read page by page, counted, and chosen from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.tools._texts import one_line

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Listed", "chosen", "list_tools"]

MOST_TOOLS = 128
"""Of one server, in one RLM: each has a line in every prompt."""

MOST_LISTED = 10_000
MOST_PAGES = 200


class Listed(Struct, frozen=True):
    """A tool as its server describes it; nothing of it is to be believed."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: Any


async def list_tools(client: "Client") -> dict[str, Listed]:
    """All tools of a server by name; of several with one name, the first."""
    found: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            listed = Listed(
                tool.name, tool.description or "", tool.input_schema, tool.output_schema
            )
            found.setdefault(tool.name, listed)
        if len(found) > MOST_LISTED:
            raise ConfigError(f"it offers more than {MOST_LISTED:,} tools")
        cursor = page.next_cursor
        if not cursor:
            return found
    raise ConfigError(f"its list of tools has no end after {MOST_PAGES} pages")


def chosen(
    listed: dict[str, Listed], only: Sequence[str] | None, without: Sequence[str]
) -> list[Listed]:
    """Those that the caller wants; ConfigError if there is none, or no end to them."""
    names = ", ".join(one_line(name, 60) for name in sorted(listed)[:20]) or "none"
    for name in (*(only or ()), *without):
        if name not in listed:
            raise ConfigError(f"it has no tool {name!r}; tools: {names}")
    kept = [
        tool
        for name, tool in listed.items()
        if (only is None or name in only) and name not in without
    ]
    if not kept:
        raise ConfigError(f"no tool is left of those it offers: {names}")
    if len(kept) > MOST_TOOLS:
        raise ConfigError(
            f"it offers {len(kept):,} tools, and a model is shown {MOST_TOOLS} at most: "
            f"choose with only=[...]; it has {names} …"
        )
    return kept
