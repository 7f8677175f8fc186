"""IPython's InteractiveShell, changed so that it does not touch the process or its files.

It writes no history and no profile, starts no thread and no program, shows everything as text, and
returns errors instead of printing them.
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
    # Containers are shown on one line, as in the plain shell.
    "PlainTextFormatter": {"max_width": _WIDE},
}


def make_shell(main: ModuleType) -> Any:
    """Return the only InteractiveShell of this process; its user namespace is that of `main`."""
    base = _attribute("interactiveshell", "InteractiveShell")
    hook = type("TextHook", (_attribute("displayhook", "DisplayHook"),), dict(_DISPLAY_HOOK))
    publisher = _attribute("displaypub", "DisplayPublisher")
    shell: Any = type("Shell", (base,), dict(_SHELL))
    shell = shell.instance(
        config=importlib.import_module("traitlets.config").Config(_CONFIG),
        display_pub_class=type("TextPublisher", (publisher,), dict(_PUBLISHER)),
        displayhook_class=hook,
        profile_dir=_attribute("profiledir", "ProfileDir")(),  # In memory, so without files.
        user_module=main,
    )
    shell.builtin_trap.auto_builtins.clear()  # `exit` and `quit` stay as they are,
    vars(builtins)["get_ipython"] = shell.get_ipython  # and this is always available.
    shell.ast_transformers.append(_AsyncForms())
    _show_as_text(shell)
    _load_magics(shell)
    _warm_up(shell)
    return shell


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"IPython.core.{module}"), name)


class _AsyncForms:
    """Rewrites cells that IPython compiles itself, such as those inside magics."""

    def visit(self, tree: ast.Module) -> ast.Module:
        return compiling.use_async_forms(tree)


# -- text -----------------------------------------------------------------------------------------


def _show_as_text(shell: Any) -> None:
    page = importlib.import_module("IPython.core.page")
    shell.set_hook("show_in_pager", page.as_hook(page.display_page), 0)
    shell.display_formatter.active_types = ["text/plain"]
    formatter = shell.display_formatter.formatters["text/plain"]
    for kind in (type, object):  # As in the plain shell: `<class 'int'>`.
        formatter.for_type(kind, lambda value, printer, cycle: printer.text(repr(value)))
    formatter.for_type(_attribute("display", "DisplayObject"), _print_display_object)


def _print_display_object(value: Any, printer: Any, cycle: bool) -> None:
    """Print the source of HTML, Markdown and the like, and a note for pictures and sounds."""
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
    """Format as IPython does, but try no other formats for objects that only have text."""
    formatter = hook.shell.display_formatter
    if type(value) not in _ONLY_TEXT:
        formats: tuple[dict[str, Any], dict[str, Any]] = formatter.format(value)
        return formats
    is_long = type(value) is str and len(value) > ECHO_CHARS
    text = formatter.formatters["text/plain"](value[:ECHO_CHARS] if is_long else value)
    return ({} if text is None else {"text/plain": f"{text} ..." if is_long else text}), {}


def _is_quiet(hook: Any) -> bool:
    """Return whether the cell ends in a semicolon; tokenizing would take longer than the cell."""
    cell = hook.shell.history_manager.input_hist_parsed[-1]
    return ";" in cell[cell.rfind("\n") :] and bool(hook.semicolon_at_end_of_expression(cell))


def _publish(publisher: Any, data: dict[str, Any], *_: Any, **__: Any) -> None:
    """Print what `display()` shows."""
    text = data.get("text/plain")
    if text is None:
        text = f"<{', '.join(map(str, data)) or 'nothing'}: not shown>"
    sys.stdout.write(f"{text}\n")


def _nothing(*_: Any, **__: Any) -> None:
    """Disable what would touch the terminal, the disk or the user's names."""


_DISPLAY_HOOK: dict[str, Any] = {
    "compute_format_data": _compute_format_data,
    "finish_displayhook": _nothing,
    "log_output": _nothing,  # It would keep everything ever shown.
    "quiet": _is_quiet,
    "start_displayhook": _nothing,
    "write_format_data": _write_format_data,
    "write_output_prompt": _nothing,
}
_PUBLISHER: dict[str, Any] = {"clear_output": _nothing, "publish": _publish}


# -- programs and errors --------------------------------------------------------------------------


def _refuse_program(shell: Any, command: str, *_: Any, **__: Any) -> NoReturn:
    words = (
        f"programs can't be started here, so {command.strip()!r} did not run; use Python instead"
    )
    raise PermissionError(errno.EPERM, words)


def _load_magics(shell: Any) -> None:
    """Load all magics now: otherwise each is read from disk, in a cell's time, when first used."""
    for kind, magics in shell.magics_manager.lsmagic().items():
        for name in list(magics):
            shell.find_magic(name, kind)

    def refuse(line: str, cell: str = "") -> NoReturn:
        _refuse_program(shell, f"{line}\n{cell}"[:80])

    for name in _RUN_PROGRAMS:
        shell.register_magic_function(refuse, "cell", name)


def _warm_up(shell: Any) -> None:
    """Run some cells that leave no trace, to load what IPython loads when first used."""
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in ("len?", "%%capture\nNone", "%timeit -n1 -r1 None"):
            shell.run_cell(cell).raise_error()


def _take_error(shell: Any, exc_tuple: Any = None, *_: Any, **__: Any) -> None:
    """Record an error that IPython would print as the cell's error; the first one counts."""
    error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
    if error is None:
        sys.stderr.write("No traceback available to show.\n")
    elif shell.shown_error is None:
        shell.shown_error = error


@contextlib.contextmanager
def _no_tee(shell: Any, channel: str) -> Generator[None, None, None]:
    """Keep no second, unlimited copy of the output of cells inside magics."""
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
