"""A plugin for the real `llm` package: models that note what they are given."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

__all__ = ["Notes", "plugin"]


class Notes:
    """What the models saw, and what holds them up."""

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []
        self.threads: set[str] = set()
        self.release = threading.Event()
        self.closed = threading.Event()

    def take(self, prompt: Any, conversation: Any) -> None:
        self.threads.add(threading.current_thread().name)
        history = [
            (
                before.prompt.prompt,
                len(before.prompt.attachments),
                before.text_or_raise(),
                [call.name for call in before.tool_calls_or_raise()],
            )
            for before in (conversation.responses if conversation else ())
        ]
        self.prompts.append(
            {
                "messages": [message.to_dict() for message in prompt.messages],
                "prompt": prompt.prompt,
                "system": prompt.system,
                "schema": prompt.schema,
                "tools": [tool.name for tool in prompt.tools],
                "results": [(each.name, each.output) for each in prompt.tool_results],
                "options": prompt.options.model_dump(exclude_none=True),
                "history": history,
            }
        )


class Refused(Exception):
    """A server's refusal, as SDKs raise it."""

    status_code = 429
    response = type("Response", (), {"headers": {"retry-after-ms": "2500"}})()


def answer(llm: Any, prompt: Any, response: Any) -> Iterator[Any]:
    """What every model here says."""
    event = llm.parts.StreamEvent
    response.set_resolved_model(f"{response.model.model_id}-2031")
    details = {"prompt": {"cached_tokens": 2}, "reasoning_tokens": 1}
    response.set_usage(input=7, output=3, details=details)
    text = prompt.messages[-1].parts[0].to_dict().get("text", "")
    if text == "CALL":
        response.add_tool_call(llm.ToolCall(name="look", arguments={"at": 1}, tool_call_id="t1"))
    elif text == "THINK":
        yield event(type="reasoning", chunk="hm")
        yield "done"
    elif text == "SIGN":
        yield event(type="text", chunk="ok", provider_metadata={"signature": "abc"})
    else:
        yield from ("echo", ": ", text)


def plugin(llm: Any) -> Any:
    """An object to register with llm; the notes are its attributes."""
    blocking, waiting = _echoes(llm)
    endless, keyed = _odd_ones(llm)

    class Plugin(Notes):
        @llm.hookimpl  # type: ignore[untyped-decorator]
        def register_models(self, register: Any) -> None:
            register(blocking(self, "blocking"), aliases=("short",))
            register(blocking(self, "waiting"), waiting(self, "waiting"))
            register(endless(self, "endless"))
            register(keyed(self, "keyed"))

    return Plugin()


def _echoes(llm: Any) -> tuple[Any, Any]:
    """A blocking and an async model that can do everything."""

    class Options(llm.Options):  # type: ignore[misc]
        temperature: float | None = None
        seed: int | None = None
        stop_sequences: list[str] | None = None
        max_output_tokens: int | None = None

    class Able:
        can_stream = True
        supports_tools = True
        supports_schema = True
        attachment_types = frozenset({"image/png"})

        def __init__(self, notes: Notes, model_id: str) -> None:
            self.notes = notes
            self.model_id = model_id

    class Blocking(Able, llm.Model):  # type: ignore[misc]
        def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Any:
            self.notes.take(prompt, conversation)
            if prompt.prompt == "HANG":
                self.notes.release.wait()
            return answer(llm, prompt, response)

    class Waiting(Able, llm.AsyncModel):  # type: ignore[misc]
        async def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any
        ) -> AsyncIterator[Any]:
            self.notes.take(prompt, conversation)
            try:
                if prompt.prompt == "HANG":
                    await asyncio.Event().wait()
                for piece in answer(llm, prompt, response):
                    yield piece
            finally:
                self.notes.closed.set()

    Blocking.Options = Waiting.Options = Options
    return Blocking, Waiting


def _odd_ones(llm: Any) -> tuple[Any, Any]:
    """A model that never ends and knows no options, and one that wants a key."""

    class Endless(llm.Model):  # type: ignore[misc]
        def __init__(self, notes: Notes, model_id: str) -> None:
            self.notes = notes
            self.model_id = model_id

        def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any
        ) -> Iterator[str]:
            try:
                while True:
                    yield "word "
            finally:
                self.notes.closed.set()

    class Keyed(llm.KeyModel):  # type: ignore[misc]
        needs_key = "testing"

        def __init__(self, notes: Notes, model_id: str) -> None:
            self.notes = notes
            self.model_id = model_id

        def execute(
            self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str
        ) -> Iterator[str]:
            if prompt.prompt == "FAIL":
                raise Refused(f"the key {key} is used up")
            yield f"key of {len(key)}"

    return Endless, Keyed
