"""Read a prompt of llm: the question, its contexts, and the conversation before it.

The `llm` command joins piped text and the question into one text, with a space between, before a
model sees it. Its arguments are still in click's context, so the question is known, and the rest is
the piped text.
"""

import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import llm
from llm.parts import AttachmentPart, Message, TextPart

from llm_rlm.contexts import contexts_of, free_name, named_texts

if TYPE_CHECKING:
    from rlm.context import ContextValue

__all__ = [
    "MAX_QUERY_CHARS",
    "Question",
    "command_parameters",
    "read_prompt",
    "split_piped",
]

MAX_QUERY_CHARS = 8_000
"""A longer question becomes a context, which the model's code reads."""

EARLIER = (
    "This conversation started earlier. The variable `earlier` holds all its messages, each with "
    '"role" and "content"; a long one starts with the texts that the user passed.'
)
TASK, INSTRUCTIONS = "task", "instructions"
QUOTED_TURNS = 5
QUOTED_CHARS = 500
IN_CONTEXT = "(the text in `context`)"


@dataclass(frozen=True)
class Question:
    """The question of one turn, with its texts, its attachments and the `earlier` messages.

    A question too long for a prompt is the `task`, and a system prompt too long the
    `instructions`: both become texts of the context.
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
        """The query of the run; None if the task is in the context."""
        if self.task and (self.texts or self.instructions):
            name = free_name(TASK, self.texts)
            return f'The task is context["{name}"]: read it first, then do what it asks.'
        return self.question or None

    def contexts(self, *, is_first: bool) -> list["ContextValue"]:
        """Return the contexts of this turn; if it is the first of a chat, also the earlier ones."""
        texts = dict(self.texts)
        if self.task:
            texts = {free_name(TASK, self.texts): self.task, **texts}
        if self.instructions and is_first:
            texts[free_name(INSTRUCTIONS, self.texts)] = self.instructions
        attachments = list(self.attachments)
        if is_first:
            attachments += [each for each in self.earlier_attachments if _exists(each)]
        found = contexts_of(texts, attachments, by_name=bool(self.instructions))
        if found or not is_first:
            return found
        sent = [each["content"] for each in self.earlier if _is_from_user(each)]
        longest = max(sent, key=len, default="")
        return [longest] if len(longest) > MAX_QUERY_CHARS else []

    def prologue(self) -> str:
        """Return the text to show below the query: the system prompt and the last turns."""
        lines = [self.system]
        if self.instructions:
            name = free_name(INSTRUCTIONS, self.texts)
            lines.append(f'The instructions to follow are context["{name}"]: read them first.')
        if self.earlier:
            lines.append(EARLIER)
            lines += [_quoted(each) for each in self.earlier[-2 * QUOTED_TURNS :]]
        return "\n".join(filter(None, lines))


def read_prompt(prompt: llm.Prompt) -> Question:
    """Parse a prompt; a long question and a long system prompt become texts of the context."""
    piped, question = split_piped(_question(prompt))
    before, last = _messages(prompt)
    if not question:
        question, piped = piped, ""
    if not question and not prompt.fragments and last is not None:
        question = _text(last)
    system = prompt.system or "\n\n".join(_text(each) for each in before if each.role == "system")
    is_long = len(question) > MAX_QUERY_CHARS
    is_long_system = len(system) > MAX_QUERY_CHARS
    turns = [each for each in before if each.role in ("user", "assistant")]
    return Question(
        question="" if is_long else question,
        task=question if is_long else "",
        texts=named_texts(prompt.fragments or (), piped),
        attachments=prompt.attachments,
        system="" if is_long_system else system,
        instructions=system if is_long_system else "",
        earlier=[{"role": each.role, "content": _text(each)} for each in turns],
        earlier_attachments=[found for each in turns for found in _attachments(each)],
    )


def _question(prompt: llm.Prompt) -> str:
    """Return the prompt without its fragments, which `llm` puts before it, one per line."""
    text: str = prompt.prompt
    if not prompt.fragments:
        return text
    return text.removeprefix("\n".join(map(str, prompt.fragments))).removeprefix("\n")


def _messages(prompt: llm.Prompt) -> tuple[list[Message], Message | None]:
    """Return the messages before this turn, and the user's message of this turn."""
    messages = prompt.messages
    if messages and messages[-1].role == "user":
        return messages[:-1], messages[-1]
    return messages, None


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, TextPart))


def _attachments(message: Message) -> list[llm.Attachment]:
    parts: list[Any] = [part for part in message.parts if isinstance(part, AttachmentPart)]
    return [part.attachment for part in parts if part.attachment is not None]


def _is_from_user(message: dict[str, str]) -> bool:
    return message["role"] == "user"


def _exists(attachment: llm.Attachment) -> bool:
    return not attachment.path or Path(attachment.path).is_file()


def _quoted(message: dict[str, str]) -> str:
    """Quote a message in short. A user's question is the end of the message."""
    text = message["content"].strip()
    if _is_from_user(message):
        asked = text.rpartition("\n")[2]
        asked = asked if len(asked) <= QUOTED_CHARS else f"… {asked[-QUOTED_CHARS:]}"
        return f"Earlier query: {asked}"
    return f"Your answer: {text if len(text) <= QUOTED_CHARS else f'{text[:QUOTED_CHARS]} …'}"


# -- piped text ------------------------------------------------------------------------------------


def split_piped(text: str) -> tuple[str, str]:
    """Return the piped text and the question; outside the `llm` command, all is the question."""
    given = command_parameters("prompt")
    if given is None or not text:
        return "", text
    typed = given.get("prompt") or ""
    if names := given.get("template") or ():
        return _split_by_templates(text, typed, names, dict(given.get("param") or ()))
    return _split(text, typed)


def command_parameters(command: str) -> Mapping[str, Any] | None:
    """Return the arguments of an `llm` command, if this thread is running it."""
    context = click.get_current_context(silent=True)
    known = getattr(sys.modules.get("llm.cli"), command, None)
    if context is None or known is None or context.command is not known:
        return None
    return context.params


def _split(text: str, typed: str) -> tuple[str, str]:
    if not typed:
        return ("", text) if sys.stdin.isatty() else (text, "")
    if text.endswith(f" {typed}"):
        return text[: -len(typed) - 1], typed
    return "", text


def _split_by_templates(
    text: str, typed: str, names: tuple[str, ...], given: dict[str, str]
) -> tuple[str, str]:
    """Split a prompt that templates made from the typed text or from the whole input."""
    from llm.cli import load_template

    templates = [load_template(name) for name in names]
    if not any("input" in template.vars() for template in templates):
        return _split(text, _filled(templates, typed, given))
    mark = secrets.token_hex(16)
    before, found, after = _filled(templates, mark, given).partition(mark)
    if not found or mark in after or not (text.startswith(before) and text.endswith(after)):
        return "", text
    piped, question = _split(text[len(before) : len(text) - len(after)], typed)
    if not piped:
        return "", text
    return piped, f"{before}{IN_CONTEXT} {question}".rstrip() + after


def _filled(templates: list[Any], prompt: str, given: dict[str, str]) -> str:
    """Return the prompt after these templates, applied in order as `llm` does."""
    for template in templates:
        uses_input = "input" in template.vars()
        made, _ = template.evaluate(prompt if uses_input else "", given)
        if made:
            prompt = f"{made}\n{prompt}" if prompt and not uses_input else made
    return prompt
