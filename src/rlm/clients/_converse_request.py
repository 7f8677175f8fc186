"""Requests in the dialect of Bedrock's Converse, translated from Anthropic's blocks."""

import re
from typing import Any

from rlm.clients._anthropic_request import options_of as claude_options_of
from rlm.clients._anthropic_request import system_of, turns_of
from rlm.clients._dialect import given_options, output_cap, refuse, schema_of, stops_of
from rlm.clients._fields import dicts_in, dump
from rlm.clients._quirks import is_claude
from rlm.errors import ConfigError
from rlm.messages import Request

__all__ = ["body_of"]

NATIVE = (
    *("additionalModelResponseFieldPaths", "guardrailConfig", "outputConfig"),
    *("performanceConfig", "promptVariables", "requestMetadata", "serviceTier"),
)
"""Fields of Converse itself, which pass unchanged from sampling."""

INFERENCE = {"temperature": "temperature", "top_p": "topP", "topP": "topP"}
NO_EQUIVALENT = ("seed", "logit_bias", "logprobs", "top_logprobs", "user")
CHOICES: dict[str, dict[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}
CACHE_POINT = {"cachePoint": {"type": "default"}}
UNCACHED = re.compile(r"claude-(3-(?!7|5-haiku)|v\d|instant)")
"""Claude models that refuse cache points."""

FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


def body_of(request: Request) -> dict[str, Any]:
    """Return the whole body; the model is in the address."""
    options = given_options(request.sampling)
    cap = output_cap(request, options)
    content: dict[str, Any] = {name: options.pop(name) for name in NATIVE if name in options}
    content["inferenceConfig"] = {"maxTokens": cap, **_inference(options)}
    if tools := _tools(request, options):
        content["toolConfig"] = tools
    if schema := _schema(options):
        content.setdefault("outputConfig", schema)
    if more := _additional(request, options):
        content["additionalModelRequestFields"] = more
    system = [_block(block) for block in system_of(request.messages)]
    turns = [
        {"role": turn["role"], "content": [_block(block) for block in turn["content"]]}
        for turn in turns_of(request.messages)
    ]
    if request.grows and is_claude(request.model) and not UNCACHED.search(request.model):
        _mark_ends(system, turns)
    if system:
        content["system"] = system
    return {**content, "messages": turns}


def _inference(options: dict[str, Any]) -> dict[str, Any]:
    found = {INFERENCE[name]: options.pop(name) for name in INFERENCE if name in options}
    if stops := stops_of(options, "stop", "stop_sequences", "stopSequences"):
        found["stopSequences"] = stops
    return found


def _tools(request: Request, options: dict[str, Any]) -> dict[str, Any] | None:
    choice = options.pop("tool_choice", None)
    own = options.pop("toolConfig", None)
    options.pop("parallel_tool_calls", None)
    if own is not None and not isinstance(own, dict):
        raise ConfigError(f"sampling toolConfig must be a dict, not {type(own).__name__}")
    specs = [
        {
            "toolSpec": {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": {"type": "object", **tool.parameters}},
            }
        }
        for tool in request.tools
    ]
    config: dict[str, Any] = {**(own or {}), "tools": [*specs, *(own or {}).get("tools", ())]}
    if not config["tools"] or choice == "none":
        return None
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise ConfigError(f"tool_choice must be auto, none or required, not {choice!r}")
        config["toolChoice"] = CHOICES[choice]
    elif isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        config["toolChoice"] = {"tool": {"name": choice["function"].get("name")}}
    elif choice is not None:
        config["toolChoice"] = choice
    return config


def _schema(options: dict[str, Any]) -> dict[str, Any] | None:
    if "response_format" not in options:
        return None
    given = options.pop("response_format")
    schema = schema_of(given)
    if schema is None:
        return None
    if not schema:
        raise ConfigError(
            "Converse has no response_format 'json_object': give a json_schema, or leave it out"
        )
    name = given["json_schema"].get("name") or "answer"
    structure = {"jsonSchema": {"name": name, "schema": dump(schema).decode()}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}


def _additional(request: Request, options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that only the model understands."""
    refuse(options, "Converse", NO_EQUIVALENT)
    given = options.pop("additionalModelRequestFields", {})
    if not isinstance(given, dict):
        raise ConfigError("sampling additionalModelRequestFields must be a dict")
    if is_claude(request.model) and "reasoning_effort" in options:
        wanted = {"reasoning_effort": options.pop("reasoning_effort")}
        asked = Request(
            model=request.model,
            messages=request.messages,
            max_output_tokens=request.max_output_tokens,
            sampling=wanted,
        )
        translated = claude_options_of(asked)
        translated.pop("max_tokens")
        options = {**translated, **options}
    return {**options, **given}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """Return one of Anthropic's blocks in Converse's form; native blocks pass unchanged."""
    kind = block.get("type")
    if kind == "text":
        return {"text": block["text"]}
    if kind == "image":
        return _image(block.get("source"))
    if kind == "thinking":
        thought = {"text": block.get("thinking", ""), "signature": block.get("signature", "")}
        return {"reasoningContent": {"reasoningText": thought}}
    if kind == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": block.get("data", "")}}
    if kind == "tool_use":
        call = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
        return {"toolUse": call}
    if kind == "tool_result":
        return {"toolResult": {"toolUseId": block["tool_use_id"], "content": _result(block)}}
    return block


def _result(block: dict[str, Any]) -> list[dict[str, Any]]:
    content = block.get("content", "")
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [_block(each) for each in dicts_in(content)]


def _image(source: Any) -> dict[str, Any]:
    held = source if isinstance(source, dict) else {}
    form = FORMATS.get(str(held.get("media_type")))
    if held.get("type") != "base64":
        raise ConfigError("Converse does not accept image URLs: pass the image's data")
    if form is None:
        raise ConfigError(f"Converse accepts images as {', '.join(FORMATS)}")
    return {"image": {"format": form, "source": {"bytes": held["data"]}}}


def _mark_ends(system: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
    """Set cache points after the instructions, at the end, and where the last request ended."""
    if system:
        system.append(CACHE_POINT)
    users = [turn["content"] for turn in turns if turn["role"] == "user"]
    for content in users[-2:]:
        content.append(CACHE_POINT)
