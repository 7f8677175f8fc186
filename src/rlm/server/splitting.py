"""Messages become a query, instructions and a context. Pure, and nothing of the text gets lost.

The rule, for a limit of so many characters (`context_over`):

1. The last user message is the query. If it is longer than the limit, the whole of it becomes a
   context, and the query is its edges: its first and its last paragraph, as far as they are short.
   Of a long paragraph at an edge, its outer line counts. If both edges are long, the query says
   that the task is in the context.
2. System and developer messages are instructions, below the query. If they are longer than the
   limit together, they become a context.
3. Whatever else there is, before and after that message, is the conversation. If it is short, it is
   told below the query, too; else it becomes a context.

One context is handed over as it is; of several, each is under a name in a dict.
"""

from typing import Any, TypeAlias

from msgspec import Struct, field

from rlm.prompts import FIXED_QUERY

__all__ = ["Split", "Spoken", "is_large", "split"]

EDGE_CHARS = 1_000
"""A paragraph up to this long at an edge of a large message may hold the question."""

Context: TypeAlias = str | list[Any] | dict[str, Any] | None


class Spoken(Struct, frozen=True):
    """A message, as far as it is text."""

    role: str
    text: str


class Split(Struct, frozen=True):
    """What a run is asked: `prologue` stands below the query."""

    query: str
    prologue: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """None if there is none, the only one as it is, else all of them by name."""
        if not self.contexts:
            return None
        return next(iter(self.contexts.values())) if len(self.contexts) == 1 else self.contexts


def is_large(messages: list[Spoken], limit: int) -> bool:
    """Whether there is more text than should be in a prompt."""
    return sum(len(message.text) for message in messages) > limit


def split(messages: list[Spoken], limit: int) -> Split:
    """Apply the rule at the top."""
    at = _last_user(messages)
    asked = messages[at].text if at is not None else ""
    rest = [message for number, message in enumerate(messages) if number != at]
    instructions = "\n\n".join(m.text for m in rest if m.role in {"system", "developer"})
    talk = [m for m in rest if m.role not in {"system", "developer"} and m.text]
    contexts: dict[str, Context] = {}
    below: list[str] = []
    if len(asked) > limit:
        contexts["message"] = asked
    query = _edges(asked) if len(asked) > limit else asked
    if len(instructions) > limit:
        contexts["instructions"] = instructions
        below.append("Instructions that you must follow are in the context: read them first.")
    elif instructions:
        below.append(instructions)
    if is_large(talk, limit):
        contexts["conversation"] = [{"role": m.role, "content": m.text} for m in talk]
        below.append("The earlier messages of this conversation are in the context.")
    elif talk:
        below.append("\n\n".join(["The conversation so far:", *map(_told, talk)]))
    return Split(query if query.strip() else FIXED_QUERY, "\n\n".join(below), contexts)


def _last_user(messages: list[Spoken]) -> int | None:
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _told(message: Spoken) -> str:
    return f"[{message.role}]\n{message.text}"


def _edges(text: str) -> str:
    """What stands at both ends of a large text, where people put their question."""
    text = text.strip()
    first, last = _first(text), _last(text)
    edges = [first, last] if first != last else [first]
    return "\n\n".join(filter(None, edges))


def _first(text: str) -> str:
    for end in ("\n\n", "\n"):
        edge = text.partition(end)[0].strip()
        if len(edge) <= EDGE_CHARS:
            return edge
    return ""


def _last(text: str) -> str:
    for start in ("\n\n", "\n"):
        edge = text.rpartition(start)[2].strip()
        if len(edge) <= EDGE_CHARS:
            return edge
    return ""
