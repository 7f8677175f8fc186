"""The additional names of cells in `environment="agent"`: memory, reasoning, streaming."""

from __future__ import annotations

import json

from . import calls, passages
from .agent_thinking import (
    analyze_text,
    as_text,
    evaluate_options,
    extract_entities,
    make_decision,
    reason_step_by_step,
    summary_of,
)
from .channel import question
from .repl_names import ReplName
from .replies import CallFailed

__all__ = ["AGENT_NAMES", "provide_agent_names"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .calls import Dialogue
    from .functions import CallFunctions
    from .namespace import Namespace

AGENT_NAMES = (
    ReplName("context_data", "what you were given or noted in this conversation: a dict"),
    ReplName(
        "get_agent_context(key=None)", "one value of context_data, or all of it", restored=True
    ),
    ReplName(
        "search_context(query, k=5)",
        "passages of context_data, history and the contexts that match best: dicts with source, "
        "text and score",
        restored=True,
    ),
    ReplName("add_to_context(key, value)", "note a JSON value for later turns", restored=True),
    ReplName(
        "summarize_context(key=None, focus=None)",
        "a summary of one value, or of all of context_data",
        restored=True,
    ),
    ReplName(
        "analyze_text(text, aspects=None)",
        "what a text says about each aspect: a dict",
        restored=True,
    ),
    ReplName(
        "extract_entities(text, kinds=None)",
        "people, places and so on in a text: a dict of lists",
        restored=True,
    ),
    ReplName(
        "reason_step_by_step(problem, attempts=3)",
        "several independent solutions, then the one they support",
        restored=True,
    ),
    ReplName(
        "evaluate_options(options, criteria=None)",
        "each option judged by itself: dicts with option, score (0 to 10) and reason, best first",
        restored=True,
    ),
    ReplName(
        "make_decision(question, options=None, criteria=None)",
        "the best option and why: a dict with decision, reason and evaluations",
        restored=True,
    ),
    ReplName(
        "stream_output(text)",
        "show text to the user at once; it is the beginning of your answer and can't be taken "
        "back, so submit the whole answer, or only what is still to be said",
        restored=True,
    ),
)
"""Listed in prompts and documentation."""


def provide_agent_names(namespace: Namespace, functions: CallFunctions) -> None:
    """Bind every name in `AGENT_NAMES`; `context_data` is empty until it is loaded."""
    memory = _Memory(namespace)
    dialogues = (
        memory.add_to_context,
        memory.summarize_context,
        analyze_text,
        extract_entities,
        reason_step_by_step,
        evaluate_options,
        make_decision,
        stream_output,
    )
    names: dict[str, Any] = {each.__name__: functions.make(each) for each in dialogues}
    names["get_agent_context"] = memory.get_agent_context
    names["search_context"] = memory.search_context
    namespace.provide_tools(names)
    namespace.load("context_data", {})


class _Memory:
    """The agent's memory, as cells see and change it."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get_agent_context(self, key: str | None = None) -> Any:
        """Return one value of `context_data`, or all of it."""
        data = self._data()
        if key is None:
            return data
        if key not in data:
            known = ", ".join(map(repr, data)) or "none yet"
            raise LookupError(f"context_data has no {key!r}; its keys: {known}")
        return data[key]

    def search_context(self, query: str, k: int = 5) -> list[dict[str, Any]]:
        """Return the `k` passages that match the words of `query` best."""
        return passages.best_passages(self._sources(), query, k)

    def add_to_context(self, key: str, value: Any) -> Dialogue:
        """Note a value for this turn and later ones; it must have a JSON form."""
        if not isinstance(key, str):
            raise TypeError(f"a key must be a str, not {type(key).__name__}")
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{key!r} has no JSON form, so it can't be stored: {error}") from None
        yield from _tell("note", key, text)
        self._data()[key] = value

    def summarize_context(self, key: str | None = None, focus: str | None = None) -> Dialogue:
        """Summarize one value of `context_data`, or all of it."""
        return (yield from summary_of(as_text(self.get_agent_context(key)), focus))

    def _data(self) -> dict[str, Any]:
        data = self._namespace.variables.get("context_data")
        if not isinstance(data, dict):
            raise TypeError("context_data is no longer a dict; bind it to one")
        return data

    def _sources(self) -> Iterator[tuple[str, str]]:
        """Yield everything that can be searched, as (location, text)."""
        for key, value in self._data().items():
            yield f"context_data[{key!r}]", as_text(value)
        ours = self._namespace.ours
        for name, value in ours.items():
            if name == "context" or (name.startswith("context_") and name[8:].strip("0").isdigit()):
                yield name, as_text(value)
        for index, turn in enumerate(ours.get("history", ())):
            yield f"history[{index}]", as_text(turn)


def stream_output(text: Any) -> Dialogue:
    """Show text to the user at once, before the cell continues."""
    yield from _tell("stream", "", str(text))


def _tell(what: str, key: str, text: str) -> Dialogue:
    """Send a message to the program that runs the agent; return once it has arrived."""
    answer = yield question(what, b"{}", [key, text])
    calls.meta(answer, CallFailed)
