"""Which models a command uses, and why: options, then variables, then what needs no key."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from rlm.cli._servers import LOCAL, Server, find_servers, first_model
from rlm.errors import ConfigError
from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS, default_model, split_model

OFFLINE_NOTICE = (
    f"No model is configured (set a key such as OPENAI_API_KEY, set RLM_MODEL, or pass -m): "
    f"{OFFLINE_MODEL} answers. It finds passages; it is not a language model."
)


class Choice(NamedTuple):
    """The models of a run. `why` is for people; `fallback` means that nobody chose.

    `server`: the one that was found on this machine, when there was nothing else to go by.
    """

    model: str
    sub_model: str | None
    why: str
    fallback: bool = False
    server: Server | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model,) if self.sub_model is None else (self.model, self.sub_model)

    @property
    def notice(self) -> str | None:
        """What has to be said when nobody chose the model."""
        if self.fallback:
            return OFFLINE_NOTICE
        if self.server is not None:
            return f"No model is configured: {self.model} answers, at {self.server.address}."
        return None


def _nobody() -> Collection[Server]:
    return ()


def choose(
    model: str | None,
    sub_model: str | None,
    variables: Mapping[str, str],
    look: Callable[[], Collection[Server]] = _nobody,
) -> Choice:
    """The models that were asked for, or what the variables lead to, or what `look` finds here."""
    sub_model = sub_model or variables.get("RLM_SUB_MODEL") or None
    if model:
        return Choice(model, sub_model, "it was asked for")
    found = default_model(variables)
    if found is not None:
        return Choice(found, sub_model, _reason(found, variables))
    if here := first_model(look()):
        server, name = here
        why = f"no model is configured and {server.provider} answers at {server.address}"
        return Choice(f"{server.provider}/{name}", sub_model, why, server=server)
    return Choice(OFFLINE_MODEL, sub_model, "no model is configured", fallback=True)


def windows_of(
    choice: Choice, variables: Mapping[str, str], doubtful: Collection[str]
) -> dict[str, int]:
    """Of the models on local servers, the windows that these run them with."""
    wanted = {name: _parts(name) for name in choice.names}
    providers = {provider for provider, _ in wanted.values() if provider in LOCAL}
    known = {choice.server.provider: choice.server} if choice.server is not None else {}
    if missing := providers - known.keys():
        servers = find_servers(variables, doubtful, only=missing)
        known |= {server.provider: server for server in servers}
    return {
        name: known[provider].windows[wire_name]
        for name, (provider, wire_name) in wanted.items()
        if provider in known and wire_name in known[provider].windows
    }


def _parts(model: str) -> tuple[str, str]:
    try:
        return split_model(model)
    except ConfigError:
        return "", model


def _reason(model: str, variables: Mapping[str, str]) -> str:
    if variables.get("RLM_MODEL") == model:
        return "RLM_MODEL names it"
    try:
        provider = PROVIDERS[split_model(model)[0]]
    except (ConfigError, KeyError):
        return "it is the default"
    key = next(name for name in provider.key_variables if variables.get(name))
    return f"{key} is set"
