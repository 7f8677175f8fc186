"""A prompt of `llm`'s as a question for a run: what is asked, over what, after which turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import AttachmentPart, Message, TextPart

from llm_rlm.piped import split_question
from llm_rlm.sources import contexts_of, free_name, named_texts

if TYPE_CHECKING:
    from rlm.context import ContextValue

__all__ = ["MOST_QUERY_CHARS", "Asked", "read_prompt"]

MOST_QUERY_CHARS = 8_000
"""A longer question is a context: the model is told of it, and its code reads it."""

EARLIER = (
    "This conversation began before. The variable `earlier` holds all its messages, each with "
    '"role" and "content"; a long one begins with what was handed in.'
)
TASK, INSTRUCTIONS = "task", "instructions"
TURNS_RETOLD = 5
RETOLD_CHARS = 500


@dataclass(frozen=True)
class Asked:
    """One turn. `earlier` are the messages before it, `system` what the user told besides.

    A question too long for a prompt is the `task`, and such a system text the `instructions`:
    texts of the context that the model is told of.
    """

    question: str
    texts: dict[str, str]
    attachments: Sequence[llm.Attachment]
    system: str = ""
    task: str = ""
    instructions: str = ""
    earlier: list[dict[str, str]] = field(default_factory=list)
    earlier_attachments: Sequence[llm.Attachment] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.question or self.task or self.texts or self.attachments)

    @property
    def query(self) -> str | None:
        """What to ask; None if there is only something to read, which then holds the task."""
        if self.task and (self.texts or self.instructions):
            name = free_name(TASK, self.texts)
            return f'The task is context["{name}"]: read it first, then do what it asks.'
        return self.question or None

    def contexts(self, *, is_first: bool) -> list["ContextValue"]:
        """What this turn brings; the first of a run also what earlier processes were given."""
        texts = dict(self.texts)
        if self.task:
            texts = {free_name(TASK, self.texts): self.task, **texts}
        if self.instructions and is_first:
            texts[free_name(INSTRUCTIONS, self.texts)] = self.instructions
        attachments = list(self.attachments)
        if is_first:
            attachments += [each for each in self.earlier_attachments if _is_there(each)]
        found = contexts_of(texts, attachments, by_name=bool(self.instructions))
        if found or not is_first:
            return found
        sent = [each["content"] for each in self.earlier if _is_users(each)]
        longest = max(sent, key=len, default="")
        return [longest] if len(longest) > MOST_QUERY_CHARS else []

    def prologue(self) -> str:
        """What the model is told besides the question, in a few lines however long the rest is."""
        told = [self.system]
        if self.instructions:
            name = free_name(INSTRUCTIONS, self.texts)
            told.append(f'The instructions to follow are context["{name}"]: read them first.')
        if self.earlier:
            told.append(EARLIER)
            told += [_retold(each) for each in self.earlier[-2 * TURNS_RETOLD :]]
        return "\n".join(filter(None, told))


def read_prompt(prompt: llm.Prompt) -> Asked:
    """Take a prompt apart; a long question and long instructions become texts of the context."""
    piped, question = split_question(_question(prompt))
    before, last = _messages(prompt)
    if not question:
        question, piped = piped, ""
    if not question and not prompt.fragments and last is not None:
        question = _text(last)
    system = prompt.system or "\n\n".join(_text(each) for each in before if each.role == "system")
    is_long, has_rules = len(question) > MOST_QUERY_CHARS, len(system) > MOST_QUERY_CHARS
    turns = [each for each in before if each.role in ("user", "assistant")]
    return Asked(
        question="" if is_long else question,
        task=question if is_long else "",
        texts=named_texts(prompt.fragments or (), piped),
        attachments=prompt.attachments,
        system="" if has_rules else system,
        instructions=system if has_rules else "",
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


def _is_users(message: dict[str, str]) -> bool:
    return message["role"] == "user"


def _is_there(attachment: llm.Attachment) -> bool:
    return not attachment.path or Path(attachment.path).is_file()


def _retold(message: dict[str, str]) -> str:
    """A message in short. The question is the end of what a user sent."""
    text = message["content"].strip()
    if _is_users(message):
        asked = text.rpartition("\n")[2]
        asked = asked if len(asked) <= RETOLD_CHARS else f"… {asked[-RETOLD_CHARS:]}"
        return f"Earlier query: {asked}"
    return f"Your answer: {text if len(text) <= RETOLD_CHARS else f'{text[:RETOLD_CHARS]} …'}"
