"""Read the messages of a chat: typed with line editing, or piped in."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

__all__ = ["Keyboard", "Piped", "message"]

PROMPT, MORE = "rlm> ", "...> "
QUOTES = '"""'
KEPT_LINES = 1_000
MAX_LINE_BYTES = 8 << 20
"""How long a piped line may be: a question is held in memory and sent as a whole."""
MAX_MATCHES = 200
FILES_AFTER = ("/context ", "/load ", "/save ")


def message(line: Callable[[bool], str | None]) -> str | None:
    """Return the next message: a line, lines that end with a backslash, or text in triple quotes.

    `line` returns one line and is passed whether it continues a message; None means end of input.
    """
    first = line(False)
    if first is None:
        return None
    if first.lstrip().startswith(QUOTES):
        return _quoted(first.lstrip().removeprefix(QUOTES), line)
    lines = [first]
    while _goes_on(lines[-1]):
        lines[-1] = lines[-1].rstrip()[:-1]
        following = line(True)
        if following is None:
            break
        lines.append(following)
    return "\n".join(lines)


def _goes_on(line: str) -> bool:
    end = line.rstrip()
    return (len(end) - len(end.rstrip("\\"))) % 2 == 1


def _quoted(text: str, line: Callable[[bool], str | None]) -> str:
    while not text.rstrip().endswith(QUOTES):
        following = line(True)
        if following is None:
            return text
        text += f"\n{following}"
    return text.rstrip().removesuffix(QUOTES).strip("\n")


class Piped:
    """Lines of a stream. Bytes that are not UTF-8 become surrogates; empty lines are skipped."""

    is_terminal = False

    def next(self) -> str | None:
        return message(self._line)

    def _line(self, more: bool) -> str | None:
        stream = None if sys.stdin is None else sys.stdin.buffer
        while stream is not None and (data := stream.readline(MAX_LINE_BYTES + 1)):
            if len(data) > MAX_LINE_BYTES:
                raise click.ClickException(
                    f"a line of standard input is longer than {MAX_LINE_BYTES >> 20} MiB; write "
                    "the text to a file and name that, and ask about it in a short line"
                )
            text = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
            if more or text.strip():
                return text
        return None

    def close(self) -> None:
        """Do nothing."""


class Keyboard:
    """A terminal. Several lines pasted at once are one message."""

    is_terminal = True

    def __init__(self, history: Path | None, commands: Sequence[str]) -> None:
        self._history = history
        self._commands = commands
        self._edits = sys.stdout is not None and sys.stdout.isatty() and self._use_readline()

    def next(self) -> str | None:
        """Return the next message; KeyboardInterrupt if the user discarded it."""
        said = message(self._line)
        if said is None:
            if not self._edits:  # readline ends the line itself
                click.echo(err=True)
            return None
        if self._edits and said.strip():
            self._remember(said.strip("\n"))
        return said.strip("\n")

    def close(self) -> None:
        """Restore the terminal."""
        if self._edits:
            self._readline.set_completer(None)
            self._readline.clear_history()

    def _line(self, more: bool) -> str | None:
        prompt = MORE if more else PROMPT
        try:
            if self._edits:
                return input(prompt)
            click.echo(prompt, nl=False, err=True)
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        except EOFError:
            return None
        except UnicodeDecodeError:
            click.echo("Ignored that line: it is not UTF-8.", err=True)
            return ""

    # -- line editing ------------------------------------------------------------------------

    def _use_readline(self) -> bool:
        try:
            import readline
        except ImportError:
            return False
        self._readline: Any = readline
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
        if not is_libedit:
            readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        readline.set_auto_history(False)
        self._read_history()
        return True

    def _complete(self, text: str, state: int) -> str | None:
        line = self._readline.get_line_buffer()
        if line.startswith(FILES_AFTER):
            found = _files(text)
        elif line.startswith("/") and " " not in line:
            found = [f"{each} " for each in self._commands if each.startswith(text)]
        else:
            found = []
        return found[state] if state < len(found) else None

    def _read_history(self) -> None:
        """Load the history of earlier chats; ignore a file that cannot be read or written."""
        if self._history is None:
            return
        try:
            os.close(os.open(self._history, os.O_RDWR | os.O_CREAT, 0o600))
            self._readline.read_history_file(self._history)
            if self._readline.get_current_history_length() > KEPT_LINES:
                self._readline.set_history_length(KEPT_LINES)
                self._readline.write_history_file(self._history)
                self._history.chmod(0o600)
        except OSError:
            self._history = None

    def _remember(self, said: str) -> None:
        self._readline.add_history(said)
        if self._history is not None:
            try:
                self._readline.append_history_file(1, self._history)
            except OSError:
                self._history = None


def _files(start: str) -> list[str]:
    """Return the names that begin with a text; folders end with a slash."""
    folder, slash, name = start.rpartition("/")
    try:
        entries = list(os.scandir(Path(folder + slash or ".").expanduser()))
    except OSError:
        return []
    hidden = name.startswith(".")
    names = [
        f"{folder}{slash}{each.name}" + ("/" if each.is_dir() else " ")
        for each in sorted(entries, key=lambda each: each.name)
        if each.name.startswith(name) and (hidden or not each.name.startswith("."))
    ]
    return names[:MAX_MATCHES]
