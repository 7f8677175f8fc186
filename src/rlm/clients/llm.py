"""Models of the `llm` package."""

import base64
import binascii
import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any, Literal

from rlm.clients._adapters import (
    Flow,
    Threads,
    each_within,
    imported,
    model_error,
    public_line,
    reply_of,
)
from rlm.clients._estimate import BYTES_A_TOKEN
from rlm.clients._fields import dump
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Reply, Request, ToolCall, Usage

__all__ = ["CARRIED", "LLMClient", "Turns", "carried"]

CARRIED = "llm"


class Turns:
    """One request in llm's terms: the chain before the last turn, and that turn."""

    def __init__(self, library: Any, request: Request) -> None:
        self._library = library
        self._parts = library.parts
        messages = list(request.messages)
        last = len(messages)
        while last and messages[last - 1].role in {"user", "tool"}:
            last -= 1
        self._names = _tool_names(messages)
        self.earlier = [self._message(each) for each in messages[:last]]
        self._latest = messages[last:]
        systems = [_text(each) for each in messages if each.role == "system"]
        self.system = "\n\n".join(systems) or None
        self._asked = messages[:last]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `conversation.prompt`, which adds the last turn to the chain.

        It knows one form of turn: tool results, then one user text, then attachments. Any other
        goes into the chain unchanged.
        """
        *results, last = self._latest or [Message("user", "")]
        plain = last.role == "user" and all(each.role == "tool" for each in results)
        if not plain or not self._in_llms_order(last):
            chain = [*self.earlier, *(self._message(each) for each in self._latest)]
            return {"prompt": None, "system": self.system, "messages": chain}
        return {
            "prompt": _text(last) or None,
            "system": self.system,
            "messages": self.earlier,
            "attachments": self._attachments(last) or None,
            "tool_results": [self._result(each) for each in results] or None,
        }

    def remember(self, conversation: Any) -> None:
        """Give the conversation its earlier turns, for plugins that look for them there."""
        kind = getattr(self._library, "AsyncResponse" if _is_async(conversation) else "Response")
        model = conversation.model
        for place, message in enumerate(self._asked):
            if message.role != "assistant":
                continue
            before = self.earlier[:place]
            said = {"model": model.model_id, "messages": [self.earlier[place].to_dict()]}
            response = kind.from_dict(said, model=model)
            user = next((m for m in self._asked[:place][::-1] if m.role == "user"), None)
            response.prompt = self._library.Prompt(
                _text(user) if user else None,
                model,
                system=self.system,
                attachments=self._attachments(user) if user else None,
                messages=before,
            )
            conversation.responses.append(response)

    def _in_llms_order(self, message: Message) -> bool:
        """Return whether its text comes before its images, in one piece."""
        if isinstance(message.content, str):
            return True
        kinds = [part.get("type") for part in message.content]
        return kinds == sorted(kinds, key=lambda kind: kind != "text") and kinds.count("text") <= 1

    def _message(self, message: Message) -> Any:
        kept = carried(message, self._library)
        if message.role == "assistant" and kept is not None:
            return kept
        if message.role == "tool":
            result = self._result(message)
            parts = [
                self._parts.ToolResultPart(
                    name=result.name, output=result.output, tool_call_id=result.tool_call_id
                )
            ]
        else:
            parts = self._content(message)
            parts += [
                self._parts.ToolCallPart(
                    name=call.name, arguments=call.arguments, tool_call_id=call.id
                )
                for call in message.tool_calls
            ]
        return self._parts.Message(role=message.role, parts=parts)

    def _content(self, message: Message) -> list[Any]:
        if isinstance(message.content, str):
            return [self._parts.TextPart(text=message.content)] if message.content else []
        return [self._part(part) for part in message.content]

    def _part(self, part: Mapping[str, Any]) -> Any:
        if part.get("type") == "text":
            return self._parts.TextPart(text=str(part.get("text", "")))
        return self._parts.AttachmentPart(attachment=self._attachment(part))

    def _attachments(self, message: Message) -> list[Any]:
        if isinstance(message.content, str):
            return []
        return [self._attachment(part) for part in message.content if part.get("type") != "text"]

    def _attachment(self, part: Mapping[str, Any]) -> Any:
        if part.get("type") != "image":
            raise ConfigError(f"llm models accept text and images, not {part.get('type')!r} parts")
        if url := part.get("url"):
            return self._library.Attachment(type=part.get("media_type"), url=str(url))
        try:
            content = base64.b64decode(str(part.get("data", "")), validate=True)
        except binascii.Error as error:
            raise ConfigError(f"an image part is not valid base64: {error}") from None
        return self._library.Attachment(type=part.get("media_type"), content=content)

    def _result(self, message: Message) -> Any:
        identity = message.tool_call_id or ""
        return self._library.ToolResult(
            name=self._names.get(identity, ""), output=_text(message), tool_call_id=identity
        )


def carried(message: Message | Reply, library: Any) -> Any:
    """Return the assistant's turn as llm wrote it, with its providers' signatures; else None."""
    kept = message.opaque.get(CARRIED) if isinstance(message.opaque, Mapping) else None
    return None if not isinstance(kept, Mapping) else library.parts.Message.from_dict(kept)


def _is_async(conversation: Any) -> bool:
    return type(conversation).__name__.startswith("Async")


def _tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """Return the tool's name for each call id: llm needs the name, our results have the id."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = [part for part in message.content if part.get("type") == "text"]
    if message.role == "tool" and not texts:
        return dump(message.content).decode()
    return "\n".join(str(part.get("text", "")) for part in texts)


