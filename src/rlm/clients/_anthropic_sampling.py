"""Sampling options as Anthropic's messages API takes them."""

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
from rlm.messages import Request

__all__ = ["options_of"]

NO_EQUIVALENT = (
    *("seed", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "logprobs", "top_logprobs"),
)
BUDGETED = re.compile(r"claude-(3-7|haiku-4-5|sonnet-4-[025]|opus-4-[0125])")
"""Models from before `effort` and adaptive thinking: they think only within a budget of tokens."""

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
    """The body's entries besides model, system and messages. Names of its own pass unchanged."""
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
            "Claude models take temperature or top_p, not both: leave one out of sampling"
        )
    temperature = options.get("temperature", 0)
    if isinstance(temperature, int | float) and temperature > 1:
        raise ConfigError(f"Anthropic's temperature ends at 1: lower {temperature}")


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
    """Effort is a wish: a `thinking` or `output_config` of Anthropic's own wins over it."""
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
    """Thoughts count toward max_tokens, and a budget that is not below it is refused."""
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
