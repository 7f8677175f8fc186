"""What /responses replies: a decoded response, or the events of a stream, become a Reply."""

from typing import Any, Literal, TypeAlias

from rlm.clients._fields import arguments_of, dicts_in, text_of
from rlm.clients._quirks import Quirks
from rlm.clients._usage import usage_of
from rlm.messages import Reply, ToolCall

__all__ = ["OUTPUT", "StreamedResponse", "response_reply"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

OUTPUT = "responses_output"
"""Our key among a reply's opaque parts: its output items, to be sent back as they came."""

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
"""Between the texts of two output messages, such as a remark and the answer."""


def response_reply(payload: Any, quirks: Quirks) -> Reply:
    """The reply in a decoded response; ValueError if it holds none."""
    output = payload.get("output") if isinstance(payload, dict) else None
    if not isinstance(output, list):
        raise ValueError("the response holds no output")
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
    """All that the messages say, or all that they say in refusal."""
    kind = "output_text" if name == "text" else "refusal"
    texts = []
    for item in items:
        if item.get("type") == "message":
            parts = [part for part in dicts_in(item.get("content")) if part.get("type") == kind]
            texts.append("".join(text_of(part.get(name)) for part in parts))
    return GAP.join(text for text in texts if text)


def _reasoning(items: list[dict[str, Any]]) -> str:
    """Summaries of the thinking; the thinking itself where a server shows it."""
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
    """The output, if it says more than its text: thinking, calls, what kind of message it is.

    Thinking without its encrypted content is left out: the server keeps nothing to look it up in.
    """
    kept = [
        item for item in items if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]
    is_plain = all(item.get("type") == "message" and not item.get("phase") for item in kept)
    return None if is_plain else {OUTPUT: kept}


class StreamedResponse:
    """Gathers the events of a stream. Its last one usually holds the whole response; where that
    one is empty, the items count that were done, and at worst the pieces of those that were not.
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
        """Take one event in; returns the text it adds. Unknown kinds are left alone."""
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
        """An item from its pieces."""
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