MAX_THREADS = 16
CAPS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict", "max_length")
"""Names that plugins use for the output cap."""

SPELLINGS = {
    "stop": ("stop", "stop_sequences"),
    "reasoning_effort": ("reasoning_effort", "thinking_level"),
}
NOT_TOLD = ("n", "stream", "stream_options", *CAPS)


class LLMClient:
    """Asks models of the `llm` package; `request.model` is a model's id or one of its aliases.

    `key` is a key or the name of one that llm stores; without it, llm looks where it usually does.
    `options` are sent with every request, under the model's own names.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        threads: int = MAX_THREADS,
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
        threads: int = MAX_THREADS,
    ) -> "LLMClient":
        """Return a client for `llm/<model>`; raise ConfigError if llm has no such model."""
        client = cls(key=key, options=options, infos=infos, threads=threads)
        client._find_model(model)
        return client

    def __repr__(self) -> str:
        return "LLMClient()"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request, and return its reply."""
        pieces = self._pieces(request, stream=False)
        return await reply_of(each_within(pieces, timeout_seconds, request.model, self._late))

    def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the text as it comes, then the whole reply."""
        pieces = self._pieces(request, stream=True)
        return each_within(pieces, timeout_seconds, request.model, self._late)

    def info(self, model: str) -> ModelInfo:
        """Return what was given; llm itself knows neither windows nor prices."""
        return self._infos.get(model) or ModelInfo()

    async def close(self) -> None:
        """Tell running models that no caller is waiting."""
        self._threads.give_up_all()

    def _late(self) -> str:
        held = self._threads.abandoned
        return f"; {held} earlier calls that never returned occupy its threads" if held else ""

    async def _pieces(self, request: Request, *, stream: bool) -> AsyncGenerator[str | Reply, None]:
        model, is_async = self._find_model(request.model)
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
        """Return a response that has not started: llm sends when its events are requested."""
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

    def _find_model(self, name: str) -> tuple[Any, bool]:
        """Return the model, async if possible; looked up once, because that loads the plugins."""
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
                    f"llm has no model {name!r}: `llm models` lists its models, and `llm install "
                    "llm-…` adds those of a plugin"
                )
        return self._models[name]

    @contextlib.contextmanager
    def _translated(self, request: Request) -> Generator[None, None, None]:
        """Raise errors of llm and its plugins as our own, without keys."""
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
    """Drive a blocking response until it ends, is long enough, or no caller is waiting."""
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
    """Return the options under the model's own names, and the schema of the answer, if any."""
    known = set(model.Options.model_fields)
    sampling = dict(request.sampling)
    if sampling.get("n", 1) != 1:
        raise ConfigError(
            "sampling n must be 1: each request gets one reply and is budgeted as one"
        )
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
            raise ConfigError(f"llm/{request.model} has no option {name!r}; options: {listed}")
        options[own] = value
    if (own := next((each for each in CAPS if each in known), None)) is not None:
        options[own] = min(cap, options.get(own) or cap)
    return options, schema


def _schema(wanted: Any, known: set[str], sampling: dict[str, Any]) -> dict[str, Any] | None:
    """Return the JSON schema in a chat-completions `response_format`."""
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
    """One response in progress: its text, and finally the reply."""

    def __init__(self, request: Request, response: Any) -> None:
        self.response = response
        self._request = request
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._room_bytes = request.max_output_tokens * BYTES_A_TOKEN
        self.cut = False

    def add(self, event: Any) -> str:
        """Add one event, and return the text it adds. `cut` means that it exceeds the cap.

        Most models receive the cap and stop on their own; this is for those that accept none.
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
        """Return why a model stopped: llm does not say, but a token count at the cap shows it."""
        written = self.response.output_tokens
        if self.cut or (isinstance(written, int) and written >= self._request.max_output_tokens):
            return "length"
        return "tool_calls" if has_calls else "stop"


def _usage(response: Any) -> Usage | None:
    """Return what the provider stated; None unless it stated both sides."""
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
    """Return a number of tokens, wherever in the details a plugin put it."""
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
    """Return the turn as llm wrote it, if a provider put something in it to be sent back."""
    messages = response._messages_now() if hasattr(response, "_messages_now") else []
    if len(messages) != 1:
        return None
    turn = messages[0].to_dict()
    signed = any(part.get("provider_metadata") for part in turn["parts"])
    return {CARRIED: turn} if signed or turn.get("provider_metadata") else None
