"""A client's own model through the SDK: requests out, replies in, for old and new protocols."""

from collections.abc import Mapping
from typing import Any

from mcp import types
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from rlm.errors import ModelError
from rlm.gateway.callers import ChannelClosed, RepliesNeeded, Sampling
from rlm.messages import Message, Reply, Request

__all__ = ["SdkCaller", "input_required"]

ROUNDS_SINCE = "2026-07-28"
"""From this version on, requests of a server to its client travel in the results of tools."""

MAX_REPLY_CHARS = 1_000_000
_REPLIES = (types.CreateMessageResult, types.CreateMessageResultWithTools)
_CLOSED = {types.CONNECTION_CLOSED}


class SdkCaller:
    """One request to a tool: `rlm.gateway.callers.Caller` over the SDK's context."""

    def __init__(self, context: Any, params: types.CallToolRequestParams) -> None:
        self._context = context
        self.sampling: Sampling = _sampling(context)
        self.state = params.request_state
        self.replies: Mapping[str, Reply | ModelError] = {
            name: _reply(answer) for name, answer in (params.input_responses or {}).items()
        }

    async def progress(self, number: int, message: str) -> None:
        await self._context.session.report_progress(float(number), None, message)

    async def sample(self, request: Request) -> Reply:
        """Ask through the channel of this request; raise ChannelClosed if it is closed."""
        about = ServerMessageMetadata(related_request_id=self._context.request_id)
        try:
            answer = await self._context.session.send_request(
                _message(request), types.CreateMessageResult, metadata=about
            )
        except NoBackChannelError:
            raise ChannelClosed from None
        except MCPError as error:
            if error.code in _CLOSED:
                raise ChannelClosed from None
            raise ModelError(f"your client's model did not answer: {error.message[:500]}") from None
        except ValidationError:
            raise ModelError("your client's answer is not the reply of a model") from None
        return _unwrapped(_reply(answer))


def input_required(asking: RepliesNeeded) -> types.InputRequiredResult:
    """Return all pending requests as one round."""
    requests: dict[str, Any] = {
        name: _message(request) for name, request in asking.requests.items()
    }
    return types.InputRequiredResult(input_requests=requests, request_state=asking.state)


def _sampling(context: Any) -> Sampling:
    wanted = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not context.session.check_client_capability(wanted):
        return "none"
    if context.protocol_version >= ROUNDS_SINCE:
        return "rounds"
    return "each" if context.session.can_send_request else "none"


def _message(request: Request) -> types.CreateMessageRequest:
    system = [_text(each) for each in request.messages if each.role == "system"]
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[
                types.SamplingMessage(
                    role="assistant" if each.role == "assistant" else "user",
                    content=types.TextContent(type="text", text=_text(each)),
                )
                for each in request.messages
                if each.role != "system"
            ],
            system_prompt="\n\n".join(system) or None,
            temperature=request.sampling.get("temperature"),
            max_tokens=request.max_output_tokens,
        )
    )


def _text(message: Message) -> str:
    """Convert a message; only its text is sent, no pictures."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part["text"]) for part in message.content if "text" in part)


def _reply(answer: Any) -> Reply | ModelError:
    """Parse what a client sent, which may be anything."""
    if not isinstance(answer, _REPLIES):
        return ModelError("your client's answer is not the reply of a model")
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    text = "".join(each.text for each in blocks if isinstance(each, types.TextContent))
    return Reply(
        text=text[:MAX_REPLY_CHARS],
        finish_reason="length" if answer.stop_reason == "maxTokens" else "stop",
        model=answer.model,
    )


def _unwrapped(reply: Reply | ModelError) -> Reply:
    if isinstance(reply, ModelError):
        raise reply
    return reply
