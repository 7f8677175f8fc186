"""Any model of the `llm` package: the ones it ships, and those of its plugins.

Async models run on the loop. Blocking ones run in threads; a late one can't be stopped, but nobody
waits for it any longer, and the next piece it writes ends it.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, Literal

from rlm.clients._estimate import BYTES_A_TOKEN
from rlm.clients._failures import imported, model_error, public_line
from rlm.clients._llm_turns import CARRIED, Turns
from rlm.clients._threads import Flow, Threads, each_within, last_of
from rlm.errors import ConfigError, ModelError
from rlm.messages import ModelInfo, Reply, Request, ToolCall, Usage

__all__ = ["LLMClient"]

MOST_THREADS = 16
CAPS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict", "max_length")
"""What plugins call the output cap."""

SPELLINGS = {
    "stop": ("stop", "stop_sequences"),
    "reasoning_effort": ("reasoning_effort", "thinking_level"),
}
NOT_TOLD = ("n", "stream", "stream_options", *CAPS)


class LLMClient:
    """Asks models of the `llm` package; `request.model` is a model's id or one of its aliases.

    `key` is a key or the name of one that llm stores; without it llm looks in its own places.
    `options` go to every request, in the model's own words.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        threads: int = MOST_THREADS,
    ) -> None:
        self._library = imported("llm", "llm", "llm/…")
        if not hasattr(self._library, "Message"):
            raise ConfigError("llm/… needs a newer llm: pip install -U llm")
        self._key = key
        self._options = dict(options or {})
        self._infos = dict(infos or {})
        self._threads: Threads[Reply] = Threads(threads, "rlm-llm")
        self._models: dict[str, tuple[Any, bool]] = {}

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        threads: int = MOST_THREADS,
    ) -> "LLMClient":
        """A client for `llm/<model>`; ConfigError if llm has no such model."""
        client = cls(key=key, options=options, infos=infos, threads=threads)
        client._found(model)
        return client

    def __repr__(self) -> str:
        return "LLMClient()"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """One request, one reply."""
        pieces = self._pieces(request, stream=False)
        reply = await last_of(each_within(pieces, timeout_seconds, request.model, self._late))
        assert isinstance(reply, Reply)
        return reply

    def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """The text as it comes, and at the end the whole reply."""
        pieces = self._pieces(request, stream=True)
        return each_within(pieces, timeout_seconds, request.model, self._late)

    def info(self, model: str) -> ModelInfo:
        """What was given; llm itself knows neither windows nor prices."""
        return self._infos.get(model) or ModelInfo()

    async def close(self) -> None:
        """Tell running models that nobody waits."""
        self._threads.give_up_all()

    def _late(self) -> str:
        held = self._threads.abandoned
        return f"; {held} earlier calls that never returned hold its threads" if held else ""

    async def _pieces(self, request: Request, *, stream: bool) -> AsyncGenerator[str | Reply, None]:
        model, is_async = self._found(request.model)
        with self._translated(request):
            written = _Written(request, self._response(model, request, stream=stream))
            if is_async:
                async with contextlib.aclosing(written.response.astream_events()) as events:
                    async for event in events:
                        if text := written.add(event):
                            yield text
                        if written.cut:
                            break
                yield written.reply()
                return
            async for piece in self._threads.stream(lambda flow: _in_thread(flow, written)):
                yield piece

    def _response(self, model: Any, request: Request, *, stream: bool) -> Any:
        """A response that has not begun yet: llm sends when its events are asked for."""
        turns = Turns(self._library, request)
        conversation = model.conversation()
        turns.remember(conversation)
        options, schema = _settings(model, request, self._options)
        tools = [
            self._library.Tool(
                name=tool.name, description=tool.description, input_schema=tool.parameters
            )
            for tool in request.tools
        ]
        return conversation.prompt(
            **turns.arguments(),
            stream=stream and bool(model.can_stream),
            schema=schema,
            tools=tools or None,
            key=self._key,
            options=options,
        )

    def _found(self, name: str) -> tuple[Any, bool]:
        """The model, async if there is such a one; looked up once, as that loads the plugins."""
        if name not in self._models:
            for get, is_async in (
                (self._library.get_async_model, True),
                (self._library.get_model, False),
            ):
                with contextlib.suppress(self._library.UnknownModelError):
                    self._models[name] = (get(name), is_async)
                    break
            else:
                raise ConfigError(
                    f"llm has no model {name!r}: `llm models` lists them, "
                    "`llm install llm-…` adds a plugin's"
                )
        return self._models[name]

    @contextlib.contextmanager
    def _translated(self, request: Request) -> Generator[None, None, None]:
        """What llm and its plugins raise, as our own errors and without keys."""
        secrets = [self._key or ""]
        try:
            yield
        except (ModelError, ConfigError):
            raise
        except self._library.NeedsKeyException as error:
            raise ConfigError(f"{request.model}: {public_line(str(error), secrets)}") from None
        except Exception as error:  # noqa: BLE001 - it is raised again, without its secrets
            raise model_error(request.model, error, secrets) from None


