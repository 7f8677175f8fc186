"""What each tool takes: the structures that check a request are the schemas that clients read."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rlm.gateway.refusals import Refused
from rlm.gateway.spans import MOST_BYTES, MOST_LINES

__all__ = ["TOOLS", "ToolEntry", "read_request", "schema_of"]

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(max_length=10_000)]
Handles = Annotated[list[str], Meta(max_length=1_000)]


_LEFT_OUT = ("title", "maxLength", "maxItems", "default")


class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SessionCreate(_Request, frozen=True, kw_only=True):
    roots: list[str] | None = None
    limits: dict[str, float] | None = None


class SessionClose(_Request, frozen=True, kw_only=True):
    session: str


class ListFiles(_Request, frozen=True, kw_only=True):
    session: str
    root: str | None = None
    path: Text = ""
    cursor: str | None = None
    limit: Count = 100


class OpenFile(_Request, frozen=True, kw_only=True):
    session: str
    path: Text
    root: str | None = None


class ReadSpan(_Request, frozen=True, kw_only=True):
    session: str
    handle: str
    start_line: Count | None = None
    lines: Count = MOST_LINES
    cursor: str | None = None


class SearchLines(_Request, frozen=True, kw_only=True):
    session: str
    query: Text
    mode: Literal["ranked", "regex"] = "ranked"
    root: str | None = None
    path: Text = ""
    handles: Handles | None = None
    limit: Count = 20
    cursor: str | None = None


class Report(_Request, frozen=True, kw_only=True):
    session: str
    limit: Count = 50


class ToolEntry(Struct, frozen=True):
    """A tool as clients see it. `method` is the method of `Gateway` behind it."""

    name: str
    method: str
    request: type[_Request]
    description: str
    reads_only: bool = True


TOOLS = (
    ToolEntry(
        "rlm_session_create",
        "create_session",
        SessionCreate,
        "Begin: every other tool needs this session. Limits can only be lowered.",
        reads_only=False,
    ),
    ToolEntry(
        "rlm_session_close", "close_session", SessionClose, "End a session.", reads_only=False
    ),
    ToolEntry(
        "rlm_list",
        "list",
        ListFiles,
        "Files below a folder, as handles with sizes; no content. next_cursor goes on.",
    ),
    ToolEntry("rlm_open", "open", OpenFile, "The handle of a file whose relative path is known."),
    ToolEntry(
        "rlm_read",
        "read",
        ReadSpan,
        f"Up to {MOST_LINES} lines and {MOST_BYTES:,} bytes of a file, from start_line or cursor.",
    ),
    ToolEntry(
        "rlm_search",
        "search",
        SearchLines,
        "Lines that match: ranked (words, best first) or regex (in order).",
    ),
    ToolEntry(
        "rlm_provenance", "report", Report, "What was shown in this session, sealed line by line."
    ),
)


def schema_of(entry: ToolEntry) -> dict[str, Any]:
    """The JSON schema of a request, without what only takes room."""
    (schema,), parts = msgspec.json.schema_components([entry.request])
    found = parts[schema["$ref"].rpartition("/")[2]]
    return {
        "type": "object",
        "properties": {name: _short(each) for name, each in found["properties"].items()},
        "required": found["required"],
        "additionalProperties": False,
    }


def _short(schema: dict[str, Any]) -> dict[str, Any]:
    """An optional value needs no mention of null: it may be left out."""
    kept = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
    options = [each for each in kept.pop("anyOf", []) if each != {"type": "null"}]
    return {**kept, **(_short(options[0]) if options else {})}


def read_request(entry: ToolEntry, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments for the method, checked; the refusal says what is wrong with them."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        request = msgspec.convert(given, entry.request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(f"wrong arguments for {entry.name}: {error}") from None
    return {name: getattr(request, name) for name in request.__struct_fields__}
