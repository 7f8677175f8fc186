"""dspy's code interpreter in the engine's sandboxes."""

import json
import keyword
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy.utils.callback import BaseCallback, with_callbacks
from pydantic_core import PydanticSerializationError, to_jsonable_python

from recursivelm_dspy.tools import ToolCalls, active_interpreters, invoked
from rlm.context import store_context
from rlm.errors import ConfigError, RLMError, SessionError, SessionRestored
from rlm.portal import existing_portal, portal
from rlm.protocols import BaseEnvironment, BaseSession, ContextSource, with_defaults
from rlm.results import CellResult
from rlm.wiring.registry import make_environment
from rlm.worker import tagged
from rlm.worker.bounds import MAX_ANSWER_CHARS

__all__ = ["SandboxInterpreter", "SandboxInterpreterFactory"]

EXECUTION_SECONDS = 300.0
SETUP_SECONDS = 60.0
MAX_OUTPUT_CHARS = MAX_ANSWER_CHARS // 2
"""Of SUBMIT, as JSON. The engine's own limit is for the text that carries it, with its escapes."""

INSIDE = Path(__file__).with_name("inside.py")
START = f"_rlm_cells = Cells(call_tool, FINAL, globals(), {MAX_OUTPUT_CHARS})\n"
RESERVED = frozenset({"SUBMIT", "__builtins__"})

T = TypeVar("T")


