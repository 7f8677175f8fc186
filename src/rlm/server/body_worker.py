"""Decode a request body with many values, in a process with limits.

Decoding holds the interpreter's lock: millions of small values would keep the server's event loop
waiting for seconds. The server gets the request without its context, and the context as JSON text.
"""

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm.context.describe import describe
from rlm.server.decoding import decode, weight_of
from rlm.server.requests import ChatRequest, RunRequest
from rlm.server.responses import ResponsesRequest

__all__ = ["read"]

KINDS = {kind.__name__: kind for kind in (ChatRequest, ResponsesRequest, RunRequest)}
MAX_OTHER_BYTES = 32 << 20
"""What values other than the context may take: those of 10,000 messages take less than half."""


def read(body: bytes, kind_name: str) -> str:
    """Return a line of facts in JSON, followed by the context in JSON."""
    try:
        sent = decode(body, KINDS[kind_name])
    except msgspec.ValidationError as error:
        return json.dumps({"mistake": str(error)})
    except (ValueError, RecursionError) as error:
        return json.dumps({"invalid": str(error)})
    context, rest = _split(sent)
    request = msgspec.json.encode(rest)
    if weight_of(request).values > MAX_OTHER_BYTES:
        return json.dumps({"too_many": "it has too many values besides its context"})
    facts: dict[str, Any] = {"request": request.decode()}
    if context is None:
        return json.dumps(facts)
    facts["description"] = describe(context)
    facts["are_texts"] = _are_texts(context)
    return f"{json.dumps(facts)}\n{json.dumps(context, ensure_ascii=False)}"


def _split(sent: Any) -> tuple[Any, Any]:
    """Return the context, if it is a list or dict, and the request without it."""
    holder = sent if isinstance(sent, RunRequest) else sent.rlm
    if holder is None or not isinstance(holder.context, (list, dict)):
        return None, sent
    bare = replace(holder, context=None)
    return holder.context, bare if holder is sent else replace(sent, rlm=bare)


def _are_texts(context: Any) -> bool:
    values = context.values() if isinstance(context, dict) else context
    return bool(context) and set(map(type, values)) == {str}
