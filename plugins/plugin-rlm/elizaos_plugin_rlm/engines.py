"""Find the engine behind `from rlm import RLM`, whichever package provides it, if any.

`recursivelm` runs on the event loop and reports how it found its answer. The upstream package
`rlms` blocks, so it runs in a thread.
"""

import asyncio
import importlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from elizaos_plugin_rlm.config import RLMConfig
from elizaos_plugin_rlm.generation import Generation
from elizaos_plugin_rlm.results import RLMCost, RLMTrajectory
from elizaos_plugin_rlm.settings import Runtime

__all__ = [
    "Answer",
    "Engine",
    "EngineSpec",
    "EngineUnavailable",
    "error_line",
    "find_engine",
    "in_thread",
    "known_secrets",
    "make_engine",
]

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "bedrock": "global.anthropic.claude-sonnet-5-5",
    "bedrock-openai": "openai.gpt-oss-120b-1:0",
    "cerebras": "gpt-oss-120b",
    "cohere": "command-a-03-2025",
    "deepseek": "deepseek-flash",
    "elizaos": "TEXT_LARGE",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "foundry": "claude-sonnet-5-5",
    "gemini": "gemini-3.5-flash",
    "groq": "llama-3.3-70b-versatile",
    "minimax": "MiniMax-M3",
    "mistral": "mistral-medium-3.5",
    "offline": "extractive",
    "openai": "gpt-5-mini",
    "openrouter": "openai/gpt-5-mini",
    "portkey": "@openai/gpt-5-mini",
    "together": "openai/gpt-oss-120b",
    "vercel": "openai/gpt-5-mini",
    "xai": "grok-4.7",
}
MAX_ERROR_CHARS = 500
MIN_SECRET_CHARS = 8
_SECRET = re.compile("key|token|secret|password", re.IGNORECASE)
INSTALL = "pip install . ./plugins/plugin-rlm in a checkout of recursivelm, or pip install rlms"

Result = TypeVar("Result")


class EngineUnavailable(Exception):
    """No engine is available; the text says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of an engine; if `text` is None, `detail` says why."""

    text: str | None
    detail: str = ""
    iterations: int | None = None
    depth: int | None = None
    stop_reason: str | None = None
    cost: RLMCost | None = None


class Engine(Protocol):
    """An engine for one request, so that requests cannot affect each other."""

    async def answer(self, generation: Generation) -> Answer: ...

    def trajectory(self) -> RLMTrajectory | None:
        """Return the trajectory so far, even after a failure; None if the engine has none."""

    def stop(self) -> None:
        """Ask an active request to end now."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """What is needed to make an engine."""

    config: RLMConfig
    sampling: Mapping[str, Any]
    variables: Mapping[str, str]
    runtime: Runtime | None = None
    secrets: tuple[str, ...] = ()

    def without(self, refused: Iterable[str]) -> "EngineSpec":
        """Return a copy without these sampling options."""
        kept = {name: value for name, value in self.sampling.items() if name not in {*refused}}
        return replace(self, sampling=kept)

    @property
    def root_model(self) -> tuple[str, str]:
        """Backend and model of the root."""
        return _model(self.config.backend, self.config.root_model)

    @property
    def subcall_model(self) -> tuple[str, str]:
        """Backend and model of the calls that code makes."""
        config = self.config
        backend = config.subcall_backend or config.backend
        if config.subcall_model or backend != config.backend:
            return _model(backend, config.subcall_model)
        return self.root_model


async def make_engine(spec: EngineSpec) -> Engine:
    """Make the engine in a thread, because importing it may take a while."""
    return await in_thread(lambda: _made(spec))


def _made(spec: EngineSpec) -> Engine:
    found = find_engine()
    if found is None:
        raise EngineUnavailable(f"no engine can be imported as rlm: {INSTALL}")
    kind = "recursivelm_engine" if hasattr(found, "aask") else "upstream_engine"
    made: Engine = importlib.import_module(f"elizaos_plugin_rlm.{kind}").make(spec)
    return made


def find_engine() -> Any:
    """Return the class `RLM` of the package `rlm`, or None."""
    try:
        return importlib.import_module("rlm").RLM
    except (ImportError, AttributeError):
        return None


async def in_thread(function: Callable[[], Result]) -> Result:
    """Run a blocking function in a thread and return its result.

    If the caller is cancelled, it stops waiting and the thread ends by itself. The thread is a
    daemon outside any pool, so it delays neither other work nor the end of the program.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the caller gets any error
            outcome.set_exception(error)

    threading.Thread(target=run, name="elizaos-plugin-rlm", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def known_secrets(*more: str) -> tuple[str, ...]:
    """Return the values of variables with secret names, except values too short to search for."""
    named = [value for name, value in os.environ.items() if _SECRET.search(name)]
    return tuple(value for value in (*named, *more) if len(value) >= MIN_SECRET_CHARS)


def error_line(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return an error as one short line without secrets; providers may send a page or our key."""
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "[hidden]")
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[:MAX_ERROR_CHARS]}…"


def _model(backend: str, name: str) -> tuple[str, str]:
    model = name.removeprefix(f"{backend}/") or DEFAULT_MODELS.get(backend, "")
    if not model:
        raise EngineUnavailable(f"the backend {backend!r} needs a model: set ELIZA_RLM_ROOT_MODEL")
    return backend, model
