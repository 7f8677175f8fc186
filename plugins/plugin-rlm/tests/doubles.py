"""Test doubles: a minimal runtime, and an engine that only blocks."""

import threading
from types import ModuleType
from typing import Any

__all__ = ["RuntimeDouble", "upstream_double"]


class RuntimeDouble:
    """The methods of elizaOS's runtime that the plugin calls, with a record of the calls."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.plugins: list[Any] = []
        self.services: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.reply = "```repl\nFINAL(len(context))\n```"

    def get_setting(self, key: str) -> object | None:
        return self.settings.get(key)

    def get_service(self, service: str) -> Any:
        return self.services.get(service)

    async def register_plugin(self, plugin: Any) -> None:
        self.plugins.append(plugin)

    async def use_model(
        self,
        model_type: str,
        params: dict[str, Any] | None = None,
        provider: str | None = None,
        **more: Any,
    ) -> Any:
        self.asked.append((model_type, {**(params or {}), **more}, provider))
        return self.reply


class _Completion:
    def __init__(self, response: str) -> None:
        self.response = response


def upstream_double(
    made: list[dict[str, Any]], gate: threading.Event | None = None, error: Exception | None = None
) -> dict[str, ModuleType]:
    """Return modules like the upstream package; its engine blocks until the gate opens."""

    class RLM:
        def __init__(self, **options: Any) -> None:
            made.append(options)

        def completion(self, prompt: Any, root_prompt: str | None = None) -> _Completion:
            if gate is not None:
                assert gate.wait(30), "nobody opened the gate"
            if error is not None:
                raise error
            return _Completion(f"{root_prompt and 'asked'}: {prompt}")

    engine, clients = ModuleType("rlm"), ModuleType("rlm.clients")
    vars(engine).update(RLM=RLM, clients=clients)
    vars(clients).update(get_client=lambda backend, options: (backend, options))

    return {"rlm": engine, "rlm.clients": clients}
