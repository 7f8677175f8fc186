"""OpenAI's Responses interface: requests, replies, streams and the client."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from rlm.clients._chat import image_url, smallest_cap
from rlm.clients._dialect import ErrorReport, HttpClient, refuse
from rlm.clients._fields import arguments_of, dicts_in, dump, status_of, text_of, usage_of
from rlm.clients._http import Endpoint, checked_url
from rlm.clients._quirks import QUIRKS, Quirks, checked_sampling, is_reasoning, quirks_for
from rlm.clients.compatible import azure_address
from rlm.errors import ConfigError
from rlm.messages import Message, ModelInfo, Reply, Request, ToolCall, ToolSpec

__all__ = [
    "OUTPUT",
    "ResponsesClient",
    "ResponsesDialect",
    "StreamedResponse",
    "native_sampling",
    "response_reply",
]

NOT_THERE = (
    *("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs"),
    *("functions", "function_call", "prediction", "modalities", "audio"),
)
"""Options of chat completions without an equivalent in /responses."""

HIDDEN_INPUT = ("previous_response_id", "conversation", "prompt")
"""Options that make the server add input that was never budgeted."""


def native_sampling(sampling: dict[str, Any]) -> dict[str, Any]:
    """Return the options under the names of /responses; raise ConfigError for one without."""
    options = dict(sampling)
    refuse(options, "/responses", NOT_THERE)
    for name in HIDDEN_INPUT:
        if name in options:
            raise ConfigError(
                f"sampling {name} adds input on the server that the budget can't see: leave it out"
            )
    if options.get("background"):
        raise ConfigError("sampling background is not supported: the client waits for each reply")
    options.pop("n", None)
    _nest(options, "reasoning_effort", "reasoning", "effort")
    _nest(options, "verbosity", "text", "verbosity")
    if "response_format" in options:
        options["response_format"] = _format(options["response_format"])
        _nest(options, "response_format", "text", "format")
    if "tool_choice" in options:
        options["tool_choice"] = _choice(options["tool_choice"])
    return options


def _nest(options: dict[str, Any], name: str, holder: str, inside: str) -> None:
    """Move an option into a group, unless the group already sets it."""
    value = options.pop(name, None)
    if value is None:
        return
    group = options.get(holder)
    options[holder] = {inside: value, **(group if isinstance(group, dict) else {})}


def _format(given: Any) -> Any:
    schema = given.get("json_schema") if isinstance(given, dict) else None
    return {"type": "json_schema", **schema} if isinstance(schema, dict) else given


def _choice(given: Any) -> Any:
    function = given.get("function") if isinstance(given, dict) else None
    return {"type": "function", **function} if isinstance(function, dict) else given


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

OUTPUT = "responses_output"
"""Our key among a reply's opaque parts, for its output items, which are sent back unchanged."""

CUT: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "refusal"}
UNFINISHED = ("queued", "in_progress", "cancelled", "failed")
LAST = ("response.completed", "response.incomplete")
PIECES = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "summary",
}
GAP = "\n\n"
"""Separates the texts of two output messages, such as a remark and the answer."""


def response_reply(payload: Any, quirks: Quirks) -> Reply:
    """Return the reply in a decoded response; raise ValueError if there is none."""
    output = payload.get("output") if isinstance(payload, dict) else None
    if not isinstance(output, list):
        raise ValueError("the response contains no output")
    if payload.get("status") in UNFINISHED:
        raise ValueError(f"the response is {payload['status']}")
    items = dicts_in(output)
    refusal = _said(items, "refusal")
    calls = [item for item in items if item.get("type") == "function_call"]
    model = payload.get("model")
    return Reply(
        text=_said(items, "text") or refusal,
        tool_calls=tuple(_tool_call(call, number) for number, call in enumerate(calls)),
        reasoning=_reasoning(items),
        usage=usage_of(payload, states_cost=quirks.states_cost),
        finish_reason="refusal" if refusal else _finish(payload, has_calls=bool(calls)),
        model=model if isinstance(model, str) else "",
        opaque=_opaque(items),
    )


