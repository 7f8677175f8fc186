"""Where settings come from: the request, the runtime, the plugin's configuration, the environment.

In this order; the first that says anything counts. A runtime's own settings hold secrets as well,
so keys of model providers are looked for in the same places.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from elizaos_plugin_rlm.config import RLMConfig, Source, variable_of
from elizaos_plugin_rlm.generation import option

__all__ = ["CONFIG_ATTRIBUTE", "Runtime", "Settings", "config_of"]

NOT_FROM_REQUESTS = frozenset({"backend_kwargs", "environment_kwargs"})
CONFIG_ATTRIBUTE = "rlm_config"
"""What `plugin_init` sets on a runtime."""


class Runtime(Protocol):
    """All that is asked of elizaOS's runtime here; a small double can stand in for it."""

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
    """Variables as one runtime sees them: its settings before the plugin's, those before ours."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._runtime = runtime

    def find(self, name: str) -> object:
        """The value as it was set, of any type; None if nobody set it."""
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
    """The configuration of one request. A client's own, if it has one, is all there is below."""
    if config is not None:
        known = config
        return RLMConfig.from_sources([_of_request(params), lambda name: getattr(known, name)])
    return RLMConfig.from_sources(
        [_of_request(params), *_of_runtime(runtime), lambda name: os.environ.get(variable_of(name))]
    )


def _of_request(params: Mapping[str, Any]) -> Source:
    """Fields by their names; elizaOS's `model` is the root's.

    Not what clients and sandboxes are made with: a request must not send our key elsewhere.
    """

    def find(name: str) -> object:
        value = None if name in NOT_FROM_REQUESTS else option(params, name)
        return params.get("model") if value is None and name == "root_model" else value

    return find


def _of_runtime(runtime: Runtime | None) -> list[Source]:
    """What the runtime was told, then what the plugin was: by variable, or by the field's name."""
    if runtime is None:
        return []
    stored: Mapping[str, Any] = getattr(runtime, CONFIG_ATTRIBUTE, None) or {}

    def of_plugin(name: str) -> object:
        value = stored.get(variable_of(name))
        return stored.get(name) if value is None or value == "" else value

    return [lambda name: runtime.get_setting(variable_of(name)), of_plugin]
