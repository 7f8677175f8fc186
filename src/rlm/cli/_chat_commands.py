"""The slash commands of `rlm chat`, and the files in which chats are saved."""

import os
import secrets
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click
from msgspec import Struct

from rlm._util.text import UNKNOWN, closest, cost_words, counted
from rlm.chat.chat import Chat
from rlm.chat.file import SavedFile
from rlm.cli._context import STDIN, context_of
from rlm.cli._errors import say
from rlm.cli._listing import age
from rlm.cli._output import as_harmless_json, show_table
from rlm.cli._records import archive
from rlm.errors import ConfigError
from rlm.events import CellOutput, CellStarted, StepStarted
from rlm.records.recorders.console import cell_details, harmless, one_line
from rlm.results import RunResult

__all__ = ["COMMANDS", "ChatFolder", "perform", "show_chats"]

ENDING = ".rlm"
MAX_CHATS = 50
MAX_BYTES = 2 << 30
MAX_CONTEXT_BYTES = 256 << 20
"""Chats with larger contexts are saved only on request, because each turn writes all of it."""


class KeptChat(Struct, frozen=True):
    """A file of the folder of chats."""

    name: str
    path: Path
    changed: float
    size_bytes: int


class ChatFolder:
    """The folder `chats` in the state folder; only its owner can read it."""

    def __init__(self, root: Path) -> None:
        self.path = self._folder = root / "chats"
        self.history = root / "chat_history"

    def new(self) -> Path:
        """Return a path for a new chat, and remove the oldest chats if there are too many."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        began = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._folder / f"{began}-{secrets.token_hex(3)}{ENDING}"

    def listed(self) -> list[KeptChat]:
        """Return all chats, newest first."""
        found = []
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return []
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                facts = entry.stat(follow_symlinks=False)
                name = entry.name.removesuffix(ENDING)
                found.append(KeptChat(name, Path(entry.path), facts.st_mtime, facts.st_size))
        return sorted(found, key=lambda each: (each.changed, each.name), reverse=True)

    def newest(self) -> Path:
        for each in self.listed():
            return each.path
        raise ConfigError("there is no chat to continue; `rlm chat FILE` starts one")

    def find(self, named: str) -> Path:
        """Return a file, or a chat of this folder by its name or the end of its name."""
        if os.path.sep in named or Path(named).exists():
            return Path(named)
        found = [each.path for each in self.listed() if each.name.endswith(named)]
        if len(found) == 1:
            return found[0]
        what = "several chats are" if found else "no file or chat is"
        raise ConfigError(f"{what} called {named!r}; `rlm chat --list` lists them")

    def _make_room(self) -> None:
        size = 0
        for number, each in enumerate(self.listed(), 2):
            size += each.size_bytes
            if number > MAX_CHATS or size > MAX_BYTES:
                each.path.unlink(missing_ok=True)


def show_chats(*, as_json: bool) -> None:
    """Print what `rlm chat --list` shows."""
    folder = ChatFolder(archive().places.root)
    rows = [(each, _about(each)) for each in folder.listed()]
    if as_json:
        plain = [{"chat": e.name, "path": str(e.path), **(a or {})} for e, a in rows]
        click.echo(as_harmless_json(plain))
        return
    if not rows:
        say("No chats yet; `rlm chat FILE` starts one.")
        return
    cells = [
        (each.name, age(time.time() - each.changed), *_table_row(facts)) for each, facts in rows
    ]
    show_table(("chat", "age", "turns", "model", "begins with"), cells, name=4, right=2)


def _about(each: KeptChat) -> dict[str, Any] | None:
    try:
        file = SavedFile(each.path)
    except ConfigError as error:
        say(f"Skipped {each.name}: {error}")
        return None
    try:
        texts = file.texts()
    except ConfigError:
        texts = []
    finally:
        file.close()
    first = texts[0][0] if texts else ""
    return {"turns": len(file.about.turns), "model": file.about.model, "query": first}


def _table_row(facts: dict[str, Any] | None) -> tuple[str, str, str]:
    if facts is None:
        return UNKNOWN, UNKNOWN, "can't be read"
    return str(facts["turns"]), facts["model"], one_line(facts["query"], 60)


SHOWN_CHARS = 4_000


class Conversation(Protocol):
    """What commands work on; implemented in `rlm.cli._chatting`."""

    chat: Chat
    path: Path | None
    last: RunResult | None
    is_over: bool

    @property
    def model(self) -> str: ...

    def new_chat(self, load: Path | None = None) -> Chat: ...

    def begin(self, chat: Chat, path: Path | None) -> None: ...

    def save(self, path: Path | None = None) -> None: ...

    def switch(self, model: str) -> None: ...

    def find(self, named: str) -> Path: ...

    def greet(self, *, with_help: bool) -> None: ...


class Command(NamedTuple):
    """A slash command: its arguments, its help text and its function."""

    usage: str
    help: str
    do: Callable[[Conversation, str], None]


def perform(conversation: Conversation, said: str) -> None:
    """Run a command. One that does not exist, or lacks its argument, is reported and skipped."""
    name, _, rest = said.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        meant = closest(name, COMMANDS, cutoff=0.6)
        what = f"did you mean {meant}?" if meant else "/help lists them."
        say(f"There is no command {name}; {what} To ask a question that begins with /, write //.")
    elif not rest.strip() and command.usage.startswith(("FILE", "NAME")):
        say(f"Usage: {name} {command.usage}")
    else:
        command.do(conversation, rest.strip())


def _show(text: str) -> None:
    click.echo(harmless(text), err=True)


def _help(_: Conversation, __: str) -> None:
    width = max(len(f"{name} {each.usage}") for name, each in COMMANDS.items())
    for name, each in COMMANDS.items():
        _show(f"{f'{name} {each.usage}':<{width}}  {each.help}")
    _show('For several lines, end each with \\, put """ around them, or paste them.')


