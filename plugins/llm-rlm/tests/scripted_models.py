"""Models of llm that answer from a function and record their requests."""

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import llm

__all__ = ["Said", "cell", "plugin"]

SUB_CALL = "You are a sub-LLM"


def cell(code: str, prose: str = "") -> str:
    """Return a reply that runs some code."""
    return f"{prose}\n```repl\n{code}\n```"


class Said:
    """The requests of all models of a test, and their answers.

    `steps` are the replies to root requests, of which the last is repeated; `to_calls` answers
    sub-calls.
    """

    def __init__(self) -> None:
        self.steps: list[str] = [cell("FINAL('nothing was scripted')")]
        self.to_calls: Callable[[str], str] = lambda _: "a reply"
        self.asked: list[tuple[str, str]] = []
        self.keys: list[str | None] = []
        self.options: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.usage = {"input": 500, "output": 10}
        self._root = 0
        self._lock = threading.Lock()

    @property
    def text(self) -> str:
        """Return everything that was sent to any model."""
        return "\n".join(text for _, text in self.asked)

    def answer(self, model_id: str, prompt: Any, response: Any, key: str | None) -> str:
        text = "\n".join(
            part.text
            for message in prompt.messages
            for part in message.parts
            if hasattr(part, "text")
        )
        with self._lock:
            self.asked.append((model_id, text))
            self.keys.append(key)
            self.options.append({name: v for name, v in prompt.options if v is not None})
            response.set_usage(**self.usage)
            if self.failure is not None:
                raise self.failure
            if SUB_CALL not in text:
                self._root += 1
                return self.steps[min(self._root, len(self.steps)) - 1]
        return self.to_calls(prompt.prompt)


class _Options(llm.Options):
    temperature: float | None = None


def plugin(said: Said) -> Any:
    """Return a plugin with `scripted` (async too), `small` (blocking) and `locked` (with a key)."""

    class Scripted(llm.Model):
        can_stream = True
        Options = _Options  # type: ignore[assignment]

        def __init__(self, model_id: str) -> None:
            self.model_id = model_id

        def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any
        ) -> Iterator[str]:
            yield said.answer(self.model_id, prompt, response, None)

    class AsyncScripted(llm.AsyncModel):
        can_stream = True
        Options = _Options  # type: ignore[assignment]

        def __init__(self, model_id: str) -> None:
            self.model_id = model_id

        async def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any
        ) -> AsyncGenerator[str, None]:
            yield said.answer(self.model_id, prompt, response, None)

    class Locked(llm.KeyModel):
        model_id = "locked"
        needs_key = "locked-provider"

        def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None
        ) -> Iterator[str]:
            yield said.answer(self.model_id, prompt, response, key)

    class Plugin:
        __name__ = "llm-rlm-tests"

        @llm.hookimpl
        def register_models(self, register: Any) -> None:
            register(Scripted("scripted"), AsyncScripted("scripted"), aliases=("s",))
            register(Scripted("small"))
            register(Locked())

    return Plugin()
