"""Requests in Anthropic's dialect: messages, cache marks and sampling options."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlm.clients._dialect import (
    EFFORTS,
    EMPTY,
    after_instructions,
    given_options,
    image_of,
    is_blank,
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
from rlm.messages import Message, Request, ToolCall

__all__ = ["CARRIED", "mark", "marks_in", "options_of", "plain_blocks", "system_of", "turns_of"]

CARRIED = "anthropic_content"
"""The key of `opaque` under which a reply's content travels back."""

THOUGHTS = ("thinking", "redacted_thinking")
MARKABLE = ("text", "image", "document", "tool_use", "tool_result")

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def system_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the blocks of the system messages at the beginning."""
    first = messages[: after_instructions(messages)]
    return [_block(part) for message in first for part in parts_of(message.content)]


def turns_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return all other messages, joining neighbours with the same role into one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages[after_instructions(messages) :]:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        if turn["role"] == "user":  # the result of a call must come first
            turn["content"].sort(key=lambda block: block.get("type") != "tool_result")
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [_text(EMPTY)]})
    _strip_end(turns[-1])
    return turns


def plain_blocks(text: str, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return an assistant's turn as blocks, from what a neutral message says about it."""
    said = [] if is_blank(text) else [_text(text)]
    return [*said, *(_tool_use(call) for call in calls)]


def marks_in(blocks: list[dict[str, Any]]) -> int:
    """Count the cache marks that the caller has set, including those in results."""
    inner = [block for each in blocks for block in dicts_in(each.get("content"))]
    return sum("cache_control" in block for block in (*blocks, *inner))


def mark(spare: int, *parts: list[dict[str, Any]]) -> None:
    """Mark the ends of the parts to cache, most important first.

    Copies what it marks, and sets at most `spare` marks.
    """
    for part in parts:
        places = [at for at, block in enumerate(part) if block.get("type", "text") in MARKABLE]
        if spare > 0 and places and "cache_control" not in part[places[-1]]:
            last = places[-1]
            part[last] = {**part[last], "cache_control": {"type": "ephemeral"}}
            spare -= 1


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "system":
        return [_block(part) for part in late_instructions(message)]
    if message.role == "tool":
        return [_tool_result(message)]
    if message.role == "assistant":
        return _assistant_blocks(message)
    return [_block(part) for part in parts_of(message.content)] or [_text(EMPTY)]


def _assistant_blocks(message: Message) -> list[dict[str, Any]]:
    """Return what the model sent, in order; replace text that has been edited since."""
    known = [call.id for call in message.tool_calls if not _NOT_IN_IDS.search(call.id)]
    sent = [block for block in _carried(message) if not _is_call(block) or block.get("id") in known]
    own = [_block(part) for part in parts_of(message.content)]
    said = text_of([block for block in sent if block.get("type") == "text"])
    if not isinstance(message.content, str) or not same_text(said, message.content):
        sent = [block for block in sent if block.get("type") != "text"]
        at = next((at for at, block in enumerate(sent) if _is_call(block)), len(sent))
        sent[at:at] = own
    sent_ids = [block.get("id") for block in sent if _is_call(block)]
    sent += [_tool_use(call) for call in message.tool_calls if call.id not in sent_ids]
    blocks = [block for block in sent if _is_sendable(block)]
    if not blocks or blocks[-1].get("type") in THOUGHTS:  # a turn cannot end with a thought
        blocks.append(_text(EMPTY))
    return blocks


def _carried(message: Message) -> list[dict[str, Any]]:
    opaque = message.opaque
    return dicts_in(opaque.get(CARRIED)) if isinstance(opaque, Mapping) else []


