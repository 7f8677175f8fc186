"""Any object with `complete(messages)` as a model: what other libraries call an adapter.

`ModelResponse` and `TokenUsage` are what such an object may return; any object with `text` will do.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlm.clients.callable import CallableClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply, Usage

__all__ = ["ModelResponse", "TokenUsage", "client_of_adapter"]

CHARS_A_TOKEN = 4


@dataclass(frozen=True)
class TokenUsage:
    """The tokens of one request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @classmethod
    def estimated(cls, prompt: str, completion: str) -> "TokenUsage":
        """Estimate the tokens of these texts."""
        sent, written = (-(-len(text) // CHARS_A_TOKEN) for text in (prompt, completion))
        return cls(sent, written, sent + written)

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class ModelResponse:
    """The reply of an adapter."""

    text: str
    usage: TokenUsage | None = None
    model_id: str | None = None


def client_of_adapter(adapter: Any) -> CallableClient:
    """Return a client that answers with `adapter.complete(messages, max_tokens=, temperature=)`.

    It gets only the parameters it accepts. It may be a coroutine function, and take a `prompt`
    in place of messages. It returns a text, or an object or dict with `text` and perhaps `usage`.
    """
    complete, takes = adapter.complete, _taken(adapter.complete)

    def options(max_tokens: int, sampling: dict[str, Any]) -> dict[str, Any]:
        if lost := sorted(name for name in sampling if not takes(name)):
            raise ConfigError(f"sampling sets {lost[0]!r}, but the model's complete() takes none")
        offered = {"max_tokens": max_tokens, "temperature": 0.0, **sampling}
        return {name: value for name, value in offered.items() if takes(name)}

    def with_messages(messages: list[Any], *, max_output_tokens: int, **sampling: Any) -> Any:
        return _reply(complete(messages, **options(max_output_tokens, sampling)))

    def with_prompt(prompt: str, *, max_output_tokens: int, **sampling: Any) -> Any:
        return _reply(complete(prompt, **options(max_output_tokens, sampling)))

    function: Callable[..., Any] = with_prompt if takes("prompt") == "first" else with_messages
    identity = getattr(adapter, "identity", None)
    return CallableClient(function, identity=identity if isinstance(identity, str) else None)


def _taken(function: Callable[..., Any]) -> Callable[[str], Any]:
    """Return a function that says how a parameter is passed: "first", by "name", or not at all."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return lambda name: "" if name == "prompt" else "name"
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError("a model's complete() must take the messages as its first argument")
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    known = {each.name for each in parameters[1:]}

    def how(name: str) -> str:
        if name == parameters[0].name:
            return "first"
        return "name" if takes_any or name in known else ""

    return how


def _reply(given: Any) -> Any:
    """Return a reply from what an adapter returned; for a coroutine, await it first."""
    if inspect.isawaitable(given):
        return _awaited(given)
    if isinstance(given, str | Reply) or (isinstance(given, Mapping) and "text" not in given):
        return given
    text = _field(given, "text")
    if not isinstance(text, str):
        kind = "nothing" if given is None else type(given).__name__
        raise ModelError(
            f"a model's complete() returned {kind}; return a str or an object with a text"
        )
    return Reply(text=text, usage=_usage(_field(given, "usage")))


async def _awaited(given: Any) -> Any:
    return _reply(await given)


def _usage(given: Any) -> Usage | None:
    """Return the usage that an adapter reports, or None if it reports none."""
    if given is None or isinstance(given, Usage):
        return given
    counts = [_field(given, name) for name in ("prompt_tokens", "completion_tokens")]
    if not any(counts):
        return None
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ModelError(
            "a model's complete() reported invalid usage: prompt_tokens and completion_tokens "
            "must be integers of at least 0"
        )
    return Usage(input_tokens=counts[0], output_tokens=counts[1], requests=1)


def _field(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
