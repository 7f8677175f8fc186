"""One typed, versioned fact each. Everything that shows, stores or streams a run reads these.

No event holds context text: `RunStarted` carries its size and description, and its hash if that is
known. `ModelAsked` carries only the messages added since the last request of the run, so a log
grows linearly.
"""

import time
from typing import Any, Literal

from msgspec import Struct, field

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
    "Diverged",
    "Event",
    "ModelAsked",
    "ModelReplied",
    "Noted",
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
MOST_RESULT_CHARS = 100_000
"""Of a tool's result in an event: a longer one is a text of its two ends.

All of it is in the cell that asked for it, and in the journal.
"""
MOST_PROMPT_CHARS = 1_000_000
"""Of the prompt of a call in an event: of a longer one there are its two ends."""
CUT = "…"
"""The one key of a tool's arguments in an event that were longer than that; the ends of their JSON
are under it."""


class _Fact(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every event says: which run, how deep, which step, when, and in which schema."""

    run_id: str
    parent_id: str | None = None
    depth: int = 0
    step: int = 0
    wall_time: float = field(default_factory=time.time)
    monotonic_time: float = field(default_factory=time.monotonic)
    schema_version: int = SCHEMA_VERSION


class RunStarted(_Fact, frozen=True, kw_only=True, tag="run_started"):
    """A run begins, or goes on after it was killed: then its events come once more.

    `path` names the run within its tree the same way on every execution. `settings`, told by root
    runs only, are what it takes to run it again. `context_sha256` is empty for a large context
    whose hash is not known yet: a run that is logged or journaled tells it in `ContextHashed`.
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
    """The hash of a large context, which is made beside the first steps of a run."""

    context_sha256: str


class Planned(_Fact, frozen=True, kw_only=True, tag="planned"):
    """How the run goes about it, and why: the strategy that `auto` chose, or a map/reduce's plan.

    `kind` is that of the answer. Of `pieces` of at most `piece_chars` characters, `unread` are left
    out, as they have none of the question's telling words.
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
    """What came of a request; `limit` names the limit that an error means.

    `stored`: it was not asked for now, but is from the journal or the cache, or was the reply to a
    cell whose session was lost.
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
    """A cell is about to run; cells count within their step."""

    cell: int
    code: str


class CellOutput(_Fact, frozen=True, kw_only=True, tag="cell_output"):
    """What a cell wrote, up to the kept size; `written_chars` counts all of it."""

    cell: int
    stream: Literal["stdout", "stderr"]
    text: str
    written_chars: int


class CellEnded(_Fact, frozen=True, kw_only=True, tag="cell_ended"):
    """A cell is through, with the variables it made or changed and what they are."""

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
    """A call made from inside a cell, or by map/reduce.

    `call_id` is made of the run's id, the hash of what is asked, and its number among equals.
    """

    call_id: str
    kind: Literal["llm", "rlm"]
    model: str
    prompt: str


class CallEnded(_Fact, frozen=True, kw_only=True, tag="call_ended"):
    """What came of a call. `limit` names the limit that an error means."""

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
    """A try failed, and the same request is sent again after a pause.

    `attempt` counts the failed tries. `call_id` is None for the run's own requests.
    """

    model: str
    attempt: int
    wait_seconds: float
    error: str
    call_id: str | None = None


class ToolCalled(_Fact, frozen=True, kw_only=True, tag="tool_called"):
    """A cell called a tool; `result` is JSON."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: str = ""
    seconds: float = 0.0
    stored: bool = False
    error: str | None = None


class OutputStreamed(_Fact, frozen=True, kw_only=True, tag="output_streamed"):
    """A cell showed the user a piece of the answer, before it went on (`environment="agent"`)."""

    text: str


class Noted(_Fact, frozen=True, kw_only=True, tag="noted"):
    """A cell noted something for later turns (`environment="agent"`); `value` is JSON."""

    key: str
    value: str


class SessionOpened(_Fact, frozen=True, kw_only=True, tag="session_opened"):
    """A REPL is ready. `layers` are what stands between its code and the machine, in words."""

    environment: str
    layers: tuple[str, ...]
    seconds: float


class SessionLost(_Fact, frozen=True, kw_only=True, tag="session_lost"):
    """The worker died; a fresh session took over, or with `restored` its last checkpoint did."""

    reason: str
    lost_variables: tuple[str, ...] = ()
    restored: bool = False


class Compacted(_Fact, frozen=True, kw_only=True, tag="compacted"):
    """The history came near the window, and the model's own notes took the place of most of it."""

    messages_before: int
    messages_after: int
    chars_before: int
    chars_after: int


class Diverged(_Fact, frozen=True, kw_only=True, tag="diverged"):
    """Cells that ran again on resuming printed something else; the model is told what it was told.

    Both texts are observations of that step, cut to a few thousand characters.
    """

    recorded: str
    now: str


class BudgetChanged(_Fact, frozen=True, kw_only=True, tag="budget_changed"):
    """What the whole tree has used so far; told after every step that goes on."""

    calls: int
    tokens: int
    cost_usd: float | None
    overshoot_tokens: int = 0


class RunEnded(_Fact, frozen=True, kw_only=True, tag="run_ended"):
    """A run is over; `usage` includes its children's. `error` is there if it was raised, too."""

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
    | ToolCalled
    | OutputStreamed
    | Noted
    | SessionOpened
    | SessionLost
    | Compacted
    | Diverged
    | BudgetChanged
    | RunEnded
)