def _said(items: list[dict[str, Any]], name: Literal["text", "refusal"]) -> str:
    """Return all text of the messages, or all text of their refusals."""
    kind = "output_text" if name == "text" else "refusal"
    texts = []
    for item in items:
        if item.get("type") == "message":
            parts = [part for part in dicts_in(item.get("content")) if part.get("type") == kind]
            texts.append("".join(text_of(part.get(name)) for part in parts))
    return GAP.join(text for text in texts if text)


def _reasoning(items: list[dict[str, Any]]) -> str:
    """Return summaries of the thinking, or the thinking itself if a server shows it."""
    texts = []
    for item in items:
        if item.get("type") == "reasoning":
            parts = dicts_in(item.get("summary")) or dicts_in(item.get("content"))
            texts += [text_of(part.get("text")) for part in parts]
    return GAP.join(text for text in texts if text)


def _tool_call(item: dict[str, Any], number: int) -> ToolCall:
    identity = item.get("call_id")
    return ToolCall(
        id=identity if isinstance(identity, str) and identity else f"call_{number}",
        name=text_of(item.get("name")),
        arguments=arguments_of(item.get("arguments")),
    )


def _finish(payload: dict[str, Any], *, has_calls: bool) -> FinishReason:
    if payload.get("status") == "incomplete":
        details = payload.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return CUT.get(reason, "other") if isinstance(reason, str) else "other"
    return "tool_calls" if has_calls else "stop"