def _in_thread(flow: Flow, written: "_Written") -> Reply:
    """Drive a blocking response until it ends, is long enough, or nobody waits."""
    events = written.response.stream_events()
    try:
        for event in events:
            if text := written.add(event):
                flow.send(text)
            written.cut = written.cut or flow.given_up
            if written.cut:
                break
    finally:
        events.close()
    return written.reply()


def _settings(
    model: Any, request: Request, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The options in the model's own words, and the schema its answer must have, if any."""
    known = set(model.Options.model_fields)
    sampling = dict(request.sampling)
    if sampling.get("n", 1) != 1:
        raise ConfigError("sampling n must be 1: one request is one reply, and is budgeted as one")
    caps = [sampling[name] for name in CAPS if sampling.get(name) is not None]
    cap = min([request.max_output_tokens, *caps])
    schema = _schema(sampling.pop("response_format", None), known, sampling)
    options = dict(given)
    for name, value in sampling.items():
        if name in NOT_TOLD:
            continue
        own = next((each for each in SPELLINGS.get(name, (name,)) if each in known), None)
        if own is None:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"llm/{request.model} knows no option {name!r}; options: {listed}")
        options[own] = value
    if (own := next((each for each in CAPS if each in known), None)) is not None:
        options[own] = min(cap, options.get(own) or cap)
    return options, schema


def _schema(wanted: Any, known: set[str], sampling: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON schema in a chat-completions `response_format`."""
    if not isinstance(wanted, Mapping):
        return None
    holder = wanted.get("json_schema")
    schema = holder.get("schema") if isinstance(holder, Mapping) else wanted.get("schema")
    if isinstance(schema, dict):
        return schema
    if wanted.get("type") == "json_object" and "json_object" in known:
        sampling["json_object"] = True
    return None


class _Written:
    """One response as it is written: its text, and the reply in the end."""

    def __init__(self, request: Request, response: Any) -> None:
        self.response = response
        self._request = request
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._room_bytes = request.max_output_tokens * BYTES_A_TOKEN
        self.cut = False

    def add(self, event: Any) -> str:
        """Take one event in; returns the text it adds. `cut`: it is more than any cap allows.

        Most models are sent the cap and end by themselves; this is for those that know none.
        """
        said = event.chunk if isinstance(event.chunk, str) else ""
        if event.type == "reasoning":
            self._reasoning.append(said)
        if event.type != "text":
            return ""
        self._text.append(said)
        self._room_bytes -= len(said.encode("utf-8", "surrogatepass"))
        self.cut = self._room_bytes < 0
        return said

    def reply(self) -> Reply:
        response = self.response
        calls = tuple(
            ToolCall(
                id=call.tool_call_id or f"call_{number}",
                name=str(call.name),
                arguments=call.arguments if isinstance(call.arguments, dict) else {},
            )
            for number, call in enumerate(response.tool_calls_or_raise() if not self.cut else ())
        )
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            reasoning="".join(self._reasoning),
            usage=None if self.cut else _usage(response),
            finish_reason=self._finish(bool(calls)),
            model=str(response.resolved_model or self._request.model),
            opaque=None if self.cut else _opaque(response),
        )

    def _finish(self, has_calls: bool) -> Literal["stop", "length", "tool_calls"]:
        """llm has no word for why a model ended; the number of tokens tells of the cap."""
        written = self.response.output_tokens
        if self.cut or (isinstance(written, int) and written >= self._request.max_output_tokens):
            return "length"
        return "tool_calls" if has_calls else "stop"


def _usage(response: Any) -> Usage | None:
    """What the provider said; None unless it said both sides."""
    sent, written = response.input_tokens, response.output_tokens
    if not _is_count(sent) or not _is_count(written):
        return None
    return Usage(
        input_tokens=sent,
        output_tokens=written,
        cached_tokens=_detail(response.token_details, "cached_tokens", "cache_read_input_tokens"),
        reasoning_tokens=_detail(response.token_details, "reasoning_tokens", "thoughtsTokenCount"),
        cache_write_tokens=_detail(response.token_details, "cache_creation_input_tokens"),
        requests=1,
    )


def _detail(details: Any, *names: str) -> int:
    """A number of tokens, wherever in the details a plugin put it."""
    if not isinstance(details, Mapping):
        return 0
    for name in names:
        value: Any = details.get(name)
        if _is_count(value):
            return int(value)
    return max((_detail(inner, *names) for inner in details.values()), default=0)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _opaque(response: Any) -> dict[str, Any] | None:
    """The turn as llm wrote it, if a provider put something in it that must travel back."""
    messages = response._messages_now() if hasattr(response, "_messages_now") else []
    if len(messages) != 1:
        return None
    turn = messages[0].to_dict()
    signed = any(part.get("provider_metadata") for part in turn["parts"])
    return {CARRIED: turn} if signed or turn.get("provider_metadata") else None
