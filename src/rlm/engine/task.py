"""What a run works with: its task, tools and services; and how it ended."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm.calls.calls import Calls
from rlm.config import RunConfig
from rlm.context import StoredContext
from rlm.engine.sessions import AfterCell, RunSession
from rlm.protocols import BaseEnvironment, ContextSource, Tool
from rlm.results import AnswerSource, StopReason, Submission

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.engine.operators import OperatorCall

__all__ = ["Ending", "Objection", "Services", "Task", "Toolset"]

NO_MODEL = "no language model is configured: these are passages found by search, not an answer"
NO_TYPED_ANSWER = (
    "no language model is configured: passages are text and can't become another type; "
    "`rlm setup` chooses a model"
)


class Objection(Struct, frozen=True):
    """What is wrong with the shape of an answer.

    `kind` is equal for answers that have the same mistakes with other values.
    """

    problem: str
    kind: str


class Task(Struct, frozen=True):
    """A query and its context; for a child run, the call of its parent too.

    `description` replaces that of the context, `prologue` is shown below the query, `settings`
    are needed to run the task again, `objection_to` says what is wrong with the shape of an answer,
    `chosen_because` says why `auto` chose its strategy, and `operator` is what `rlm.operators`
    asks for instead of an answer.
    """

    query: str
    context: StoredContext
    parent_call_id: str | None = None
    description: str = ""
    prologue: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    objection_to: Callable[[Submission], Awaitable[Objection | None]] | None = None
    chosen_because: str = ""
    operator: "OperatorCall | None" = None


class Toolset(Struct, frozen=True):
    """What cells may use besides the context: tools, and values that are REPL variables.

    `value_lines` describe the values to the model, in the same order.
    """

    tools: tuple[Tool, ...] = ()
    values: Mapping[str, ContextSource] = field(default_factory=dict)
    value_lines: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of tools and values; the methods of an object go by the object's name."""
        return frozenset({*(_owner(tool) for tool in self.tools), *self.values})

    def only(self, names: Collection[str]) -> "Toolset":
        """Return the tools and values with these names."""
        lines = zip(self.values, self.value_lines, strict=True)
        return Toolset(
            tuple(tool for tool in self.tools if _owner(tool) in names),
            {name: value for name, value in self.values.items() if name in names},
            tuple(line for name, line in lines if name in names),
        )


def _owner(tool: Tool) -> str:
    return tool.name.partition(".")[0]


class Services(Struct, frozen=True):
    """What a run and its child runs share; child runs have `child_toolset` instead of `toolset`.

    `after_cell` looks at the session after every cell.
    """

    calls: Calls
    environment: BaseEnvironment
    toolset: Toolset
    child_toolset: Toolset
    after_cell: AfterCell | None = None

    def for_child(self, names: Collection[str] | None) -> "Services":
        """Return the services of a child run; `names` are its tools, None stands for all."""
        granted = self.child_toolset if names is None else self.child_toolset.only(names)
        return replace(self, toolset=granted, child_toolset=granted)

    @property
    def tool_lines(self) -> tuple[str, ...]:
        """What the prompt says about tools, values and what the environment adds, a line each."""
        added = self.environment.repl_names
        names = (f"`{name.usage}`: {name.description}" for name in added)
        tools = (tool.description for tool in self.toolset.tools)
        return (*names, *tools, *self.toolset.value_lines)

    def new_session(self, config: RunConfig, task: Task) -> RunSession:
        contexts: dict[str, ContextSource] = {
            "context": task.context,
            **task.context.beside(),
            **self.toolset.values,
        }
        tools = self.toolset.tools
        return RunSession(self.environment, config, contexts, tools, self.after_cell)


class Ending(Struct, frozen=True):
    """Why a run ended and with what answer. `limit` names the limit reached.

    `detail` is an explanation for people, `rejected` an answer that had the wrong shape.
    """

    stop_reason: StopReason
    source: AnswerSource
    submission: Submission | None = None
    limit: str | None = None
    detail: str = ""
    rejected: Submission | None = None

    def without_model(self) -> "Ending":
        """Return this ending for a model that only searches: what it finds is no answer."""
        if self.stop_reason == "answer" or self.limit == "wrong_shape":
            detail = NO_TYPED_ANSWER if self.limit == "wrong_shape" else NO_MODEL
            return replace(self, stop_reason="passages", limit=None, detail=detail)
        return self

    def without_answer(self, rejected: Submission, problem: str) -> "Ending":
        """Return this ending without its answer, which has the wrong shape."""
        reason = f"the answer has the wrong shape: {problem}"
        if self.stop_reason == "answer":
            return Ending("error", "none", None, "wrong_shape", reason, rejected)
        detail = f"{self.detail}; {reason}" if self.detail else reason
        return Ending(self.stop_reason, "none", None, self.limit, detail, rejected)
