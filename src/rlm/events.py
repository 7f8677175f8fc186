"""The events of a run: typed, versioned facts, from which every record and view of a run is made.

No event holds text of the context, except what an answer cites: `RunStarted` has its size and
description, and its hash if known. `ModelAsked` has only the messages added since the last request
of the run, so a log grows linearly.
"""

import time
from typing import Any, Literal

from msgspec import Struct, field

from rlm.citations import Citation
from rlm.messages import Message, ToolCall, Usage

__all__ = [
    "BudgetChanged",
    "CallEnded",
    "CallRetried",
    "CallStarted",
    "CellEnded",
    "CellOutput",
    "CellStarted",
    "Compacted",
    "ContextHashed",
    "DataRead",
    "DataRequest",
    "Diverged",
    "DocumentRead",
    "Event",
    "ModelAsked",
    "ModelReplied",
    "Noted",
    "OperatorEnded",
    "OperatorStarted",
    "OutputStreamed",
    "Planned",
    "RunEnded",
    "RunStarted",
    "SessionLost",
    "SessionOpened",
    "StepStarted",
    "ToolCalled",
]

SCHEMA_VERSION = 1
MAX_RESULT_CHARS = 100_000
"""How much of a tool's result an event holds; a longer result is cut to both ends.

The cell that called the tool gets all of it, and the journal stores it.
"""
MAX_PROMPT_CHARS = 1_000_000
"""How much of the prompt of a call an event holds; a longer prompt is cut to both ends."""
CUT = "…"
"""The only key of a tool's arguments that were too long for an event; its value is both ends of
their JSON.
"""
DATA = "ctx."
"""The prefix of `ToolCalled` names that are requests for data, such as `ctx.sql`."""


