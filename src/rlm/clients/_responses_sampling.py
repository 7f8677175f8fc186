"""Sampling in the names of chat completions, translated to those of /responses."""

from typing import Any

from rlm.clients._sampling import refuse
from rlm.errors import ConfigError

__all__ = ["native_sampling"]

NOT_THERE = (
    *("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs"),
    *("functions", "function_call", "prediction", "modalities", "audio"),
)
"""Options of chat completions that /responses has none for."""

HIDDEN_INPUT = ("previous_response_id", "conversation", "prompt")
"""They make the server add input that was never budgeted."""


def native_sampling(sampling: dict[str, Any]) -> dict[str, Any]:
    """The same options as /responses calls them; ConfigError for one that would get lost."""
    options = dict(sampling)
    refuse(options, "/responses", NOT_THERE)
    for name in HIDDEN_INPUT:
        if name in options:
            raise ConfigError(
                f"sampling {name} adds input on the server that no budget sees: leave it out"
            )
    if options.get("background"):
        raise ConfigError("sampling background is not possible: each reply is waited for")
    options.pop("n", None)
    _nest(options, "reasoning_effort", "reasoning", "effort")
    _nest(options, "verbosity", "text", "verbosity")
    if "response_format" in options:
        options["response_format"] = _format(options["response_format"])
        _nest(options, "response_format", "text", "format")
    if "tool_choice" in options:
        options["tool_choice"] = _choice(options["tool_choice"])
    return options


def _nest(options: dict[str, Any], name: str, holder: str, inside: str) -> None:
    """Move an option into a group, unless the group already says it."""
    value = options.pop(name, None)
    if value is None:
        return
    group = options.get(holder)
    options[holder] = {inside: value, **(group if isinstance(group, dict) else {})}


def _format(given: Any) -> Any:
    schema = given.get("json_schema") if isinstance(given, dict) else None
    return {"type": "json_schema", **schema} if isinstance(schema, dict) else given


def _choice(given: Any) -> Any:
    function = given.get("function") if isinstance(given, dict) else None
    return {"type": "function", **function} if isinstance(function, dict) else given
