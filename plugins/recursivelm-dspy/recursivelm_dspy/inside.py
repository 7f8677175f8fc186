"""Runs the cells of `SandboxInterpreter`. It is executed in a sandbox, as the text of a cell.

So it imports nothing of `rlm` or dspy and is Python 3.9. Cells have a namespace of their own: they
find the names that dspy promises, and none of the engine's.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

__all__ = ["Cells", "Submitted"]

_MAX_VALUE_CHARS = 1_000_000
"""How much of the value of a last expression is reported; dspy shows far less of it."""


class Submitted(BaseException):
    """Ends a cell where it calls SUBMIT."""


class Cells:
    """One namespace, the host's tools, and how a cell ended.

    `call_tool` asks the host, `report` submits one text for each cell, and `loaded` holds what the
    host has sent under private names.
    """

    def __init__(
        self,
        call_tool: Callable[..., Any],
        report: Callable[[str], None],
        loaded: dict[str, Any],
        max_chars: int,
    ) -> None:
        self._call_tool = call_tool
        self._report = report
        self._loaded = loaded
        self._max_chars = max_chars
        self._tools: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._fields: list[str] | None = None
        self._submitted: Any = None
        self._file = ""  # of the current cell: lines are counted only there
        self._cells = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}

    def run(
        self,
        code: str,
        tools: list[str],
        fields: list[str] | None,
        sent: dict[str, str],
        kept: list[str],
    ) -> None:
        """Run a cell and report how it ended.

        `sent` says under which private name each new variable was loaded; `kept` names texts that
        were sent earlier and get their value again.
        """
        for name, private in sent.items():
            self._values[name] = self._loaded.pop(private)
        self._bind(tools, fields, [*sent, *kept])
        self._submitted = None
        self._cells += 1
        self._file = f"<cell {self._cells}>"
        try:
            value = self._evaluate(code)
            outcome = {} if value is None else {"value": _plain(value, _MAX_VALUE_CHARS)}
        except Submitted:
            outcome = {}
        except SyntaxError as error:
            outcome = _failure("syntax", error, self._file)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is reported
            outcome = _failure("error", error, self._file)
        if self._submitted is not None:  # Even if the cell caught what SUBMIT raises.
            outcome = {"final": self._submitted}
        if outcome:
            self._report(json.dumps(outcome))

    def _bind(self, tools: list[str], fields: list[str] | None, variables: list[str]) -> None:
        for name in self._tools.keys() - set(tools):
            if self.namespace.get(name) is self._tools.pop(name):
                del self.namespace[name]
        for name in tools:
            if name not in self._tools:
                self._tools[name] = self._tool(name)
        self._fields = fields
        self.namespace.update(self._tools)
        self.namespace["SUBMIT"] = self._submit
        for name in variables:
            value = self._values[name]
            self.namespace[name] = value
            if not isinstance(value, str):  # A cell may change it, so it is sent every time.
                del self._values[name]

    def _evaluate(self, code: str) -> Any:
        """Run the statements of a cell, and return the value of a last expression."""
        tree = ast.parse(code, self._file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        options: Any = {"flags": ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, "dont_inherit": True}
        self._executed(compile(tree, self._file, "exec", **options))
        if not isinstance(last, ast.Expr):
            return None
        return self._executed(compile(ast.Expression(last.value), self._file, "eval", **options))

    def _executed(self, code: CodeType) -> Any:
        value = eval(code, self.namespace)  # noqa: S307 - it runs in a sandbox
        if not code.co_flags & inspect.CO_COROUTINE:
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(value)

    def _tool(self, name: str) -> Callable[..., Any]:
        def tool(*arguments: Any, **named: Any) -> Any:
            answer = self._call_tool(name, args=list(arguments), kwargs=named)
            if "error" in answer:
                raise _tool_error(answer["type"], answer["error"])
            return answer["value"]

        tool.__name__ = tool.__qualname__ = name
        return tool

    def _submit(self, *arguments: Any, **named: Any) -> None:
        """Submit the output fields, by position or by name, and end the cell."""
        fields = ["output"] if self._fields is None else self._fields
        usage = f"SUBMIT({', '.join(fields)})"
        if len(arguments) > len(fields):
            raise TypeError(f"{usage} takes {len(fields)} values, not {len(arguments)}")
        values = dict(zip(fields, arguments))  # noqa: B905 (not in 3.9)
        for name, value in named.items():
            if name not in fields:
                raise TypeError(f"{usage} has no field {name!r}")
            if name in values:
                raise TypeError(f"{usage} got {name!r} twice")
            values[name] = value
        missing = [name for name in fields if name not in values]
        if missing:
            raise TypeError(f"{usage} is missing {', '.join(missing)}")
        text = json.dumps(_plain(values))
        if len(text) > self._max_chars:
            raise ValueError(
                f"the output has {len(text):,} characters as JSON; at most {self._max_chars:,} are "
                "allowed: submit less"
            )
        self._submitted = json.loads(text)
        raise Submitted


def _plain(value: Any, max_chars: int | None = None) -> Any:
    """Return a value in JSON's types; anything else in it as text."""
    try:
        text = json.dumps(value, default=_jsonable)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(repr(value))
    if max_chars is None or len(text) <= max_chars:
        return json.loads(text)
    shown = value if isinstance(value, str) else repr(value)
    return f"{shown[:max_chars]}… ({len(shown):,} characters)"


def _jsonable(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    return repr(value)


def _failure(kind: str, error: BaseException, file: str) -> dict[str, Any]:
    """Describe an exception: its type, its message, and the line of the cell it came from."""
    message, line, trace = str(error), None, error.__traceback__
    if kind == "syntax" and isinstance(error, SyntaxError):
        message, line, trace = error.msg or message, error.lineno, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return {kind: {"type": type(error).__name__, "message": message, "line": line}}


def _tool_error(kind: str, message: str) -> Exception:
    """Return the exception of a tool: of the same type, if Python itself has that type."""
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(message)
        except TypeError:
            pass
    return RuntimeError(f"{kind}: {message}")
