"""IPython's own InteractiveShell, made so that it leaves the process and its files alone.

What is replaced in it, and nothing else: it writes no history and no profile, starts no thread and
no program, shows everything as plain text, and hands errors over instead of printing them.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib
import io
import sys

from . import compiling

__all__ = ["ECHO_CHARS", "make_shell"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Generator
    from types import ModuleType
    from typing import Any, NoReturn

ECHO_CHARS = 20_000
_WIDE = 1_000_000
_ONLY_TEXT = frozenset({str, int, float, bool, bytes, list, dict, tuple, set})
_RUN_PROGRAMS = ("bash", "perl", "pypy", "python", "python2", "python3", "ruby", "script", "sh")
_CONFIG = {
    "HistoryManager": {"enabled": False, "hist_file": ":memory:"},
    "InteractiveShell": {"banner1": "", "colors": "nocolor", "xmode": "Plain"},
    # Containers are on one line, as everywhere else.
    "PlainTextFormatter": {"max_width": _WIDE},
}


def make_shell(main: ModuleType) -> Any:
    """The one InteractiveShell of this process, whose user namespace is that of `main`."""
    base = _attribute("interactiveshell", "InteractiveShell")
    hook = type("TextHook", (_attribute("displayhook", "DisplayHook"),), dict(_DISPLAY_HOOK))
    publisher = _attribute("displaypub", "DisplayPublisher")
    shell: Any = type("Shell", (base,), dict(_SHELL))
    shell = shell.instance(
        config=importlib.import_module("traitlets.config").Config(_CONFIG),
        display_pub_class=type("TextPublisher", (publisher,), dict(_PUBLISHER)),
        displayhook_class=hook,
        profile_dir=_attribute("profiledir", "ProfileDir")(),  # Without a place, so without files.
        user_module=main,
    )
    shell.builtin_trap.auto_builtins.clear()  # `exit` and `quit` stay what they are,
    vars(builtins)["get_ipython"] = shell.get_ipython  # and this is always there.
    shell.ast_transformers.append(_AsyncForms())
    _show_as_text(shell)
    _load_magics(shell)
    _warm_up(shell)
    return shell


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"IPython.core.{module}"), name)


class _AsyncForms:
    """For cells that IPython compiles itself, as those inside of magics."""

    def visit(self, tree: ast.Module) -> ast.Module:
        return compiling.use_async_forms(tree)


# -- text -----------------------------------------------------------------------------------------


def _show_as_text(shell: Any) -> None:
    page = importlib.import_module("IPython.core.page")
    shell.set_hook("show_in_pager", page.as_hook(page.display_page), 0)
    shell.display_formatter.active_types = ["text/plain"]
    formatter = shell.display_formatter.formatters["text/plain"]
    for kind in (type, object):  # As everywhere else: `<class 'int'>`.
        formatter.for_type(kind, lambda value, printer, cycle: printer.text(repr(value)))
    formatter.for_type(_attribute("display", "DisplayObject"), _print_display_object)


def _print_display_object(value: Any, printer: Any, cycle: bool) -> None:
    """HTML, Markdown and their like as what they are made of; a note for pictures and sounds."""
    data = value.data
    if isinstance(data, str):
        printer.text(data)
    elif isinstance(data, (bytes, bytearray)):
        printer.text(f"<{type(value).__name__}: {len(data):,} bytes, not shown>")
    else:
        printer.text(f"<{type(value).__name__}: {data!r}>")


def _write_format_data(hook: Any, data: dict[str, Any], metadata: Any = None) -> None:
    text = data.get("text/plain")
    if text is not None:
        short = text if len(text) <= ECHO_CHARS else text[:ECHO_CHARS] + " ..."
        sys.stdout.write(short + "\n")


def _compute_format_data(hook: Any, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """As IPython does, but what has nothing but a text is not asked for anything else."""
    formatter = hook.shell.display_formatter
    if type(value) not in _ONLY_TEXT:
        formats: tuple[dict[str, Any], dict[str, Any]] = formatter.format(value)
        return formats
    is_long = type(value) is str and len(value) > ECHO_CHARS
    text = formatter.formatters["text/plain"](value[:ECHO_CHARS] if is_long else value)
    return ({} if text is None else {"text/plain": f"{text} ..." if is_long else text}), {}


def _is_quiet(hook: Any) -> bool:
    """Whether the cell ends in a semicolon; finding out by tokens takes longer than most cells."""
    cell = hook.shell.history_manager.input_hist_parsed[-1]
    return ";" in cell[cell.rfind("\n") :] and bool(hook.semicolon_at_end_of_expression(cell))


def _publish(publisher: Any, data: dict[str, Any], *_: Any, **__: Any) -> None:
    """What `display()` shows."""
    text = data.get("text/plain")
    if text is None:
        text = f"<{', '.join(map(str, data)) or 'nothing'}: not shown>"
    sys.stdout.write(f"{text}\n")


def _nothing(*_: Any, **__: Any) -> None:
    """What would otherwise touch the terminal, the disk or the user's names."""


_DISPLAY_HOOK: dict[str, Any] = {
    "compute_format_data": _compute_format_data,
    "finish_displayhook": _nothing,
    "log_output": _nothing,  # It keeps everything that was ever shown.
    "quiet": _is_quiet,
    "start_displayhook": _nothing,
    "write_format_data": _write_format_data,
    "write_output_prompt": _nothing,
}
_PUBLISHER: dict[str, Any] = {"clear_output": _nothing, "publish": _publish}


# -- programs and errors --------------------------------------------------------------------------


def _refuse_program(shell: Any, command: str, *_: Any, **__: Any) -> NoReturn:
    words = f"no program can be started here, so {command.strip()!r} did not run; use Python for it"
    raise PermissionError(errno.EPERM, words)


def _load_magics(shell: Any) -> None:
    """All of them: each is read from disk when it is first looked for, and time counts then."""
    for kind, magics in shell.magics_manager.lsmagic().items():
        for name in list(magics):
            shell.find_magic(name, kind)

    def refuse(line: str, cell: str = "") -> NoReturn:
        _refuse_program(shell, f"{line}\n{cell}"[:80])

    for name in _RUN_PROGRAMS:
        shell.register_magic_function(refuse, "cell", name)


def _warm_up(shell: Any) -> None:
    """What is loaded when it is first used, loaded now; no cell of these leaves a trace."""
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in ("len?", "%%capture\nNone", "%timeit -n1 -r1 None"):
            shell.run_cell(cell).raise_error()


def _take_error(shell: Any, exc_tuple: Any = None, *_: Any, **__: Any) -> None:
    """What IPython would print is the error of the cell; the first one counts."""
    error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
    if error is None:
        sys.stderr.write("No traceback available to show.\n")
    elif shell.shown_error is None:
        shell.shown_error = error


@contextlib.contextmanager
def _no_tee(shell: Any, channel: str) -> Generator[None, None, None]:
    """Otherwise output of cells inside of magics would be kept a second time, without a limit."""
    yield


_SHELL: dict[str, Any] = {
    "_tee": _no_tee,
    "getoutput": _refuse_program,
    "init_completer": _nothing,
    "init_ipython_dir": _nothing,
    "init_user_ns": _nothing,
    "init_virtualenv": _nothing,
    "shown_error": None,
    "showindentationerror": _take_error,
    "showsyntaxerror": _take_error,
    "showtraceback": _take_error,
    "system": _refuse_program,
}
