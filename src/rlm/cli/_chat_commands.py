"""What begins with a slash in a chat: looking at it, keeping it, going on with another."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import click

from rlm.chat.chat import Chat
from rlm.cli._border import ANSWERED, FAILED, say
from rlm.cli._context import STDIN, context_of
from rlm.cli._listing import money
from rlm.events import CellOutput, CellStarted, StepStarted
from rlm.records.recorders.console import cell_details, counted, harmless
from rlm.results import RunResult

__all__ = ["COMMANDS", "perform"]

SHOWN_CHARS = 4_000


class Talk(Protocol):
    """What commands work on; `rlm.cli._chatting` has it."""

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
    """One command: what may stand after it, what it is for, and what does it."""

    usage: str
    told: str
    do: Callable[[Talk, str], None]


def perform(talk: Talk, said: str) -> int:
    """Do what a command says; an exit code."""
    name, _, rest = said.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        say(f"There is no command {name}; /help lists them. A question may begin with //.")
        return FAILED
    if not rest.strip() and command.usage.startswith(("FILE", "NAME")):
        say(f"Usage: {name} {command.usage}")
        return FAILED
    command.do(talk, rest.strip())
    return ANSWERED


def _show(text: str) -> None:
    click.echo(harmless(text), err=True)


def _help(_: Talk, __: str) -> None:
    width = max(len(f"{name} {each.usage}") for name, each in COMMANDS.items())
    for name, each in COMMANDS.items():
        _show(f"{f'{name} {each.usage}':<{width}}  {each.told}")
    _show('Several lines: end them with \\, or put """ around them, or paste them.')


def _context(talk: Talk, rest: str) -> None:
    sources = _words(rest)
    if STDIN in sources:
        say("stdin is for questions here: name the files")
        return
    name = talk.chat.add_context(context_of(sources))
    _show(f"{name}: {talk.chat.contexts[name]}")


def _contexts(talk: Talk, _: str) -> None:
    for name, told in talk.chat.contexts.items():
        _show(f"{name}: {told}")
    if not talk.chat.contexts:
        _show("There is no context; /context FILE adds one.")


def _vars(talk: Talk, _: str) -> None:
    found = talk.chat.variables()
    for name, told in found.items():
        _show(f"{name}: {told}")
    if not found:
        _show("There are no variables.")


def _show_one(talk: Talk, rest: str) -> None:
    text = talk.chat.fetch(rest)
    if text is None:
        _show(f"There is no {rest} in the REPL; /vars lists what is there.")
        return
    more = f"\n… ({len(text):,} characters in all)" if len(text) > SHOWN_CHARS else ""
    _show(text[:SHOWN_CHARS] + more)


def _cost(talk: Talk, _: str) -> None:
    chat = talk.chat
    for number, each in enumerate(chat.summaries, 1):
        _show(
            f"turn {number}: {each.stop_reason}, {counted(each.steps, 'step')}, "
            f"{each.usage.total_tokens:,} tokens, {money(each.cost_usd)}, {each.seconds:.1f} s"
        )
    _show(f"in all: {chat.usage.total_tokens:,} tokens, {money(chat.cost_usd)}")


def _model(talk: Talk, rest: str) -> None:
    if rest:
        talk.switch(rest)
    _show(f"{talk.model} answers.")


def _steps(talk: Talk, _: str) -> None:
    if talk.last is None:
        _show("There was no turn yet.")
        return
    for event in talk.last.events:
        if isinstance(event, StepStarted):
            _show("  " * event.depth + f"step {event.step}")
        elif isinstance(event, CellStarted | CellOutput):
            for line in cell_details(event)[1:]:
                _show("  " * (event.depth + 1) + line)


def _save(talk: Talk, rest: str) -> None:
    talk.save(Path(rest).expanduser() if rest else None)
    if talk.path is None:
        say("Where to? Say /save FILE.")
    else:
        _show(f"Saved: {talk.path}")


def _load(talk: Talk, rest: str) -> None:
    path = talk.find(str(Path(rest).expanduser()))
    talk.begin(talk.new_chat(path), path)
    talk.greet(with_help=False)


def _clear(talk: Talk, _: str) -> None:
    talk.begin(talk.new_chat(), None)
    _show("A new chat, without contexts and variables. The one before is kept as it was saved.")


def _quit(talk: Talk, _: str) -> None:
    talk.is_over = True


def _words(text: str) -> list[str]:
    try:
        return [str(Path(word).expanduser()) for word in shlex.split(text)]
    except ValueError:
        return [text]


COMMANDS = {
    "/help": Command("", "this list", _help),
    "/context": Command("FILE...", "add files or folders as one more context", _context),
    "/contexts": Command("", "the contexts, by the names the model knows them by", _contexts),
    "/vars": Command("", "the variables of the REPL, with their types", _vars),
    "/show": Command("NAME", "a variable or a context", _show_one),
    "/cost": Command("", "what each turn used, and all of them", _cost),
    "/model": Command("[MODEL]", "which model answers; or let another one go on", _model),
    "/steps": Command("", "the code of the last turn, and what it printed", _steps),
    "/save": Command("[FILE]", "save the chat now, and from now on to this file", _save),
    "/load": Command("FILE", "go on with a saved chat in place of this one", _load),
    "/clear": Command("", "begin another chat", _clear),
    "/quit": Command("", "leave", _quit),
}
