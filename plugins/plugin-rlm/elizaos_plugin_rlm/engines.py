"""The engine behind `from rlm import RLM`, whichever package that is, and none if there is none.

`recursivelm` is asked on the event loop, and tells how it found its answer. The upstream package
`rlms` blocks, so it runs in a thread of its own.
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
    "EngineUnavailable",
    "Wanted",
    "find_engine",
    "in_thread",
    "known_secrets",
    "make_engine",
    "told",
]

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "elizaos": "TEXT_LARGE",
    "gemini": "gemini-3.5-flash",
    "groq": "llama-3.3-70b-versatile",
    "offline": "extractive",
    "openai": "gpt-5-mini",
    "openrouter": "openai/gpt-5-mini",
    "portkey": "@openai/gpt-5-mini",
    "vercel": "openai/gpt-5-mini",
}
MOST_TOLD_CHARS = 500
SHORTEST_SECRET_CHARS = 8
_SECRET = re.compile("key|token|secret|password", re.IGNORECASE)
INSTALL = "pip install . ./plugins/plugin-rlm in a checkout of recursivelm, or pip install rlms"

Result = TypeVar("Result")


class EngineUnavailable(Exception):
    """No engine can be had as things are; the text says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an engine came to; `text` is None if it came to nothing, and `detail` says why."""

    text: str | None
    detail: str = ""
    iterations: int | None = None
    depth: int | None = None
    stop_reason: str | None = None
    cost: RLMCost | None = None


class Engine(Protocol):
    """One engine for one request: nothing that a request sets can reach the next."""

    async def answer(self, generation: Generation) -> Answer: ...

    def trajectory(self) -> RLMTrajectory | None:
        """What is known so far, also after a failure; None if the engine tells nothing."""

    def stop(self) -> None:
        """Ask a request that goes on to end now."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an engine is made of."""

    config: RLMConfig
    sampling: Mapping[str, Any]
    variables: Mapping[str, str]
    runtime: Runtime | None = None
    secrets: tuple[str, ...] = ()

    def without(self, refused: Iterable[str]) -> "Wanted":
        """The same with fewer options of the models."""
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


async def make_engine(wanted: Wanted) -> Engine:
    """The engine, made in a thread: importing it may take a while."""
    return await in_thread(lambda: _made(wanted))


def _made(wanted: Wanted) -> Engine:
    found = find_engine()
    if found is None:
        raise EngineUnavailable(f"there is no engine to import as rlm: {INSTALL}")
    kind = "own_engine" if hasattr(found, "aask") else "upstream_engine"
    made: Engine = importlib.import_module(f"elizaos_plugin_rlm.{kind}").make(wanted)
    return made


def find_engine() -> Any:
    """`from rlm import RLM`, or None."""
    try:
        return importlib.import_module("rlm").RLM
    except (ImportError, AttributeError):
        return None


async def in_thread(function: Callable[[], Result]) -> Result:
    """What a blocking function returns. Who is cancelled stops waiting; the thread ends by itself.

    Threads of our own, because one that nobody waits for must hold up neither others nor the end
    of the program.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits is told
            outcome.set_exception(error)

    threading.Thread(target=run, name="elizaos-plugin-rlm", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def known_secrets(*more: str) -> tuple[str, ...]:
    """The values of our environment that its names call secret; short ones hide too much."""
    named = [value for name, value in os.environ.items() if _SECRET.search(name)]
    return tuple(value for value in (*named, *more) if len(value) >= SHORTEST_SECRET_CHARS)


def told(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """An error in one line, cut: what a model provider answers can be a whole page, or our key."""
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "[hidden]")
    return text if len(text) <= MOST_TOLD_CHARS else f"{text[:MOST_TOLD_CHARS]}…"


def _model(backend: str, name: str) -> tuple[str, str]:
    model = name.removeprefix(f"{backend}/") or DEFAULT_MODELS.get(backend, "")
    if not model:
        raise EngineUnavailable(f"the backend {backend!r} needs a model: set ELIZA_RLM_ROOT_MODEL")
    return backend, model
