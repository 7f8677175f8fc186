"""What each tool accepts: the types that check a request are also the schemas that clients see."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rlm.gateway.errors import Refused
from rlm.gateway.files import MAX_BYTES, MAX_LINES

__all__ = [
    "DOCUMENTED_NAMES",
    "TOOLS",
    "ToolEntry",
    "answer_schema_of",
    "read_request",
    "schema_of",
]

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(max_length=10_000)]
Handles = Annotated[list[str], Meta(max_length=1_000)]


_MAY_BE_NULL = ("error", "lines", "next_cursor")
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
    lines: Count = MAX_LINES
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


class ExecuteCode(_Request, frozen=True, kw_only=True):
    session: str
    code: Annotated[str, Meta(max_length=100_000)]
    handles: Handles | None = None


class CompleteRun(_Request, frozen=True, kw_only=True):
    session: str
    query: Text
    handles: Handles | None = None
    root: str | None = None
    path: Text | None = None


class ContinueRun(_Request, frozen=True, kw_only=True):
    session: str
    run_id: str


class Report(_Request, frozen=True, kw_only=True):
    session: str
    limit: Count = 50


class ToolEntry(Struct, frozen=True):
    """A tool as clients see it. `method` is the method of `Gateway` behind it.

    `answers`: the fields of its answer and their types, with `?` if one may be missing or null.
    `takes_caller`: the method needs the client behind the request, to report progress and to ask
    its model.
    """

    name: str
    method: str
    request: type[_Request]
    description: str
    answers: str
    reads_only: bool = True
    takes_caller: bool = False


TOOLS = (
    ToolEntry(
        "rlm_session_create",
        "create_session",
        SessionCreate,
        "Start here: every other tool needs this session. Limits can only be lowered.",
        "session:string roots:array span:object left:object",
        reads_only=False,
    ),
    ToolEntry(
        "rlm_session_close",
        "close_session",
        SessionClose,
        "End a session.",
        "closed:boolean left:object",
        reads_only=False,
    ),
    ToolEntry(
        "rlm_list",
        "list_files",
        ListFiles,
        "Files below a folder, as handles with sizes; no content. next_cursor continues.",
        "files:array next_cursor:string? left:object",
    ),
    ToolEntry(
        "rlm_open",
        "open",
        OpenFile,
        "The handle of a file whose relative path is known.",
        "handle:string lines:integer? bytes:integer version:string left:object",
    ),
    ToolEntry(
        "rlm_read",
        "read",
        ReadSpan,
        f"Up to {MAX_LINES} lines and {MAX_BYTES:,} bytes of a file, from start_line or cursor.",
        "text:string start_line:integer end_line:integer sha256:string version:string "
        "next_cursor:string? left:object",
    ),
    ToolEntry(
        "rlm_search",
        "search",
        SearchLines,
        "Lines that match: ranked (words, best first) or regex (in order).",
        "hits:array complete:boolean next_cursor:string? left:object",
    ),
    ToolEntry(
        "rlm_exec",
        "execute",
        ExecuteCode,
        "Python in a sandbox; `files` is a dict from handle to text. Variables stay. "
        f"Print what you need: {MAX_BYTES:,} bytes.",
        "output:string error:string? cut:boolean fresh:boolean left:object",
    ),
    ToolEntry(
        "rlm_complete",
        "complete",
        CompleteRun,
        "Answer a question about whole files (handles, or a file or folder at path), with checked "
        "citations. If status is not done, call rlm_continue with run_id.",
        "status:string run_id:string? answer:string? citations:array? left:object",
        takes_caller=True,
    ),
    ToolEntry(
        "rlm_continue",
        "continue_run",
        ContinueRun,
        "Wait for a run.",
        "status:string run_id:string? answer:string? citations:array? left:object",
        takes_caller=True,
    ),
    ToolEntry(
        "rlm_provenance",
        "report",
        Report,
        "What was shown in this session, sealed line by line.",
        "entries:array of:integer seal:string left:object",
    ),
)

DOCUMENTED_NAMES = {
    "rlm.session.create": "rlm_session_create",
    "rlm.session.close": "rlm_session_close",
    "rlm.roots.set": "rlm_session_create",
    "rlm.fs.list": "rlm_list",
    "rlm.fs.manifest": "rlm_list",
    "rlm.fs.handle.create": "rlm_open",
    "rlm.span.read": "rlm_read",
    "rlm.chunk.create": "rlm_read",
    "rlm.chunk.get": "rlm_read",
    "rlm.search.query": "rlm_search",
    "rlm.search.regex": "rlm_search",
    "rlm.exec.run": "rlm_exec",
    "rlm.complete": "rlm_complete",
    "rlm.provenance.report": "rlm_provenance",
}
"""Names of tools in earlier documents, and the tools that replace them."""


def answer_schema_of(entry: ToolEntry) -> dict[str, Any]:
    """Return the JSON schema of an answer: its fields, and which of them are always present."""
    properties: dict[str, Any] = {}
    required = []
    for each in entry.answers.split():
        name, kind = each.split(":")
        properties[name] = {"type": kind.rstrip("?")}
        if name in _MAY_BE_NULL:
            properties[name] = {"type": [kind.rstrip("?"), "null"]}
        if not kind.endswith("?"):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def schema_of(entry: ToolEntry) -> dict[str, Any]:
    """Return the JSON schema of a request, without parts that only take up space."""
    (schema,), parts = msgspec.json.schema_components([entry.request])
    found = parts[schema["$ref"].rpartition("/")[2]]
    return {
        "type": "object",
        "properties": {name: _short(each) for name, each in found["properties"].items()},
        "required": found["required"],
        "additionalProperties": False,
    }


def _short(schema: dict[str, Any]) -> dict[str, Any]:
    """Shorten a schema: an optional value can be left out, so null is not mentioned."""
    kept = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
    options = [each for each in kept.pop("anyOf", []) if each != {"type": "null"}]
    return {**kept, **(_short(options[0]) if options else {})}


def read_request(entry: ToolEntry, arguments: dict[str, Any]) -> dict[str, Any]:
    """Check the arguments of a method; the refusal says what is wrong with them."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        request = msgspec.convert(given, entry.request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(f"wrong arguments for {entry.name}: {error}") from None
    found = {name: getattr(request, name) for name in request.__struct_fields__}
    return {name: value for name, value in found.items() if value is not None}