def _opaque(items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the output if it contains more than text: thinking, calls, kinds of messages.

    Thinking without its encrypted content is left out: the server has not stored it.
    """
    kept = [
        item for item in items if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]
    is_plain = all(item.get("type") == "message" and not item.get("phase") for item in kept)
    return None if is_plain else {OUTPUT: kept}


class StreamedResponse:
    """Collects the events of a stream.

    The last event usually contains the whole response. If it is empty, finished items are used, and
    finally the pieces of unfinished ones.
    """

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._done = False
        self._last: dict[str, Any] | None = None
        self._first: dict[str, Any] = {}
        self._whole: dict[int, dict[str, Any]] = {}
        self._begun: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._speaker: int | None = None

    @property
    def complete(self) -> bool:
        return self._done or self._last is not None

    def finish(self) -> None:
        self._done = True

    def add(self, event: dict[str, Any]) -> str:
        """Add one event, and return the text it adds. Unknown kinds are ignored."""
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else ""
        index = event.get("output_index")
        index = index if isinstance(index, int) else 0
        if kind in PIECES:
            return self._add_piece(PIECES[kind], index, text_of(event.get("delta")))
        if kind == "response.function_call_arguments.done":
            self._pieces[index, "arguments"] = [text_of(event.get("arguments"))]
        elif kind == "response.created":
            self._first = _object(event, "response")
        elif kind in LAST:
            self._last = _object(event, "response")
        elif kind == "response.output_item.added":
            self._begun[index] = _object(event, "item")
        elif kind == "response.output_item.done":
            self._whole[index] = _object(event, "item")
        return ""

    def _add_piece(self, name: str, index: int, piece: str) -> str:
        self._pieces.setdefault((index, name), []).append(piece)
        if name != "text" or not piece:
            return ""
        gap = GAP if self._speaker not in {None, index} else ""
        self._speaker = index
        return gap + piece

    def reply(self) -> Reply:
        payload = {**self._first, "status": "completed", **(self._last or {})}
        if not dicts_in(payload.get("output")):
            indices = {*self._whole, *self._begun, *(index for index, _ in self._pieces)}
            payload["output"] = [
                self._whole.get(index) or self._pieced(index) for index in sorted(indices)
            ]
        return response_reply(payload, self._quirks)

    def _pieced(self, index: int) -> dict[str, Any]:
        """Build an item from its pieces."""
        texts = {name: "".join(self._pieces.get((index, name), ())) for name in PIECES.values()}
        item = dict(self._begun.get(index, {}))
        if texts["text"] or texts["refusal"]:
            said = {"type": "output_text", "text": texts["text"]}
            refused = {"type": "refusal", "refusal": texts["refusal"]}
            item |= {"type": "message", "content": [said, refused]}
        elif texts["arguments"]:
            item |= {"type": "function_call", "arguments": texts["arguments"]}
        elif texts["summary"]:
            item |= {"type": "reasoning", "summary": [{"text": texts["summary"]}]}
        return item


def _object(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


THINKING = "reasoning.encrypted_content"
OURS = ("model", "input", "stream", "stream_options")


class ResponsesDialect:
    """OpenAI's newer dialect, the only one that some of its models speak."""

    def __init__(self, quirks: Quirks = QUIRKS["openai"]) -> None:
        self._quirks = quirks

    def path(self, request: Request, *, stream: bool) -> str:
        return "/responses"

    def body(self, request: Request, *, stream: bool) -> bytes:
        sampling = checked_sampling(self._quirks, request.model, request.sampling)
        cap = smallest_cap(request, sampling)
        options = native_sampling(sampling)
        if is_reasoning(request.model):  # others refuse the option
            asked = options.get("include")
            others = [each for each in asked if each != THINKING] if isinstance(asked, list) else []
            options["include"] = [*others, THINKING]
        content: dict[str, Any] = {
            "store": False,
            **{name: value for name, value in options.items() if name not in OURS},
            "model": request.model,
            "input": [item for message in request.messages for item in _items(message)],
            "max_output_tokens": cap,
        }
        if request.tools:
            content["tools"] = [_tool(tool) for tool in request.tools]
        if stream:
            content["stream"] = True
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return response_reply(payload, self._quirks)

    def streamed(self) -> StreamedResponse:
        return StreamedResponse(self._quirks)

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        """Return the error of a failed response, or of the events `response.failed` and `error`."""
        response = payload.get("response")
        whole = response if isinstance(response, dict) else payload
        error = whole.get("error") or payload.get("error")
        if payload.get("type") == "error":
            error = error or {name: payload.get(name) for name in ("code", "message")}
        elif whole.get("status") == "failed":
            error = error or "the response failed"
        elif whole.get("status") in ("completed", "incomplete"):
            return None
        if not error:
            return None
        status = status_of(error)
        return (None, error) if status is None else (status, {"error": error})


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _items(message: Message) -> list[dict[str, Any]]:
    """Return one message as input items; an assistant's own output unchanged, if known."""
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message.tool_call_id or "",
                "output": _content(message.content, "input_text"),
            }
        ]
    if message.role != "assistant":
        return [{"role": message.role, "content": _content(message.content, "input_text")}]
    output = message.opaque.get(OUTPUT) if isinstance(message.opaque, Mapping) else None
    if isinstance(output, list) and output:
        return [item for item in output if isinstance(item, dict)]
    said = [{"role": "assistant", "content": _content(message.content, "output_text")}]
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": dump(call.arguments).decode(),
        }
        for call in message.tool_calls
    ]
    return [*said, *calls] if message.content or not calls else calls


def _content(content: str | list[dict[str, Any]], text_type: str) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part, text_type) for part in content]


def _part(part: dict[str, Any], text_type: str) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": text_type, "text": part.get("text", "")}
    url = image_url(part)
    if url is None:
        return part
    return {"type": "input_image", "image_url": url, "detail": "auto"}


class ResponsesClient(HttpClient):
    """One server at `base_url`, used as given plus `/responses`. It never retries on its own.

    For `azure` it finds the v1 API at the endpoint. Nothing is stored on the server.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        url_variable: str | None = None,
        provider: str = "openai-responses",
    ) -> None:
        quirks = quirks_for(provider, checked_url(base_url, url_variable).hostname or "")
        if provider == "azure":
            base_url, _ = azure_address(base_url)
        endpoint = Endpoint(
            base_url,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or quirks.key_variable,
            url_variable=url_variable,
            auth=quirks.auth,
            query=query,
        )
        super().__init__(endpoint, ResponsesDialect(quirks), provider=provider, infos=infos)
