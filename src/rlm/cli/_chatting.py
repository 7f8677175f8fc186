"""Run `rlm chat`: turn after turn, each saved before the next is asked."""

import logging
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import click
from msgspec.structs import replace

from rlm._util.text import counted
from rlm.api import RLM
from rlm.chat.chat import Chat
from rlm.cli._asking import Options, Setting, make_rlm, prepare
from rlm.cli._chat_commands import COMMANDS, MAX_CONTEXT_BYTES, ChatFolder, perform
from rlm.cli._chat_input import Keyboard, Piped
from rlm.cli._context import STDIN, context_of
from rlm.cli._errors import ANSWERED, CANCELLED, FAILED, say, unknown_price
from rlm.cli._output import check_stdout, show
from rlm.cli._progress import RunDisplay
from rlm.cli._stopping import is_terminated
from rlm.context import ContextValue
from rlm.errors import ConfigError, RLMError, UnknownPriceError
from rlm.logger import RLMLogger
from rlm.portal import portal
from rlm.results import RunResult

__all__ = ["Conversation", "Wanted", "converse"]


ENDING = (FAILED, CANCELLED)
"""Outcomes of a turn that end a piped chat: later questions may depend on it."""


def _check_writable(path: Path) -> None:
    """Refuse a file that the chat can't be saved to, before anything is paid for."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file to save the chat to")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ConfigError(
            f"the chat can't be saved to {path}: {path.parent}: {error.strerror or error}"
        ) from error


class Wanted(NamedTuple):
    """Where a chat is loaded from, and where it is saved."""

    load: str | None
    save: Path | None
    continue_newest: bool


def converse(options: Options, wanted: Wanted) -> int:
    """Hold the conversation, and return the exit code."""
    if STDIN in options.files:
        raise click.UsageError(
            "stdin provides the questions: name files instead of -", click.get_current_context()
        )
    check_stdout()
    made_of = prepare(options)
    with Conversation(options, made_of, wanted) as conversation:
        in_terminal = sys.stdin is not None and sys.stdin.isatty()
        history = None if conversation.folder is None else conversation.folder.history
        source = Keyboard(history, list(COMMANDS)) if in_terminal else Piped()
        try:
            conversation.greet(with_help=in_terminal)
            return _until_the_end(conversation, source)
        finally:
            source.close()
            conversation.say_goodbye()


def _until_the_end(conversation: "Conversation", source: Keyboard | Piped) -> int:
    code = ANSWERED
    while not conversation.is_over:
        try:
            said = source.next()
            if said is None:
                return code
            heard = conversation.hear(said)
        except KeyboardInterrupt:
            if is_terminated() or not source.is_terminal:
                raise
            click.echo(err=True)
            conversation.tell("Press Ctrl-D or type /quit to leave.")
            continue
        except (click.ClickException, RLMError, OSError) as error:
            if not source.is_terminal:
                raise
            say(f"Error: {_in_words(error)}")
            continue
        if is_terminated():
            return CANCELLED
        if source.is_terminal:
            click.echo(err=True)  # an empty line before the next prompt
        elif heard in ENDING:
            return heard
        else:
            code = heard or code  # In a terminal, the user has seen what went wrong.
    return code


def _in_words(error: click.ClickException | RLMError | OSError) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


class Conversation:
    """The current chat, and what is needed to begin another. Commands work on it."""

    def __init__(self, options: Options, made_of: Setting, wanted: Wanted) -> None:
        self.options = options
        self.folder = None if made_of.journal is None else ChatFolder(made_of.journal)
        self.is_over = False
        self.last: RunResult | None = None
        self._made_of = made_of
        self._table_row: set[str] = set()
        self._is_saved = False
        self._log = None if options.log_dir is None else RLMLogger(log_dir=options.log_dir)
        # With a handler, logging prints nothing by itself; messages are printed here.
        self._silence = logging.NullHandler()
        logging.getLogger("rlm").addHandler(self._silence)
        path = self._loaded_from(wanted)
        self.path = wanted.save or path
        if self.path is not None:
            _check_writable(self.path)
        self.engine = self._new_engine(options, made_of)
        try:
            self.chat = self.new_chat(path)
            if (context := self._given()) is not None:
                self.chat.add_context(context)
        except BaseException:
            self.engine.close()
            raise

    def _given(self) -> ContextValue:
        options = self.options
        return context_of(options.files, quiet=options.quiet) if options.files else None

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self.chat.close()
        self.engine.close()
        logging.getLogger("rlm").removeHandler(self._silence)

    # -- turns -------------------------------------------------------------------------------

    def hear(self, said: str) -> int:
        """Run a command or answer a question; return an exit code, which only questions affect."""
        if not said.strip():
            return ANSWERED
        if said.strip().lower() in {"exit", "quit", "/exit", "/q"}:
            said = "/quit"
        if said.startswith("/") and not said.startswith("//"):
            perform(self, said)
            return ANSWERED
        return self.turn(said.removeprefix("/") if said.startswith("//") else said)

    def turn(self, query: str) -> int:
        """Ask, show the answer, and save the chat."""
        display = RunDisplay(replace(self.options, log_dir=None).manner, journaled=False)
        display.leave_with(self._farewell())
        try:
            self.last = result = display.run(
                self.engine,
                lambda: portal().call(lambda: self.chat.aask(query, recorders=display.recorders)),
            )
        except UnknownPriceError as error:
            raise unknown_price(self._made_of.choice.names) from error
        finally:
            display.close()
        beside = {"turn": len(self.chat.turns), "query": query}
        options = self.options
        code = show(
            result,
            self.model,
            as_json=options.as_json,
            typed=False,
            quiet=options.quiet,
            beside=beside,
        )
        self.save()
        return code

    @property
    def model(self) -> str:
        return self._made_of.choice.model

    def tell(self, text: str) -> None:
        """Print a line to standard error."""
        if not self.options.quiet:
            say(text)

    # -- chats -------------------------------------------------------------------------------

    def new_chat(self, load: Path | None = None) -> Chat:
        options = self.options
        chat = self.engine.chat(
            load=load, max_tokens=options.max_tokens, max_cost_usd=options.budget_usd
        )
        self._tell_notices(chat)
        return chat

    def begin(self, chat: Chat, path: Path | None) -> None:
        """Continue with another chat."""
        self.chat.close()
        self.chat, self.path, self.last = chat, path, None
        self._is_saved = False

    def save(self, path: Path | None = None) -> None:
        """Save to the user's file, or to the folder of chats."""
        self.path = path or self.path or self._new_path()
        if self.path is not None:
            self.chat.save(self.path)
            self._is_saved = True
            self._tell_notices(self.chat)

    def switch(self, model: str) -> None:
        """Continue with another model, as if the chat had been saved and loaded again."""
        options = replace(self.options, model=model)
        made_of = prepare(options)
        with tempfile.TemporaryDirectory(prefix="rlm-chat-") as folder:
            between = Path(folder) / "chat.rlm"
            self.chat.save(between)
            before = self.engine, self.chat, self.options, self._made_of
            self.engine = self._new_engine(options, made_of)
            self.options, self._made_of = options, made_of
            try:
                self.chat = self.new_chat(between)
            except BaseException:
                self.engine.close()
                self.engine, self.chat, self.options, self._made_of = before
                raise
        before[1].close()
        before[0].close()

    def find(self, named: str) -> Path:
        """Return the path of a saved chat, given as a file or a name."""
        return Path(named) if self.folder is None else self.folder.find(named)

    # -- words -------------------------------------------------------------------------------

    def greet(self, *, with_help: bool) -> None:
        chat = self.chat
        for name, description in chat.contexts.items():
            self.tell(f"{name}: {description}")
        if chat.turns:
            self.tell(f"This chat has {counted(len(chat.turns), 'turn')} so far.")
        if with_help:
            self.tell(f"Model: {self.model}. /help lists commands; Ctrl-D leaves.")

    def say_goodbye(self) -> None:
        if self._is_saved and self.path is not None:
            self.tell(self._farewell())

    def _farewell(self) -> str:
        if not self._is_saved or self.path is None:
            return "Quit."
        own = self.folder is not None and self.path.parent == self.folder.path
        how = "rlm chat --continue" if own else f"rlm chat --load {self.path}"
        return f"The chat is saved; continue with: {how}"

    # -- parts -------------------------------------------------------------------------------

    def _loaded_from(self, wanted: Wanted) -> Path | None:
        if wanted.continue_newest:
            if self.folder is None:
                raise ConfigError("--continue needs saved chats, but saving is switched off")
            return self.folder.newest()
        return None if wanted.load is None else self.find(wanted.load)

    def _new_engine(self, options: Options, made_of: Setting) -> RLM:
        each_turn = replace(options, budget_usd=None, max_tokens=None)
        return make_rlm(each_turn, made_of, [] if self._log is None else [self._log])

    def _new_path(self) -> Path | None:
        """Return where this chat is saved, or None if saving is off or it is too large."""
        if self.folder is None:
            return None
        if self.chat.context_bytes > MAX_CONTEXT_BYTES:
            self._tell_once(
                f"The contexts exceed {MAX_CONTEXT_BYTES >> 20} MiB: this chat is not saved "
                "automatically; use /save FILE."
            )
            return None
        return self.folder.new()

    def _tell_notices(self, chat: Chat) -> None:
        for notice in chat.notices:
            self._tell_once(f"{notice[:1].upper()}{notice[1:]}.")

    def _tell_once(self, text: str) -> None:
        if text not in self._table_row:
            self._table_row.add(text)
            self.tell(text)
