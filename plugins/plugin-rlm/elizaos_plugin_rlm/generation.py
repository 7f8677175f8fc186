"""Parse the parameters of elizaOS into a query, a context and sampling options.

No text of the caller gets into a prompt here. It becomes the context, which the model reads with
code; the system text stays with the messages, as the first of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Generation", "ParamsProblem", "as_params", "option"]

PROMPT_QUERY = (
    "The task is in the variable `context`: read it first, all of it if it is short, then do "
    "exactly what it asks. Submit only the text that it asks for."
)
CONVERSATION_QUERY = (
    "The variable `context` is a conversation: a list of messages, each with `role` and `content`. "
    "Read it, keep to what its system messages say, and write the next message of the assistant. "
    "Submit only the text of that message."
)
JSON_QUERY = " That text must be valid JSON, and nothing else."
MIN_REPLY_TOKENS = 512
"""Models have to write code first; a smaller cap, which elizaOS sometimes sets, ends every run."""

SAMPLING_NAMES = {
    "maxTokens": "max_tokens",
    "minTokens": "min_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "minP": "min_p",
    "seed": "seed",
    "repetitionPenalty": "repetition_penalty",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "stopSequences": "stop",
    "user": "user",
}
"""Names of elizaOS, and the names that model servers use."""


class ParamsProblem(ValueError):
    """A request is invalid; the text says what is wrong or missing."""


@dataclass(frozen=True)
class Generation:
    """One request: its query, its context and its sampling options."""

    query: str
    context: str | list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "Generation":
        """Parse parameters; messages override the prompt, a system text makes it two messages."""
        system = params.get("system")
        messages = params.get("messages")
        if isinstance(messages, str):
            params, messages = {**params, "prompt": messages}, None
        if messages:
            turns = _conversation(messages)
        else:
            prompt = params.get("prompt")
            if not isinstance(prompt, str) or not prompt:
                raise ParamsProblem("nothing to answer: pass a prompt or messages")
            if not system:
                return cls(PROMPT_QUERY + _form(params), prompt, _sampling(params))
            turns = [{"role": "user", "content": prompt}]
        first = {"role": "system", "content": str(system)}
        if system and first not in turns:
            turns.insert(0, first)
        return cls(CONVERSATION_QUERY + _form(params), turns, _sampling(params))

    def ended(self, text: str) -> str:
        """Return the text up to the first stop sequence, which code may have put into an answer."""
        for stop in self.sampling.get("stop", ()):
            text = text.partition(stop)[0]
        return text


def as_params(params: object, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of parameters from a dict, elizaOS's parameter object, or keywords."""
    if params is None:
        given: dict[str, Any] = {}
    elif isinstance(params, Mapping):
        given = {str(name): value for name, value in params.items()}
    elif callable(dump := getattr(params, "model_dump", None)):
        given = dump(by_alias=True, exclude_none=True)
    else:
        raise ParamsProblem(f"params must be a dict, not {type(params).__name__}")
    return {**given, **more}


def option(params: Mapping[str, Any], name: str) -> Any:
    """Return a parameter by its Python name or by elizaOS's camel-case name."""
    head, *tail = name.split("_")
    camel_case = head + "".join(part.capitalize() for part in tail)
    value = params.get(name)
    return params.get(camel_case) if value is None else value


def _conversation(messages: object) -> list[dict[str, Any]]:
    if not isinstance(messages, Sequence) or isinstance(messages, bytes):
        raise ParamsProblem(f"messages must be a list, not {type(messages).__name__}")
    return [_message(each) for each in messages]


def _message(message: object) -> dict[str, Any]:
    """Return one message as plain data; objects with `role` and `content` work as well."""
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if isinstance(message, Mapping):
        role, content = message.get("role", "user"), message.get("content")
    elif hasattr(message, "content"):
        role, content = getattr(message, "role", "user"), message.content
    else:
        raise ParamsProblem(
            f"each message must have a role and content, not be {type(message).__name__}"
        )
    return {"role": str(role), "content": _plain(content)}


def _plain(content: object) -> Any:
    """Convert content to JSON values; what JSON cannot represent becomes text."""
    if content is None or isinstance(content, str):
        return content or ""
    try:
        return json.loads(json.dumps(content, default=str))
    except (ValueError, TypeError, RecursionError) as error:
        raise ParamsProblem(f"the content of a message cannot be read: {error}") from None


def _form(params: Mapping[str, Any]) -> str:
    """Return the query's demand for a response format; replies themselves may hold code."""
    wanted = option(params, "response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else wanted
    return JSON_QUERY if isinstance(kind, str) and kind.startswith("json") else ""


def _sampling(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return every control that was given, under the name that model servers use."""
    found: dict[str, Any] = {}
    for theirs, ours in SAMPLING_NAMES.items():
        value = params.get(theirs)
        if value is None:
            value = params.get(_snake(theirs))
        if value is not None and value != []:
            found[ours] = value
    if "stop" in found:
        found["stop"] = _stops(found["stop"])
    cap = found.get("max_tokens")
    if isinstance(cap, int) and not isinstance(cap, bool):
        found["max_tokens"] = max(cap, MIN_REPLY_TOKENS)
    return found


def _stops(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) for stop in stops):
        raise ParamsProblem("stopSequences must be a list of strings")
    return [stop for stop in stops if stop]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
