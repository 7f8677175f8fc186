"""A prompt of `llm`'s as a question for a run: what is asked, over what, after which turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import AttachmentPart, Message, TextPart

from llm_rlm.piped import split_question
from llm_rlm.sources import contexts_of, named_texts

if TYPE_CHECKING:
    from rlm.context import ContextValue

__all__ = ["MOST_QUERY_CHARS", "Asked", "read_prompt"]

MOST_QUERY_CHARS = 8_000
"""A longer question is a context: the model is told of it, and its code reads it."""

EARLIER = (
    "This conversation began before. The variable `earlier` holds all its messages, each with "
    '"role" and "content"; a long one begins with what was handed in.'
)
INSTRUCTIONS = "instructions"
TURNS_RETOLD = 5
RETOLD_CHARS = 500


@dataclass(frozen=True)
class Asked:
    """One turn. `earlier` are the messages before it, `system` what the user told besides."""

    query: str | None
    texts: dict[str, str]
    attachments: Sequence[llm.Attachment]
    system: str = ""
    earlier: list[dict[str, str]] = field(default_factory=list)
    earlier_attachments: Sequence[llm.Attachment] = ()

    def contexts(self, *, is_first: bool) -> list["ContextValue"]:
        """What this turn brings; the first of a run also what earlier processes were given."""
        if not is_first:
            texts = {name: text for name, text in self.texts.items() if name != INSTRUCTIONS}
            return contexts_of(texts, self.attachments)
        kept = [each for each in self.earlier_attachments if _is_there(each)]
        found = contexts_of(self.texts, [*self.attachments, *kept])
        if found or not self.earlier:
            return found
        sent = [each["content"] for each in self.earlier if _is_users(each)]
        longest = max(sent, key=len, default="")
        return [longest] if len(longest) > MOST_QUERY_CHARS else []

    def prologue(self) -> str:
        """What the model is told besides the question, in a few lines however long the rest is."""
        if not self.earlier:
            return self.system
        told = [
            EARLIER,
            *(_retold(each) for each in self.earlier[-2 * TURNS_RETOLD :]),
        ]
        return "\n".join(filter(None, [self.system, *told]))


def read_prompt(prompt: llm.Prompt) -> Asked:
    """Take a prompt apart; a long question and long instructions become texts of the context."""
    piped, question = split_question(_question(prompt))
    before, last = _messages(prompt)
    if not question:
        question, piped = piped, ""
    if not question and not prompt.fragments and last is not None:
        question = _text(last)
    texts = named_texts(prompt.fragments or (), piped)
    if len(question) > MOST_QUERY_CHARS:
        texts, question = {"task": question, **texts}, ""
    system = prompt.system or "\n\n".join(_text(each) for each in before if each.role == "system")
    if len(system) > MOST_QUERY_CHARS:
        texts[INSTRUCTIONS] = system
        system = f'The instructions to follow are in the context, under "{INSTRUCTIONS}".'
    turns = [each for each in before if each.role in ("user", "assistant")]
    return Asked(
        query=question or _task_in(texts),
        texts=texts,
        attachments=prompt.attachments,
        system=system,
        earlier=[{"role": each.role, "content": _text(each)} for each in turns],
        earlier_attachments=[found for each in turns for found in _attachments(each)],
    )


def _question(prompt: llm.Prompt) -> str:
    """The prompt without its fragments, which `llm` puts before it, each on a line."""
    text: str = prompt.prompt
    if not prompt.fragments:
        return text
    return text.removeprefix("\n".join(map(str, prompt.fragments))).removeprefix("\n")


def _messages(prompt: llm.Prompt) -> tuple[list[Message], Message | None]:
    """The messages before this turn, and the user's message of this turn."""
    messages = prompt.messages
    if messages and messages[-1].role == "user":
        return messages[:-1], messages[-1]
    return messages, None


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, TextPart))


def _attachments(message: Message) -> list[llm.Attachment]:
    parts: list[Any] = [part for part in message.parts if isinstance(part, AttachmentPart)]
    return [part.attachment for part in parts if part.attachment is not None]


def _task_in(texts: dict[str, str]) -> str | None:
    """What to ask when nothing is asked: with one text, the engine's own line for that."""
    if "task" in texts and len(texts) > 1:
        return 'The task is context["task"]: read it first, then do what it asks.'
    return None


def _is_users(message: dict[str, str]) -> bool:
    return message["role"] == "user"


def _is_there(attachment: llm.Attachment) -> bool:
    return not attachment.path or Path(attachment.path).is_file()


def _retold(message: dict[str, str]) -> str:
    """A message in short. The question is the end of what a user sent."""
    text = message["content"].strip()
    if _is_users(message):
        text = text.rpartition("\n")[2]
        return (
            f"Earlier query: {text if len(text) <= RETOLD_CHARS else '… ' + text[-RETOLD_CHARS:]}"
        )
    return f"Your answer: {text if len(text) <= RETOLD_CHARS else text[:RETOLD_CHARS] + ' …'}"
