"""Requests in Gemini's dialect: contents and sampling options."""

import mimetypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlm.clients._dialect import (
    EFFORTS,
    EMPTY,
    after_instructions,
    given_options,
    image_of,
    late_instructions,
    output_cap,
    parts_of,
    refuse,
    same_text,
    schema_of,
    stops_of,
    thinking,
)
from rlm.clients._fields import dicts_in, text_of
from rlm.errors import ConfigError
from rlm.messages import Message, Request, ToolCall, ToolSpec

__all__ = [
    "CARRIED",
    "contents_of",
    "has_levels",
    "is_said",
    "options_of",
    "plain_parts",
    "system_of",
]

TOP_LEVEL = ("cachedContent", "labels", "safetySettings", "serviceTier", "store", "toolConfig")
"""Entries of the body itself; all others belong in its generationConfig."""

TOOL_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
WITH_LEVELS = re.compile(r"gemini-([3-9]|\d\d)")
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192}
LARGEST_BUDGET = 24_576


def has_levels(model: str) -> bool:
    """Return whether a model is of generation 3 or later, with thinking levels and signed calls."""
    return WITH_LEVELS.search(model) is not None


def options_of(request: Request) -> dict[str, Any]:
    """Return the body's entries besides contents and instructions. Native names pass unchanged."""
    options = given_options(request.sampling)
    refuse(options, "Gemini", ("logit_bias",))
    if options.pop("parallel_tool_calls", True) is False:
        raise ConfigError(
            "Gemini has no equivalent of the sampling option 'parallel_tool_calls': leave it out"
        )
    options.pop("user", None)
    own = options.pop("generation_config", None) or options.pop("generationConfig", {})
    if not isinstance(own, dict):
        raise ConfigError("sampling generationConfig must be a dict")
    own = given_options(own)
    cap = output_cap(request, options, own)
    translated = _translated(options)
    tools = [*_declared(request.tools), *options.pop("tools", ())]
    beside = {name: options.pop(name) for name in _extra_names(request) if name in options}
    named = {_camel(name): value for name, value in options.items()}
    body = {**beside, **{name: named.pop(name) for name in TOP_LEVEL if name in named}}
    if tools:
        body["tools"] = tools
    config = {**translated, **named, **{_camel(name): value for name, value in own.items()}}
    _translate_effort(config, request.model, cap)
    _translate_choice(config, body)
    return {**body, "generationConfig": {**config, "maxOutputTokens": cap}}


def _extra_names(request: Request) -> list[str]:
    """Return the names in `extra_body`, which belong in the body itself and not in its config."""
    extra = request.sampling.get("extra_body") or {}
    return [name for name in extra if name not in ("contents", "systemInstruction")]


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """Return options whose names differ by more than spelling."""
    config: dict[str, Any] = {}
    if stops := stops_of(options, "stop", "stop_sequences", "stopSequences"):
        config["stopSequences"] = stops
    if "response_format" in options:
        schema = schema_of(options.pop("response_format"))
        if schema is not None:
            config["responseMimeType"] = "application/json"
        if schema:
            config["responseJsonSchema"] = schema
    if isinstance(options.get("logprobs"), bool):
        config["responseLogprobs"] = options.pop("logprobs")
    if "top_logprobs" in options:
        config["logprobs"] = options.pop("top_logprobs")
    return config


def _declared(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    if not tools:
        return []
    declarations = [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": {"type": "object", **tool.parameters},
        }
        for tool in tools
    ]
    return [{"functionDeclarations": declarations}]


def _camel(name: str) -> str:
    """Return `topP` for `top_p`; names already in that form stay unchanged."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _translate_effort(config: dict[str, Any], model: str, cap: int) -> None:
    """Translate effort, unless a native `thinkingConfig` sets a level or a budget."""
    effort = config.pop("reasoningEffort", None)
    if effort is None:
        return
    if effort not in EFFORTS:
        raise ConfigError(f"reasoning_effort must be one of {', '.join(EFFORTS)}, not {effort!r}")
    own = config.get("thinkingConfig", {})
    if not isinstance(own, dict):
        raise ConfigError("sampling thinkingConfig must be a dict")
    if {"thinkingLevel", "thinkingBudget"} & {_camel(name) for name in own}:
        return
    if has_levels(model):
        level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
        config["thinkingConfig"] = {**own, "thinkingLevel": level}
        return
    wanted = 0 if effort == "none" else BUDGETS.get(effort, LARGEST_BUDGET)
    budget = thinking(wanted, cap) if wanted else 0
    if budget is not None:
        config["thinkingConfig"] = {**own, "thinkingBudget": budget}


def _translate_choice(config: dict[str, Any], body: dict[str, Any]) -> None:
    choice = config.pop("toolChoice", None)
    if choice is None:
        return
    function = choice.get("function") if isinstance(choice, dict) else None
    if isinstance(function, dict):
        calling = {"mode": "ANY", "allowedFunctionNames": [function.get("name")]}
    elif isinstance(choice, str) and choice in TOOL_MODES:
        calling = {"mode": TOOL_MODES[choice]}
    else:
        raise ConfigError(f"tool_choice must be auto, none, required or a function, not {choice!r}")
    body.setdefault("toolConfig", {"functionCallingConfig": calling})


CARRIED = "gemini_parts"
"""The key of `opaque` under which a reply's parts travel back."""

