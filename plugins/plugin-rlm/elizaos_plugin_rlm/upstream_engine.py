"""The upstream engine `rlms`: it blocks, so it runs in a thread; it reports no events."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from elizaos_plugin_rlm.config import BACKEND_OF_RUNTIME
from elizaos_plugin_rlm.engines import Answer, EngineSpec, EngineUnavailable, error_line, in_thread
from elizaos_plugin_rlm.generation import Generation
from elizaos_plugin_rlm.results import RLMCost, RLMTrajectory

__all__ = ["make"]

KEY_VARIABLES = {"azure_openai": "AZURE_OPENAI_API_KEY", "vercel": "AI_GATEWAY_API_KEY"}
ADDRESS_VARIABLES = {
    "azure_openai": ("azure_endpoint", "AZURE_OPENAI_ENDPOINT"),
    "openai": ("base_url", "OPENAI_BASE_URL"),
    "vllm": ("base_url", "VLLM_BASE_URL"),
}
KNOWN_TO_OPENAI = (
    *("temperature", "top_p", "max_tokens", "stop", "user", "seed", "extra_body"),
    *("frequency_penalty", "presence_penalty", "response_format"),
)
"""Keywords of the openai package; other sampling options are sent in the body."""


class UpstreamEngine:
    """One `RLM` of the upstream package, for one request."""

    def __init__(self, rlm: Any, root_model: str) -> None:
        self._rlm = rlm
        self._root_model = root_model

    async def answer(self, generation: Generation) -> Answer:
        """Return the answer, computed in a thread; a cancelled request stops waiting for it."""
        done = await in_thread(
            lambda: self._rlm.completion(generation.context, root_prompt=generation.query)
        )
        text = getattr(done, "response", done)
        cost = _cost(getattr(done, "usage_summary", None), self._root_model)
        return Answer(text=None if text is None else str(text), cost=cost)

    def trajectory(self) -> RLMTrajectory | None:
        return None

    def stop(self) -> None:
        """Do nothing: its thread cannot be stopped."""


def make(spec: EngineSpec) -> UpstreamEngine:
    """Make an engine for one request; raise EngineUnavailable with the reason if it fails.

    Its constructor checks nothing, so its client is made once beforehand, which needs a key and
    sends nothing.
    """
    config = spec.config
    (backend, model), (sub_backend, sub_model) = spec.root_model, spec.subcall_model
    if BACKEND_OF_RUNTIME in {backend, sub_backend}:
        raise EngineUnavailable(f"the backend {BACKEND_OF_RUNTIME!r} needs recursivelm, not rlms")
    if config.strategy != "rlm":
        raise EngineUnavailable(f"the strategy {config.strategy!r} needs recursivelm, not rlms")
    options: dict[str, Any] = {
        "backend": backend,
        "backend_kwargs": _client_options(spec, backend, model),
        "environment": config.environment,
        "environment_kwargs": dict(config.environment_kwargs),
        "max_iterations": config.max_iterations,
        "max_depth": config.max_depth,
        "max_budget": config.max_cost_usd,
        "max_timeout": config.max_seconds,
        "verbose": config.verbose,
    }
    if (sub_backend, sub_model) != (backend, model):
        options["other_backends"] = [sub_backend]
        options["other_backend_kwargs"] = [_client_options(spec, sub_backend, sub_model)]
    return UpstreamEngine(_constructed(options, config.environment), model)


def _constructed(options: dict[str, Any], environment: str) -> Any:
    """Construct the engine, after checking its client and the name of its environment."""
    try:
        engine = importlib.import_module("rlm").RLM
        clients: Any = importlib.import_module("rlm.clients")
        clients.get_client(options["backend"], dict(options["backend_kwargs"]))
        rlm = engine(**_accepted(engine, options))
    except Exception as error:
        raise EngineUnavailable(error_line(error)) from error
    listed = _environments()
    if listed and environment not in listed:
        raise EngineUnavailable(
            f"unknown environment {environment!r}; environments: {', '.join(listed)}"
        )
    return rlm


def _accepted(engine: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that this version of the package accepts."""
    known = inspect.signature(engine).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return options
    return {name: value for name, value in options.items() if name in known}


def _environments() -> tuple[str, ...]:
    """Return the names of its environments from its types; empty if they are not listed."""
    try:
        kinds = importlib.import_module("rlm.core.types").EnvironmentType
    except (ImportError, AttributeError):
        return ()
    return tuple(getattr(kinds, "__args__", ()))


def _client_options(spec: EngineSpec, backend: str, model: str) -> dict[str, Any]:
    """Return the options of its client, with keys and addresses from the runtime."""
    own = spec.config.backend_kwargs if backend == spec.config.backend else {}
    options: dict[str, Any] = {"model_name": model, **own}
    key = spec.variables.get(KEY_VARIABLES.get(backend, f"{backend.upper()}_API_KEY"))
    name, variable = ADDRESS_VARIABLES.get(backend, ("", ""))
    if key:
        options.setdefault("api_key", key)
    if name and (address := spec.variables.get(variable)):
        options.setdefault(name, address)
    if sampling := _sampling(spec.sampling):
        options["sampling_args"] = sampling
    return options


def _sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in sampling.items() if name in KNOWN_TO_OPENAI}
    others = {name: value for name, value in sampling.items() if name not in KNOWN_TO_OPENAI}
    return {**known, "extra_body": others} if others else known


def _cost(usage: Any, root_model: str) -> RLMCost | None:
    """Return the cost from its usage by model; that of the root's model is the root's."""
    by_model = getattr(usage, "model_usage_summaries", None)
    if not isinstance(by_model, Mapping):
        return None
    root = [each for name, each in by_model.items() if name == root_model]
    others = [each for name, each in by_model.items() if name != root_model]
    return RLMCost(
        root_input_tokens=sum(each.total_input_tokens for each in root),
        root_output_tokens=sum(each.total_output_tokens for each in root),
        subcall_input_tokens=sum(each.total_input_tokens for each in others),
        subcall_output_tokens=sum(each.total_output_tokens for each in others),
        total_cost_usd=getattr(usage, "total_cost", None),
        requests=sum(each.total_calls for each in by_model.values()),
    )