class SandboxInterpreter:
    """Execute Python in one of the engine's sandboxes; implements dspy's `CodeInterpreter`.

        dspy.configure(interpreter_factory=SandboxInterpreter)
        dspy.RLM("context, question -> answer", interpreter_factory=SandboxInterpreter)

    `environment` names the sandbox, and `environment_options` are its options; `factory` sets them
    for dspy. `execution_timeout` is the number of seconds that code may run, without the time its
    tools take; after that, the cell is stopped and the variables stay. Threads may share an
    interpreter: one executes at a time, and the others wait.
    """

    execution_instructions = (
        "Code runs as Python in a sandbox without network and without files of the host. State, "
        "imports and functions persist. The standard library is available, with threads and with "
        "`await` at the top level. Host tools and SUBMIT are global functions; tools need no "
        "`await`. A cell that runs for too long is stopped, and its variables stay."
    )

    def __init__(
        self,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        *,
        environment: str = "auto",
        environment_options: Mapping[str, Any] | None = None,
        execution_timeout: float = EXECUTION_SECONDS,
        callbacks: list[BaseCallback] | None = None,
    ) -> None:
        if not execution_timeout > 0:
            raise ConfigError(f"execution_timeout must be greater than 0, not {execution_timeout}")
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self.execution_timeout = execution_timeout
        self.callbacks = list(callbacks or [])
        _check_names("tool", self.tools, RESERVED)
        self._environment = with_defaults(make_environment(environment, environment_options))
        # The interpreter can be forgotten while the environment still holds the calls of a session.
        itself = weakref.ref(self)
        self._calls = ToolCalls(lambda name, args, kwargs: _tool_of(itself(), name, args, kwargs))
        self._calls.on_interrupt = lambda: _interrupt(itself())
        self._token = object()
        self._session: BaseSession | None = None
        self._sent: dict[str, str] = {}  # the texts that the sandbox has
        self._private: dict[str, str] = {}
        self._lock = threading.Lock()
        self._end_reason = ""
        self._finalizer = weakref.finalize(self, _close_later, self._environment)

    @classmethod
    def factory(cls, **options: Any) -> "SandboxInterpreterFactory":
        """Return what dspy calls for a new interpreter, such as `factory(environment="docker")`."""
        return SandboxInterpreterFactory(options)

    # -- dspy's protocol ----------------------------------------------------------------------

    @with_callbacks
    def start(self) -> None:
        """Open the sandbox, unless it is open; `execute` does it too."""
        self._check_caller()
        with self._lock:
            self._opened()

    @with_callbacks
    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell.

        Returns FinalOutput after SUBMIT, else what was printed, or the value of a last expression,
        or both as text; None if there is neither. What code can repair is a CodeExecutionError or a
        SyntaxError, anything else a CodeInterpreterError, which ends the interpreter.
        """
        self._check_caller()
        if not isinstance(code, str):
            raise CodeInterpreterError(f"code must be a str, not {type(code).__name__}")
        with self._lock:
            given = dict(variables or {})
            tools = dict(self.tools)
            _check_names("tool", tools, RESERVED)
            _check_names("variable", given, RESERVED | tools.keys())
            fields = _field_names(self.output_fields)
            session = self._opened()
            self._calls.begin_cell(self._token)
            result = self._guarded(lambda: self._run(session, code, list(tools), fields, given))
            if self._calls.interrupted is not None:
                raise self._calls.interrupted
        return _outcome(result)

    @with_callbacks
    def invoke_tool(self, tool_name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a tool as a cell does."""
        if tool_name not in self.tools:
            raise CodeInterpreterError(f"unknown tool {tool_name!r}")
        return invoked(self.tools[tool_name], args, kwargs)

    @with_callbacks
    def shutdown(self) -> None:
        """End the sandbox, and a cell that runs in it; may be called twice."""
        self._end_reason = self._end_reason or "it was shut down"
        if self._finalizer.detach() is not None and existing_portal() is not None:
            portal().call(self._environment.close)

    def __enter__(self) -> "SandboxInterpreter":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        return self.execute(code, variables)

    # -- the session --------------------------------------------------------------------------

    def _check_caller(self) -> None:
        if self._token in active_interpreters.get():
            raise CodeInterpreterError(
                "a tool can't use the interpreter that waits for it: create another one"
            )

    def _opened(self) -> BaseSession:
        if self._end_reason:
            raise CodeInterpreterError(
                f"this interpreter has ended ({self._end_reason}): create a new one"
            )
        if self._session is None:
            self._session = self._guarded(self._open)
        return self._session

    async def _open(self) -> BaseSession:
        session = await self._environment.open(self._calls, {})
        code = INSIDE.read_text("utf-8") + START
        result = await session.execute(code, timeout_seconds=SETUP_SECONDS)
        if result.error is not None:
            raise SessionError(f"the sandbox could not be set up: {result.error.message}")
        return session

    async def _run(
        self,
        session: BaseSession,
        code: str,
        tools: list[str],
        fields: list[str] | None,
        variables: dict[str, Any],
    ) -> CellResult:
        kept = [n for n, value in variables.items() if n in self._sent and self._sent[n] is value]
        sent: dict[str, str] = {}
        for name, value in variables.items():
            if name not in kept:
                self._sent.pop(name, None)
                sent[name] = self._private.setdefault(name, f"_rlm_value_{len(self._private)}")
                await session.load(sent[name], _source(name, value))
        cell = f"_rlm_cells.run({code!r}, {tools!r}, {fields!r}, {sent!r}, {kept!r})"
        result = await session.execute(cell, timeout_seconds=self.execution_timeout)
        self._sent.update((name, variables[name]) for name in sent if type(variables[name]) is str)
        return result

    def _guarded(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for work on the event loop; Ctrl-C stops the cell, and its variables stay."""
        pressed: list[bool] = []

        def interrupt() -> None:
            pressed.append(True)
            if self._session is not None:
                portal().close_later(self._session.interrupt)

        try:
            done = portal().call(work, on_interrupt=interrupt)
        except SessionRestored as error:
            self._sent.clear()
            raise CodeExecutionError(f"the cell was killed: {error}") from error
        except RLMError as error:
            self._end_reason = self._end_reason or str(error)
            raise CodeInterpreterError(f"the sandbox has ended: {error}") from error
        except KeyboardInterrupt:
            self._end_reason = "it was interrupted"
            raise
        if pressed:
            raise KeyboardInterrupt
        return done


class SandboxInterpreterFactory:
    """Makes interpreters with the same options; can be copied and pickled with a module."""

    execution_instructions = SandboxInterpreter.execution_instructions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)

    def __call__(self) -> SandboxInterpreter:
        return SandboxInterpreter(**self.options)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"SandboxInterpreter.factory({given})"


class _Encoded:
    """A value on its way into the sandbox; implements `rlm.protocols.ContextSource`."""

    def __init__(self, text: str) -> None:
        self.kind: Literal["json", "tagged_json"] = "tagged_json" if '"$' in text else "json"
        self._data = memoryview(text.encode("utf-8", "surrogatepass"))

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        for start in range(0, len(self._data), chunk_bytes):
            yield bytes(self._data[start : start + chunk_bytes])


def _source(name: str, value: Any) -> ContextSource:
    """Store a value: data keep their types, and anything else gets the form it has in JSON."""
    if type(value) is str:
        return store_context(value)
    try:
        return _Encoded(tagged.dumps(value))
    except TypeError:
        pass
    try:
        return _Encoded(tagged.dumps(to_jsonable_python(value)))
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise CodeInterpreterError(
            f"the variable {name!r}, a {type(value).__name__}, has no JSON form: {error}"
        ) from error


def _outcome(result: CellResult) -> Any:
    """Return the end of a cell as dspy expects it, or raise it."""
    if result.error is not None:
        raise CodeExecutionError(f"{result.error.type}: {result.error.message}")
    told: dict[str, Any] = {}
    if result.submission is not None:
        try:
            told = json.loads(result.submission.text)
        except (ValueError, RecursionError) as error:
            raise CodeExecutionError(f"the cell submitted invalid JSON: {error}") from error
    if not isinstance(told, dict):
        raise CodeExecutionError("the cell submitted something that SUBMIT does not")
    if "final" in told:
        return FinalOutput(told["final"])
    if isinstance(problem := told.get("syntax") or told.get("error"), dict):
        where = f" (line {problem['line']})" if problem.get("line") else ""
        message = f"{problem.get('message', '')}{where}"
        if "syntax" in told:
            raise SyntaxError(message)
        raise CodeExecutionError(f"{problem.get('type', 'Error')}: {message}")
    printed = (result.stdout + result.stderr).rstrip("\n")
    if "value" not in told:
        return printed or None
    return f"{printed}\n{told['value']}" if printed else told["value"]


def _check_names(kind: str, names: Mapping[str, Any], reserved: frozenset[str] | set[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise CodeInterpreterError(f"a {kind} needs a Python name, and {name!r} is not one")
        if name in reserved:
            raise CodeInterpreterError(f"a {kind} can't be called {name!r}: the name is taken")


def _field_names(fields: list[dict[str, Any]] | None) -> list[str] | None:
    if not fields:
        return None
    names = {field["name"]: None for field in fields}
    _check_names("field", names, frozenset())
    return list(names)


def _tool_of(
    interpreter: SandboxInterpreter | None, name: str, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    if interpreter is None:
        raise CodeInterpreterError("the interpreter has ended")
    return interpreter.invoke_tool(name, args, kwargs)


async def _interrupt(interpreter: SandboxInterpreter | None) -> None:
    if interpreter is not None and interpreter._session is not None:
        await interpreter._session.interrupt()


def _close_later(environment: BaseEnvironment) -> None:
    """Close an interpreter that was forgotten."""
    if (found := existing_portal()) is not None:
        found.close_later(environment.close)