NO_SIGNATURE = "skip_thought_signature_validator"
"""Google's documented signature for calls that Gemini did not make; generation 3 requires one."""


def system_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the parts of the system messages at the beginning."""
    first = messages[: after_instructions(messages)]
    return [_part(part) for message in first for part in parts_of(message.content)]


def contents_of(request: Request) -> list[dict[str, Any]]:
    """Return all other messages, joining neighbours with the same role into one turn."""
    turns: list[dict[str, Any]] = []
    called: dict[str, dict[str, Any]] = {}
    for message in request.messages[after_instructions(request.messages) :]:
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message, called, signed=has_levels(request.model))
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] += parts
        elif parts:
            turns.append({"role": role, "parts": parts})
    for turn in turns:
        if turn["role"] == "user":  # the result of a call must come right after it
            turn["parts"].sort(key=lambda part: "functionResponse" not in part)
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "parts": [{"text": EMPTY}]})
    return turns


def plain_parts(text: str, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return a model's turn as parts, from what a neutral message says about it."""
    said = [{"text": text}] if text else []
    return [*said, *(_function_call(call) for call in calls)]


def is_said(part: dict[str, Any]) -> bool:
    """Return whether a part is text of the answer, not of a thought."""
    return isinstance(part.get("text"), str) and part.get("thought") is not True


def _parts(
    message: Message, called: dict[str, dict[str, Any]], *, signed: bool
) -> list[dict[str, Any]]:
    """Return the parts of a message. `called` collects calls by id for the results that follow."""
    if message.role == "system":
        return [_part(part) for part in late_instructions(message)]
    if message.role == "tool":
        return [_function_response(message, called)]
    if message.role == "user":
        return [_part(part) for part in parts_of(message.content)] or [{"text": EMPTY}]
    parts = _model_parts(message, signed=signed)
    calls = [part["functionCall"] for part in parts if _is_call(part)]
    called |= {call.id: wire for call, wire in zip(message.tool_calls, calls, strict=False)}
    return parts


def _model_parts(message: Message, *, signed: bool) -> list[dict[str, Any]]:
    """Return what the model sent, in order; replace text that has been edited since."""
    sent = _carried(message)
    if sum(_is_call(part) for part in sent) != len(message.tool_calls):
        sent = [part for part in sent if not _is_call(part)]
        calls = [_function_call(call) for call in message.tool_calls]
        if calls and signed:
            calls[0]["thoughtSignature"] = NO_SIGNATURE
        sent += calls
    said = text_of([part for part in sent if is_said(part)])
    if not isinstance(message.content, str) or not same_text(said, message.content):
        sent = [part for part in sent if not is_said(part)]
        at = next((at for at, part in enumerate(sent) if _is_call(part)), len(sent))
        sent[at:at] = [_part(part) for part in parts_of(message.content)]
    parts = [part for part in sent if part and part != {"text": ""}]
    return parts or [{"text": EMPTY}]


def _carried(message: Message) -> list[dict[str, Any]]:
    opaque = message.opaque
    return dicts_in(opaque.get(CARRIED)) if isinstance(opaque, Mapping) else []


def _is_call(part: dict[str, Any]) -> bool:
    return isinstance(part.get("functionCall"), dict)


def _function_call(call: ToolCall) -> dict[str, Any]:
    return {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}


def _function_response(message: Message, called: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a result with the name of its function, and the call's id if it had one."""
    call = called.get(message.tool_call_id or "")
    if call is None:
        raise ConfigError(
            f"a tool message answers the call {message.tool_call_id!r}, which no earlier message "
            "made: Gemini needs its function's name"
        )
    parts = [_part(part) for part in parts_of(message.content)]
    media = [part for part in parts if not is_said(part)]
    response = {
        **({"id": call["id"]} if call.get("id") else {}),
        "name": call.get("name"),
        "response": {"output": text_of([part for part in parts if is_said(part)])},
    }
    return {"functionResponse": {**response, "parts": media} if media else response}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a neutral part in Gemini's form; other parts are already Gemini's."""
    if part.get("type") == "text":
        return {"text": part.get("text")}
    image = image_of(part)
    if image is None:
        return part
    if image.data is not None:
        return {"inlineData": {"mimeType": image.media_type, "data": image.data}}
    media_type = image.media_type or mimetypes.guess_type(image.url)[0]
    return {"fileData": {**({"mimeType": media_type} if media_type else {}), "fileUri": image.url}}
