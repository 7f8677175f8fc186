"""Look up settings: in the request, the runtime, the plugin's configuration, the environment.

The first of these that has a value counts. A runtime's settings hold secrets as well, so keys of
model providers are looked up in the same places.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from elizaos_plugin_rlm.config import RLMConfig, Source, variable_of
from elizaos_plugin_rlm.generation import option

__all__ = ["CONFIG_ATTRIBUTE", "Runtime", "Settings", "config_of"]

NOT_FROM_REQUESTS = frozenset({"backend_kwargs", "environment_kwargs"})
CONFIG_ATTRIBUTE = "rlm_config"
"""The attribute that `plugin_init` sets on a runtime."""


class Runtime(Protocol):
    """The part of elizaOS's runtime that this plugin uses."""

    @property
    def plugins(self) -> list[Any]: ...

    def get_setting(self, key: str) -> object | None: ...

    def get_service(self, service: str) -> Any: ...

    async def use_model(
        self,
        model_type: str,
        params: dict[str, Any] | None = None,
        provider: str | None = None,
        **kwargs: Any,
    ) -> Any: ...


class Settings(Mapping[str, str]):
    """Variables of one runtime: its settings, then the plugin's configuration, then os.environ."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._runtime = runtime

    def find(self, name: str) -> object:
        """Return the value as it was set, of any type, or None."""
        if self._runtime is not None:
            stored = getattr(self._runtime, CONFIG_ATTRIBUTE, None) or {}
            for value in (self._runtime.get_setting(name), stored.get(name)):
                if value is not None and value != "":
                    return value
        return os.environ.get(name)

    def __getitem__(self, name: str) -> str:
        value = self.find(name)
        if value is None:
            raise KeyError(name)
        return str(value)

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)


def config_of(
    params: Mapping[str, Any], runtime: Runtime | None, config: RLMConfig | None
) -> RLMConfig:
    """Return the configuration of one request; below it, a client's own replaces all sources."""
    if config is not None:
        known = config
        return RLMConfig.from_sources([_of_request(params), lambda name: getattr(known, name)])
    return RLMConfig.from_sources(
        [_of_request(params), *_of_runtime(runtime), lambda name: os.environ.get(variable_of(name))]
    )


def _of_request(params: Mapping[str, Any]) -> Source:
    """Return a source of the fields in a request; elizaOS's `model` is the root model.

    Options of clients and sandboxes are excluded: a request must not send our key elsewhere.
    """

    def find(name: str) -> object:
        value = None if name in NOT_FROM_REQUESTS else option(params, name)
        return params.get("model") if value is None and name == "root_model" else value

    return find


def _of_runtime(runtime: Runtime | None) -> list[Source]:
    """Return the sources runtime and plugin, by name of the variable or of the field."""
    if runtime is None:
        return []
    stored: Mapping[str, Any] = getattr(runtime, CONFIG_ATTRIBUTE, None) or {}

    def of_plugin(name: str) -> object:
        value = stored.get(variable_of(name))
        return stored.get(name) if value is None or value == "" else value

    return [lambda name: runtime.get_setting(variable_of(name)), of_plugin]
