"""`RLMToolbox`: sandboxed Python over a context, as tools for models that call tools themselves.

The context is only in the sandbox, not in prompts and not in llm's logs database.
"""

import asyncio
import inspect
import json
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import llm

from llm_rlm.common import cut, replace_surrogates

if TYPE_CHECKING:
    from llm_rlm.interpreter import Interpreter, Outcome
    from rlm.results import CellResult

__all__ = ["RLMToolbox", "ToolboxError"]

MAX_OUTPUT_CHARS = 100_000
NOT_STORED = "not_stored_chars"
PRINT_LESS = "; print less"
SANDBOXES = ("auto", "local", "wasm")
T = TypeVar("T")
Tool = TypeVar("Tool", bound=Callable[..., Any])


class ToolboxError(click.ClickException, ValueError):
    """An error in the setup of a toolbox, which `llm` shows in one line."""


def _dedented(tool: Tool) -> Tool:
    """Remove the indentation from a tool's docstring, which is its description for models."""
    tool.__doc__ = inspect.getdoc(tool)
    return tool


class RLMToolbox(llm.Toolbox):
    """Tools that run Python, with calls to models, in a sandbox that holds a large context."""

    _blocked: Any = (*llm.Toolbox._blocked, "close")
    _is_awaited = False

    def __init__(
        self,
        context: Any = None,
        context_file: str | None = None,
        sub_model: str | None = None,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        execution_timeout_ms: int = 30_000,
        sandbox: str = "auto",
    ) -> None:
        if isinstance(context, dict) and list(context) == [NOT_STORED]:
            raise ToolboxError(
                "the context of the earlier toolbox was not written to the logs: pass it again, "
                "with -T 'RLMToolbox({\"context_file\": …})'"
            )
        if context is not None and context_file is not None:
            raise ToolboxError("pass context or context_file, not both")
        if context is not None:  # llm writes these arguments to its logs
            vars(self)["_config"] = {**self._config, "context": {NOT_STORED: len(str(context))}}
        self._limits = _checked(max_output_chars, execution_timeout_ms)
        if sandbox not in SANDBOXES:
            raise ToolboxError(f"sandbox must be one of {', '.join(SANDBOXES)}, not {sandbox!r}")
        self._sandbox = _checked_sandbox(sandbox)
        self._sub_model = _known_model(sub_model)
        self._context = _stored(context, context_file)
        self._has_context = context is not None or context_file is not None
        self._interpreter: Interpreter | None = None
        self._answer: str | None = None

    @property
    def answer(self) -> str | None:
        """The answer that was last submitted, or None."""
        return self._answer

    # -- the tools ---------------------------------------------------------------------------

    @_dedented
    def execute_python(self, code: str, context: str = "") -> str:
        """Run Python code in a sandbox and return what it prints. Variables persist between calls.

        The variable `context` holds the user's data, which may be far too large to print: look at
        type(context), len(context) and slices of it, search it with re, and print only what you
        need. `await llm_query(prompt=...)` asks a language model and returns its reply;
        `await llm_batch(prompts=[...])` asks many at once and returns the replies in order: use
        them to read pieces of the context that code alone cannot judge. There are no files, no
        network and only the standard library. If the user gave no data, your first call may give a
        text as `context`.
        """
        if not isinstance(code, str):
            return "code must be a string of Python code."
        if context in ("", None):
            return self._called(lambda one: one.run(code), self._observed)
        if self._has_context:
            return "The context is already set: it is the variable `context`. Call without it."
        self._has_context, self._context = True, _stored(context, None)
        return self._called(lambda one: one.run(code, self._context), self._observed)

    @_dedented
    def submit_answer(self, answer: str = "", variable_name: str = "") -> str:
        """Submit the final answer when you are done: a text, or the name of a variable holding it.

        Call it once, at the end, with either `answer` or `variable_name`.
        """
        has_answer, has_name = (each not in ("", None) for each in (answer, variable_name))
        if has_answer == has_name:
            return "Give either answer or variable_name, not both."
        if has_answer:  # Models ignore the type: a number is an answer too.
            return self._submitted(answer if isinstance(answer, str) else json.dumps(answer))
        if not isinstance(variable_name, str):
            return "variable_name must be the name of a variable, as a string."

        def found(text: str | None) -> str:
            if text is None:
                return f"No variable is named {variable_name!r}; set it with execute_python first."
            return self._submitted(text)

        return self._called(lambda one: one.fetch(variable_name), found)

    # -- opening and closing -----------------------------------------------------------------

    def prepare(self) -> None:
        """Open the sandbox, if it is not open. llm calls this once for each tool."""
        self._is_awaited = False
        self._called(lambda one: one.open(), lambda _: "")

    async def prepare_async(self) -> None:
        """Open the sandbox from an event loop; from then on the tools return awaitables."""
        self._is_awaited = True
        await cast("Awaitable[str]", self._called(lambda one: one.open(), lambda _: ""))

    def close(self) -> None:
        """Close the sandbox; it also closes with this object and with the program."""
        if self._interpreter is not None:
            from rlm.portal import portal

            portal().call(self._interpreter.close)

    def __enter__(self) -> "RLMToolbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- internals ---------------------------------------------------------------------------

    def _called(
        self,
        work: "Callable[[Interpreter], Coroutine[Any, Any, T]]",
        describe: Callable[[T], str],
    ) -> str:
        """Work in the sandbox and describe the result; in llm's async chains, as an awaitable."""
        from rlm.errors import RLMError
        from rlm.portal import portal

        async def whole() -> str:
            try:
                return replace_surrogates(describe(await work(self._opened())))
            except RLMError as error:
                raise ToolboxError(str(error)) from error

        if self._is_awaited and _in_a_loop():
            started = asyncio.run_coroutine_threadsafe(whole(), portal().loop)
            return cast("str", asyncio.wrap_future(started))
        return portal().call(whole)

    def _opened(self) -> "Interpreter":
        """Return the interpreter; call this only on the engine's thread."""
        if self._interpreter is None:
            from llm_rlm.interpreter import Interpreter, ModelHost

            host = ModelHost(self._sub_model)
            seconds = self._limits[1] / 1_000
            self._interpreter = Interpreter(self._sandbox, self._context, host, seconds)
            weakref.finalize(self, _close_later, self._interpreter)
        return self._interpreter

    def _submitted(self, text: str) -> str:
        self._answer = text
        shown = cut(text, self._limits[0])
        return f"The answer is submitted. Reply with it now, and call no more tools:\n\n{shown}"

    def _observed(self, outcome: "Outcome") -> str:
        """Return what the model sees of some code: its output, its exception, or its answer."""
        if outcome.result is None:
            return f"Error: {outcome.problem}"
        result = outcome.result
        if result.submission is not None:
            return self._submitted(result.submission.text)
        most = self._limits[0]
        parts = [
            cut(result.stdout, most, written_chars=result.stdout_chars, hint=PRINT_LESS),
            cut(result.stderr, most // 4, written_chars=result.stderr_chars, hint=PRINT_LESS),
        ]
        if result.error is not None:
            parts.append(cut(_failure(result), most // 2))
        shown = "\n".join(part.rstrip("\n") for part in parts if part)
        return shown or f"(no output{_variables(result)})"


def _failure(result: "CellResult") -> str:
    error = result.error
    assert error is not None
    line = f"{error.type}: {error.message}"
    return error.traceback if line in error.traceback else f"{error.traceback}\n{line}".lstrip()


def _variables(result: "CellResult") -> str:
    changed = {**result.new_variables, **result.changed_variables}
    return "; set: " + ", ".join(sorted(changed)[:20]) if changed else "; use print()"


def _checked(max_output_chars: Any, execution_timeout_ms: Any) -> tuple[int, int]:
    given = {"max_output_chars": max_output_chars, "execution_timeout_ms": execution_timeout_ms}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ToolboxError(f"{name} must be a positive integer, not {value!r}")
    return max_output_chars, execution_timeout_ms


def _known_model(name: str | None) -> str:
    """Return the id of the model for sub-calls, unwrapped, so that sub-calls start no runs."""
    wanted = (name or llm.get_default_model()).removeprefix("rlm/")
    try:
        found: str = llm.get_model(wanted).model_id
    except llm.UnknownModelError as error:
        raise ToolboxError(f"sub_model: llm has no model {wanted!r}; see `llm models`") from error
    return found


def _checked_sandbox(sandbox: str) -> str:
    """Raise an error now if the sandbox cannot be used, not after a model has been paid.

    Off Linux, where there is no `local`, that means `auto`.
    """
    try:
        from rlm.environments.auto import meant_by_local
        from rlm.wiring.registry import make_environment
    except ImportError as error:
        from llm_rlm.common import MISSING_ENGINE

        raise ToolboxError(MISSING_ENGINE) from error
    sandbox = meant_by_local() if sandbox == "local" else sandbox
    environment: Any = make_environment(sandbox, {"warm_sessions": 0})
    if (problem := environment.problem()) is not None:
        raise ToolboxError(problem.replace("environment=", "sandbox="))
    return sandbox


def _stored(context: Any, context_file: str | None) -> Any:
    """Return the context in the form that sessions load; they read the files."""
    from rlm.context import store_context
    from rlm.errors import ConfigError

    if context_file is not None and (not isinstance(context_file, str) or not context_file):
        raise ToolboxError(f"context_file must be a path, not {context_file!r}")
    value = Path(context_file).expanduser() if context_file is not None else context
    try:
        return store_context(value)
    except ConfigError as error:
        raise ToolboxError(str(error)) from error


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _close_later(interpreter: "Interpreter") -> None:
    from rlm.portal import existing_portal

    if (found := existing_portal()) is not None:
        found.close_later(interpreter.close)