class _Fact(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The fields of every event: run, depth, step, time and schema."""

    run_id: str
    parent_id: str | None = None
    depth: int = 0
    step: int = 0
    wall_time: float = field(default_factory=time.time)
    monotonic_time: float = field(default_factory=time.monotonic)
    schema_version: int = SCHEMA_VERSION


class RunStarted(_Fact, frozen=True, kw_only=True, tag="run_started"):
    """A run starts, or resumes after it was killed; its earlier events are then sent again.

    `path` names the run within its tree the same way on every execution. `settings`, in root
    runs only, are needed to run it again. `context_sha256` is empty if the hash of a large context
    is not known yet; a run that is logged or journaled reports it in `ContextHashed`.
    """

    query: str
    model: str
    sub_model: str
    strategy: str
    environment: str
    context_kind: str
    context_bytes: int
    context_sha256: str
    context_description: str
    parent_call_id: str | None = None
    path: str = "root"
    settings: dict[str, Any] = field(default_factory=dict)


class ContextHashed(_Fact, frozen=True, kw_only=True, tag="context_hashed"):
    """The hash of a large context, computed during the first steps of a run."""

    context_sha256: str


class Planned(_Fact, frozen=True, kw_only=True, tag="planned"):
    """How the run proceeds, and why: the strategy that `auto` chose, or the plan of a map/reduce.

    `kind` is the kind of answer. Of `pieces` with at most `piece_chars` characters, `unread` are
    left out because they contain no relevant words of the query.
    """

    strategy: str
    reason: str
    kind: str = ""
    pieces: int = 0
    piece_chars: int = 0
    unread: int = 0


class StepStarted(_Fact, frozen=True, kw_only=True, tag="step_started"):
    """The run is about to ask for its next reply."""


class ModelAsked(_Fact, frozen=True, kw_only=True, tag="model_asked"):
    """A request for a step, a final answer, a compaction or a repair; `digest` is its hash."""

    purpose: str
    model: str
    new_messages: tuple[Message, ...]
    message_count: int
    max_output_tokens: int
    digest: str = ""


class ModelReplied(_Fact, frozen=True, kw_only=True, tag="model_replied"):
    """The outcome of a request; `limit` names the limit that caused an error.

    `stored`: the reply was not requested now, but came from the journal or the cache, or was given
    to a cell whose session was lost.
    """

    purpose: str
    model: str
    text: str = ""
    reasoning: str = ""
    finish_reason: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    seconds: float = 0.0
    retries: int = 0
    stored: bool = False
    error: str | None = None
    limit: str | None = None


class CellStarted(_Fact, frozen=True, kw_only=True, tag="cell_started"):
    """A cell is about to run; cells are numbered within their step."""

    cell: int
    code: str


class CellOutput(_Fact, frozen=True, kw_only=True, tag="cell_output"):
    """The output of a cell, up to the kept size; `written_chars` counts all of it."""

    cell: int
    stream: Literal["stdout", "stderr"]
    text: str
    written_chars: int


class CellEnded(_Fact, frozen=True, kw_only=True, tag="cell_ended"):
    """A cell has ended, with the variables it made or changed and their descriptions."""

    cell: int
    seconds: float
    calls: int
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    interrupted: bool = False
    new_variables: dict[str, str] = field(default_factory=dict)
    changed_variables: dict[str, str] = field(default_factory=dict)
    submitted: bool = False


class CallStarted(_Fact, frozen=True, kw_only=True, tag="call_started"):
    """A call from a cell or from map/reduce.

    `call_id` is made from the id of the run, the hash of the request, and its number among equal
    requests. `operator_id` names the operator that makes the call, if any.
    """

    call_id: str
    kind: Literal["llm", "rlm"]
    model: str
    prompt: str
    operator_id: str | None = None


class CallEnded(_Fact, frozen=True, kw_only=True, tag="call_ended"):
    """The outcome of a call; `limit` names the limit that caused an error."""

    call_id: str
    kind: Literal["llm", "rlm"]
    model: str
    reply: str = ""
    usage: Usage | None = None
    seconds: float = 0.0
    retries: int = 0
    stored: bool = False
    child_run_id: str | None = None
    error: str | None = None
    limit: str | None = None


class CallRetried(_Fact, frozen=True, kw_only=True, tag="call_retried"):
    """An attempt failed, and the same request will be sent again after a pause.

    `attempt` counts the failed attempts. `call_id` is None for requests of the run itself.
    """

    model: str
    attempt: int
    wait_seconds: float
    error: str
    call_id: str | None = None


class OperatorStarted(_Fact, frozen=True, kw_only=True, tag="operator_started"):
    """An operator such as `classify` begins; `task` is what it asks about its items."""

    operator_id: str
    name: str
    task: str
    items: int
    distinct: int


class OperatorEnded(_Fact, frozen=True, kw_only=True, tag="operator_ended"):
    """An operator has ended; `summary` says in one line what it did.

    Of its items, `asked_again` had no usable reply at first, `looked_again` were in doubt,
    `changed` got another label, and `missing` have no result.
    """

    operator_id: str
    name: str
    summary: str
    prompts: int
    asked_again: int = 0
    looked_again: int = 0
    changed: int = 0
    missing: int = 0
    seconds: float = 0.0
    error: str | None = None


class ToolCalled(_Fact, frozen=True, kw_only=True, tag="tool_called"):
    """A cell called a tool; `result` is JSON."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: str = ""
    seconds: float = 0.0
    stored: bool = False
    error: str | None = None


class DataRequest(Struct, frozen=True, kw_only=True):
    """Equal requests for data: `text` is a shortened statement, search or pattern."""

    text: str
    count: int = 1
    returned: int = 0
    failed: int = 0


class DocumentRead(Struct, frozen=True, kw_only=True):
    """What requests found and read of a document of a corpus, of `bytes` bytes (0 if unknown).

    `found` counts the searches that returned it, `matched` its lines that matched a grep, and
    `read` the requests that read it. `ranges` are the bytes that were read, as (start, end).
    """

    id: int
    name: str
    bytes: int = 0
    found: int = 0
    matched: int = 0
    read: int = 0
    ranges: tuple[tuple[int, int], ...] = ()


class DataRead(_Fact, frozen=True, kw_only=True, tag="data_read"):
    """What a cell received of data that stays on the host, in one event for each method it called.

    Sent when the cell ends, or earlier if the event would grow too long; several events then share
    the counts. Of `count` requests, `failed` failed (`error` is the last error) and `from_journal`
    were answered in an earlier execution. `returned` counts rows, hits, matching lines, parts or
    documents, and `bytes` is the size of their JSON. The corpus that `documents` belong to has
    `source_documents` documents of `source_bytes` bytes in all.
    """

    cell: int
    source: str
    source_id: str
    method: str
    count: int
    failed: int = 0
    from_journal: int = 0
    returned: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    requests: tuple[DataRequest, ...] = ()
    documents: tuple[DocumentRead, ...] = ()
    source_documents: int = 0
    source_bytes: int = 0


class OutputStreamed(_Fact, frozen=True, kw_only=True, tag="output_streamed"):
    """A piece of the answer, shown while the run is still in progress.

    Either a cell showed it (`environment="agent"`), or the model wrote it as prose. Prose is sent
    only to recorders with a true attribute `wants_pieces`, and no log keeps it. If
    `taken_back_chars` is not 0, that many characters of prose were not the answer after all: they
    are the last that were sent, and `text` says so to readers.
    """

    text: str
    taken_back_chars: int = 0


class Noted(_Fact, frozen=True, kw_only=True, tag="noted"):
    """A cell stored a note for later turns (`environment="agent"`); `value` is JSON."""

    key: str
    value: str


class SessionOpened(_Fact, frozen=True, kw_only=True, tag="session_opened"):
    """A REPL is ready. `layers` describe what isolates its code from the machine."""

    environment: str
    layers: tuple[str, ...]
    seconds: float


class SessionLost(_Fact, frozen=True, kw_only=True, tag="session_lost"):
    """The worker died; a new session replaced it or, with `restored`, its last checkpoint."""

    reason: str
    lost_variables: tuple[str, ...] = ()
    restored: bool = False


class Compacted(_Fact, frozen=True, kw_only=True, tag="compacted"):
    """The history came close to the window, and notes of the model replaced most of it."""

    messages_before: int
    messages_after: int
    chars_before: int
    chars_after: int


class Diverged(_Fact, frozen=True, kw_only=True, tag="diverged"):
    """Cells that ran again in a resumed run gave other output; the model is shown the old text.

    Both texts are observations of that step, cut to a few thousand characters.
    """

    recorded: str
    now: str


class BudgetChanged(_Fact, frozen=True, kw_only=True, tag="budget_changed"):
    """What the whole tree has used so far; sent after every step that does not end the run."""

    calls: int
    tokens: int
    cost_usd: float | None
    overshoot_tokens: int = 0


class RunEnded(_Fact, frozen=True, kw_only=True, tag="run_ended"):
    """A run has ended; `usage` includes its children. `error` is set if the run raised one.

    `rejected_answer` is an answer that had the wrong shape, if the run ended without another.
    `citations` were checked; quotes that the context does not contain are only counted.
    """

    stop_reason: str
    answer_source: str
    answer: str | None
    steps: int
    usage: Usage
    seconds: float
    limit: str | None = None
    error: str | None = None
    detail: str = ""
    answer_json: str | None = None
    rejected_answer: str | None = None
    citations: tuple[Citation, ...] = ()
    unsupported_quotes: int = 0
    omitted_citations: int = 0


Event = (
    RunStarted
    | ContextHashed
    | Planned
    | StepStarted
    | ModelAsked
    | ModelReplied
    | CellStarted
    | CellOutput
    | CellEnded
    | CallStarted
    | CallEnded
    | CallRetried
    | OperatorStarted
    | OperatorEnded
    | ToolCalled
    | DataRead
    | OutputStreamed
    | Noted
    | SessionOpened
    | SessionLost
    | Compacted
    | Diverged
    | BudgetChanged
    | RunEnded
)
