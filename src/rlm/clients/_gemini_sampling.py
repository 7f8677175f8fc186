"""Sampling options as Gemini's generateContent takes them."""

import re
from typing import Any

from rlm.clients._sampling import (
    EFFORTS,
    given_options,
    output_cap,
    refuse,
    schema_of,
    stops_of,
    thinking,
)
from rlm.errors import ConfigError
from rlm.messages import Request, ToolSpec

__all__ = ["has_levels", "options_of"]

TOP_LEVEL = ("cachedContent", "labels", "safetySettings", "serviceTier", "store", "toolConfig")
"""Entries of the body itself; all others belong to its generationConfig."""

TOOL_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
WITH_LEVELS = re.compile(r"gemini-([3-9]|\d\d)")
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192}
LARGEST_BUDGET = 24_576


def has_levels(model: str) -> bool:
    """Whether it is of generation 3 or later: thinks in levels, and checks signatures of calls."""
    return WITH_LEVELS.search(model) is not None


def options_of(request: Request) -> dict[str, Any]:
    """The body's entries besides contents and instructions. Gemini's own names pass unchanged."""
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
    named = {_camel(name): value for name, value in options.items()}
    body = {name: named.pop(name) for name in TOP_LEVEL if name in named}
    if tools:
        body["tools"] = tools
    config = {**translated, **named, **{_camel(name): value for name, value in own.items()}}
    _translate_effort(config, request.model, cap)
    _translate_choice(config, body)
    return {**body, "generationConfig": {**config, "maxOutputTokens": cap}}


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """What has another name here, beyond the way it is spelled."""
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
    """`top_p` is `topP` on the wire; names that are written so already stay."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _translate_effort(config: dict[str, Any], model: str, cap: int) -> None:
    """Effort is a wish: a `thinkingConfig` with a level or a budget of its own wins over it."""
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
