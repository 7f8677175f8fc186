"""Our messages as the `llm` package has them, for its newer models and its older ones alike.

Newer plugins read `prompt.messages`, the exact chain. Older ones read the last turn from the
prompt, the system text beside it, and earlier turns from the conversation. Both get all of it.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from rlm.clients._json import dump
from rlm.errors import ConfigError
from rlm.messages import Message, Reply, Request

__all__ = ["CARRIED", "Turns", "carried"]

CARRIED = "llm"


class Turns:
    """One request in llm's terms: the chain before the last turn, and that turn apart."""

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
        """What `conversation.prompt` takes: it puts the last turn below the earlier messages.

        It knows one shape of turn: results of tools, then one user's text, then attachments. Any
        other goes into the chain as it is.
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
        """Whether its text comes before its images, in one piece."""
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
            raise ConfigError(f"llm models take text and images, not {part.get('type')!r} parts")
        if url := part.get("url"):
            return self._library.Attachment(type=part.get("media_type"), url=str(url))
        try:
            content = base64.b64decode(str(part.get("data", "")), validate=True)
        except binascii.Error as error:
            raise ConfigError(f"an image part holds no base64: {error}") from None
        return self._library.Attachment(type=part.get("media_type"), content=content)

    def _result(self, message: Message) -> Any:
        identity = message.tool_call_id or ""
        return self._library.ToolResult(
            name=self._names.get(identity, ""), output=_text(message), tool_call_id=identity
        )


def carried(message: Message | Reply, library: Any) -> Any:
    """The assistant's turn as llm itself wrote it, with its providers' signatures; else None."""
    kept = message.opaque.get(CARRIED) if isinstance(message.opaque, Mapping) else None
    return None if not isinstance(kept, Mapping) else library.parts.Message.from_dict(kept)


def _is_async(conversation: Any) -> bool:
    return type(conversation).__name__.startswith("Async")


def _tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """Which tool each result is of: llm wants its name, we carry the call's id."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = [part for part in message.content if part.get("type") == "text"]
    if message.role == "tool" and not texts:
        return dump(message.content).decode()
    return "\n".join(str(part.get("text", "")) for part in texts)
