"""Turn errors into one line and an exit code, and write messages to standard error."""

import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import click

from rlm.cli._stopping import CANCELLED, exit_code_of, terminable

__all__ = [
    "ANSWERED",
    "CANCELLED",
    "FAILED",
    "LIMITED",
    "MISUSED",
    "PASSAGES",
    "run",
    "say",
    "unknown_price",
]

ANSWERED, FAILED, MISUSED, LIMITED, PASSAGES = 0, 1, 2, 3, 4
SHORTEST_TYPED, MOST_MEANT = len("--en"), 3
MOST_FILES = 1_000
UNBRACKETED = re.compile(r"\.? \((Did you mean [^()]*\?)\)$")
"""The guess at what was meant, which click puts in brackets if there are several."""


def run(commands: click.Group, arguments: Sequence[str] | None = None) -> int:
    """Run a command; every outcome becomes an exit code."""
    with terminable():
        return exit_code_of(_run(commands, arguments))


def _run(commands: click.Group, arguments: Sequence[str] | None) -> int:
    try:
        code = commands.main(arguments, prog_name="rlm", standalone_mode=False)
        _flush()
        return code if isinstance(code, int) else ANSWERED
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else FAILED
    except (click.Abort, KeyboardInterrupt):
        # CPython notes an interrupt of code in a string, as dataclasses have it, as unhandled
        # until such code runs again; `python -m rlm` would end by the signal, without a code.
        exec("")  # noqa: S102
        return say("Cancelled.", CANCELLED)
    except click.exceptions.NoArgsIsHelpError as error:  # a group without its command
        click.echo(error.format_message())
        return ANSWERED
    except click.UsageError as error:
        return say(f"Error: {_with_hint(error)}", MISUSED)
    except click.ClickException as error:
        return say(f"Error: {error.format_message()}", error.exit_code)
    except BrokenPipeError:  # the reader of the answer has closed its end
        _drop(1)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the command boundary: no traceback leaves here
        return _failed(error, commands, arguments or sys.argv[1:])


def say(text: str, code: int = FAILED) -> int:
    """Print one harmless line to standard error, if there is a text, and return the code."""
    from rlm.records.recorders.console import one_line

    try:
        click.echo(one_line(text, limit=1_000), err=True)
    except OSError:
        _drop(2)
    return code


def _with_hint(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        meant = " or ".join(map(repr, _options_meant(error)))
        text = error.message.rstrip(".") + (f". Did you mean {meant}?" if meant else "")
    else:
        text = UNBRACKETED.sub(r". \1", error.format_message()).rstrip(".")
    path = error.ctx.command_path if error.ctx else "rlm"
    end = "" if text.endswith("?") else "."
    return f"{text}{end} See '{path} --help'."


def _options_meant(error: click.NoSuchOption) -> list[str]:
    """Return the options that begin with what was typed, else the one that begins most like it."""
    from rlm._util.text import closest

    typed = error.option_name
    known = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    names = [name for each in known for name in (*each.opts, *each.secondary_opts)]
    names = [name for name in names if name.startswith("--")]
    if not typed.startswith("--") or len(typed) < SHORTEST_TYPED:
        return []
    if begun := [name for name in names if name.startswith(typed)]:
        return begun[:MOST_MEANT]
    beginnings = {name[: len(typed)]: name for name in reversed(names)}
    meant = closest(typed, names) or beginnings.get(closest(typed, beginnings) or "")
    return [meant] if meant else []


def unknown_price(models: Iterable[str]) -> click.ClickException:
    """Return the error for a budget in dollars when a price is unknown."""
    return click.ClickException(
        "--budget-usd or limits.max_cost_usd is set, but the price of "
        f"{' or '.join(models)} is unknown: "
        "pass --price IN,OUT (US dollars per million tokens) or use --max-tokens"
    )


def _failed(error: Exception, commands: click.Group, arguments: Sequence[str]) -> int:
    """Report an error: ours and the system's say what to do; others are bugs, and say so."""
    from rlm.errors import RLMError

    if isinstance(error, OSError):
        _drop_if_broken()
    if isinstance(error, RLMError):
        return say(f"Error: {error}")
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return say(f"Error: {where}{error.strerror}{_file_meant(error)}")
    if "--verbose" in arguments:
        from rlm.records.recorders.console import harmless

        click.echo(harmless("".join(traceback.format_exception(error))), err=True, nl=False)
        return FAILED
    what = f"{type(error).__name__}: {error}"
    more = f"in {_place_of(error)}"
    if _takes_verbose(commands, arguments):
        more = "run with --verbose for the traceback"
    return say(f"Error: {what} (unexpected: {more})")


def _takes_verbose(command: click.Command, arguments: Sequence[str]) -> bool:
    """Return whether the command that was run has the option `--verbose`."""
    for word in arguments:
        if isinstance(command, click.Group):
            command = command.commands.get(word, command)
    return any("--verbose" in each.opts for each in command.params)


def _place_of(error: Exception) -> str:
    """Return the file and line that raised an error, for a report."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _file_meant(error: OSError) -> str:
    """Return the existing file that was probably meant, as the end of a message."""
    from rlm._util.text import closest

    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return ""
    folder, name = os.path.split(error.filename)
    try:
        with os.scandir(folder or ".") as entries:
            names = [each.name for each in islice(entries, MOST_FILES)]
    except (OSError, ValueError):
        return ""
    meant = closest(name, names)
    return f"; did you mean {Path(folder, meant)}?" if meant else ""


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_if_broken() -> None:
    """Prevent a second error from Python's last flush if stdout cannot be written."""
    try:
        _flush()
    except OSError:
        _drop(1)


def _drop(number: int) -> None:
    """Redirect a broken stream to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