def _is_call(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _is_sendable(block: dict[str, Any]) -> bool:
    """Return whether a block is accepted: blank texts and unsigned thoughts are not."""
    if block.get("type") == "text":
        return not is_blank(block.get("text"))
    return block.get("type") != "thinking" or bool(block.get("signature"))


def _block(part: dict[str, Any]) -> dict[str, Any]:
    """Return a neutral part as a block; texts are the same, other parts are already Anthropic's."""
    image = image_of(part)
    if image is None:
        return part
    if image.data is None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    identity = _NOT_IN_IDS.sub("_", call.id)
    return {"type": "tool_use", "id": identity, "name": call.name, "input": call.arguments}


def _tool_result(message: Message) -> dict[str, Any]:
    if not message.tool_call_id:
        raise ConfigError("a tool message needs the tool_call_id of the call it answers")
    identity = _NOT_IN_IDS.sub("_", message.tool_call_id)
    result = {"type": "tool_result", "tool_use_id": identity}
    if isinstance(message.content, str):
        return result if is_blank(message.content) else {**result, "content": message.content}
    blocks = [_block(part) for part in parts_of(message.content)]
    return {**result, "content": blocks} if blocks else result


def _strip_end(turn: dict[str, Any]) -> None:
    """Strip trailing whitespace from a final assistant turn, which the model will continue."""
    last = turn["content"][-1]
    if turn["role"] == "assistant" and isinstance(last.get("text"), str):
        turn["content"][-1] = {**last, "text": last["text"].rstrip()}


NO_EQUIVALENT = (
    *("seed", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "logprobs", "top_logprobs"),
)
BUDGETED = re.compile(r"claude-(3-7|haiku-4-5|sonnet-4-[025]|opus-4-[0125])")
"""Models older than `effort` and adaptive thinking, which need a token budget to think."""

BUDGETS = {
    "minimal": 1024,
    "low": 1024,
    "medium": 4096,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def options_of(request: Request) -> dict[str, Any]:
    """Return the body's entries besides model, system and messages. Native names pass unchanged."""
    options = given_options(request.sampling)
    cap = output_cap(request, options)
    refuse(options, "Anthropic", NO_EQUIVALENT)
    _check_randomness(options)
    if stops := stops_of(options, "stop", "stop_sequences"):
        options["stop_sequences"] = stops
    if user := options.pop("user", None):
        options["metadata"] = {"user_id": user, **_dict(options, "metadata")}
    _translate_format(options)
    _translate_effort(options, request.model, cap)
    _fit_budget(options, cap)
    tools = [_tool(spec.name, spec.description, spec.parameters) for spec in request.tools]
    if tools := tools + list(options.pop("tools", ())):
        options["tools"] = tools
    _translate_choice(options)
    return {**options, "max_tokens": cap}


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", **parameters}
    return {"name": name, "description": description, "input_schema": schema}


def _check_randomness(options: dict[str, Any]) -> None:
    if "temperature" in options and "top_p" in options:
        raise ConfigError(
            "Claude models accept temperature or top_p, not both: remove one from sampling"
        )
    temperature = options.get("temperature", 0)
    if isinstance(temperature, int | float) and temperature > 1:
        raise ConfigError(f"Anthropic's temperature must be at most 1, not {temperature}")


def _translate_format(options: dict[str, Any]) -> None:
    if "response_format" not in options:
        return
    schema = schema_of(options.pop("response_format"))
    if schema == {}:
        raise ConfigError(
            "Anthropic has no response_format 'json_object': give a json_schema, or leave it out"
        )
    if schema is not None:
        form = {"type": "json_schema", "schema": schema}
        options["output_config"] = {"format": form, **_dict(options, "output_config")}


def _translate_effort(options: dict[str, Any], model: str, cap: int) -> None:
    """Translate effort, unless a native `thinking` or `output_config` is given."""
    effort = options.pop("reasoning_effort", None)
    if effort is None:
        return
    if effort not in EFFORTS:
        raise ConfigError(f"reasoning_effort must be one of {', '.join(EFFORTS)}, not {effort!r}")
    if effort == "none":
        options.setdefault("thinking", {"type": "disabled"})
    elif BUDGETED.search(model):
        if budget := thinking(BUDGETS[effort], cap):
            options.setdefault("thinking", {"type": "enabled", "budget_tokens": budget})
    else:
        level = "low" if effort == "minimal" else effort
        options["output_config"] = {"effort": level, **_dict(options, "output_config")}
        options.setdefault("thinking", {"type": "adaptive"})


def _fit_budget(options: dict[str, Any], cap: int) -> None:
    """Keep the thinking budget below max_tokens, which includes it."""
    asked = options.get("thinking")
    budget = asked.get("budget_tokens") if isinstance(asked, dict) else None
    if not isinstance(asked, dict) or not isinstance(budget, int) or budget < cap:
        return
    fitting = thinking(budget, cap)
    options["thinking"] = {**asked, "budget_tokens": fitting} if fitting else {"type": "disabled"}


def _translate_choice(options: dict[str, Any]) -> None:
    choice = options.get("tool_choice")
    if isinstance(choice, str):
        if choice not in TOOL_CHOICES:
            raise ConfigError(f"tool_choice must be auto, none or required, not {choice!r}")
        options["tool_choice"] = {"type": TOOL_CHOICES[choice]}
    elif isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        options["tool_choice"] = {"type": "tool", "name": choice["function"].get("name")}
    if options.pop("parallel_tool_calls", True) is False and options.get("tools"):
        choice = _dict(options, "tool_choice") or {"type": "auto"}
        options["tool_choice"] = {**choice, "disable_parallel_tool_use": True}


def _dict(options: dict[str, Any], name: str) -> dict[str, Any]:
    value = options.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"sampling {name} must be a dict, not {type(value).__name__}")
    return value