def _context(conversation: Conversation, rest: str) -> None:
    sources = _words(rest)
    if STDIN in sources:
        say("stdin provides the questions: name files instead of -")
        return
    name = conversation.chat.add_context(context_of(sources))
    _show(f"{name}: {conversation.chat.contexts[name]}")


def _contexts(conversation: Conversation, _: str) -> None:
    for name, description in conversation.chat.contexts.items():
        _show(f"{name}: {description}")
    if not conversation.chat.contexts:
        _show("There is no context; /context FILE adds one.")


def _vars(conversation: Conversation, _: str) -> None:
    found = conversation.chat.variables()
    for name, description in found.items():
        _show(f"{name}: {description}")
    if not found:
        _show("There are no variables.")


def _show_one(conversation: Conversation, rest: str) -> None:
    text = conversation.chat.fetch(rest)
    if text is None:
        _show(f"There is no {rest} in the REPL; /vars lists its variables.")
        return
    more = f"\n… ({len(text):,} characters in total)" if len(text) > SHOWN_CHARS else ""
    _show(text[:SHOWN_CHARS] + more)


def _cost(conversation: Conversation, _: str) -> None:
    chat = conversation.chat
    for number, each in enumerate(chat.summaries, 1):
        tokens = counted(each.usage.total_tokens, "token")
        _show(
            f"turn {number}: {each.stop_reason}, {counted(each.steps, 'step')}, "
            f"{tokens}, {cost_words(each.cost_usd)}, {each.seconds:.1f} s"
        )
    _show(f"in total: {counted(chat.usage.total_tokens, 'token')}, {cost_words(chat.cost_usd)}")


def _model(conversation: Conversation, rest: str) -> None:
    if rest:
        conversation.switch(rest)
    _show(f"Model: {conversation.model}")


def _steps(conversation: Conversation, _: str) -> None:
    if conversation.last is None:
        _show("No turns yet.")
        return
    for event in conversation.last.events:
        if isinstance(event, StepStarted):
            _show("  " * event.depth + f"step {event.step}")
        elif isinstance(event, CellStarted | CellOutput):
            for line in cell_details(event)[1:]:
                _show("  " * (event.depth + 1) + line)


def _save(conversation: Conversation, rest: str) -> None:
    conversation.save(Path(rest).expanduser() if rest else None)
    if conversation.path is None:
        say("Save where? Type /save FILE.")
    else:
        _show(f"Saved: {conversation.path}")


def _load(conversation: Conversation, rest: str) -> None:
    path = conversation.find(str(Path(rest).expanduser()))
    conversation.begin(conversation.new_chat(path), path)
    conversation.greet(with_help=False)


def _clear(conversation: Conversation, _: str) -> None:
    conversation.begin(conversation.new_chat(), None)
    _show("Started a new chat, without contexts or variables. The previous chat remains saved.")


def _quit(conversation: Conversation, _: str) -> None:
    conversation.is_over = True


def _words(text: str) -> list[str]:
    try:
        return [str(Path(word).expanduser()) for word in shlex.split(text)]
    except ValueError:
        return [text]


COMMANDS = {
    "/help": Command("", "this list", _help),
    "/context": Command("FILE...", "add files or folders as another context", _context),
    "/contexts": Command("", "list the contexts and their names in the REPL", _contexts),
    "/vars": Command("", "list the variables of the REPL with their types", _vars),
    "/show": Command("NAME", "print a variable or a context", _show_one),
    "/cost": Command("", "show the usage of each turn and in total", _cost),
    "/model": Command("[MODEL]", "show the model, or continue with another one", _model),
    "/steps": Command("", "show the code and output of the last turn", _steps),
    "/save": Command("[FILE]", "save the chat to this file, now and after each turn", _save),
    "/load": Command("FILE", "continue a saved chat instead of this one", _load),
    "/clear": Command("", "start a new chat", _clear),
    "/quit": Command("", "leave the chat; /exit, exit and quit also work", _quit),
}
