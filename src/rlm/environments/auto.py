"""`environment="auto"`, the default: the first environment that can isolate code here.

That is `local` where its layers hold, which needs Linux; else `wasm`; else `docker`, if an engine
answers. `inprocess`, which isolates nothing, is never chosen.
"""

import asyncio
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from rlm._util.distribution import install_command, own_name
from rlm.errors import ConfigError, SessionError
from rlm.protocols import BaseEnvironment, BaseSession, ContextSource, Host

__all__ = [
    "CANDIDATES",
    "AutoEnvironment",
    "known_problem",
    "meant_by_local",
    "nothing_isolates",
    "refusal",
    "trial",
]

CANDIDATES = ("local", "wasm", "docker")
"""In the order of preference: the first that works is chosen."""

_log = logging.getLogger(__name__)

_ENGINE_SECONDS = 10.0


class AutoEnvironment(BaseEnvironment):
    """Opens sessions in the environment that it chooses, whose name it takes.

    The constructor uses what is known about this system; `decide` tries out the rest.
    """

    name = "auto"
    is_sandbox = True

    def __init__(self, make: Callable[[str], BaseEnvironment]) -> None:
        """`make` returns the environment with that name, with the user's options."""
        self._make = make
        self._made: dict[str, BaseEnvironment] = {}
        self._chosen: BaseEnvironment | None = None
        self._is_decided = False
        self.reason = ""
        """Why an environment other than the expected one was chosen, if so."""
        refusals: dict[str, str] = {}
        for name in CANDIDATES[:-1]:  # The last one has to be tried.
            if (problem := known_problem(name)) is None:
                self._adopt(self._of(name, refusals))
                break
            refusals[name] = problem

    @classmethod
    def problem(cls) -> str | None:
        """Return why no environment works here, as far as that is known without a trial."""
        found = {name: known_problem(name) for name in CANDIDATES}
        refusals = {name: each for name, each in found.items() if each is not None}
        return nothing_isolates(refusals) if len(refusals) == len(found) else None

    async def decide(self) -> BaseEnvironment:
        """Return the environment; ConfigError if none can isolate code here.

        `local` is tried by starting the process that its first session needs anyway, so on Linux
        this costs nothing extra.
        """
        if self._chosen is not None and self._is_decided:
            return self._chosen
        refusals: dict[str, str] = {}
        for name in CANDIDATES:
            problem = known_problem(name)
            if problem is None:
                made = self._of(name, refusals)
                problem = await trial(made)
            if problem is not None and name == self.name:  # It was expected to work.
                self.reason = f"skipped {name!r}: {problem}"
            if problem is None:
                self._adopt(made)
                self._is_decided = True
                if self.reason:
                    _log.warning("environment='auto' chose %r: it %s", made.name, self.reason)
                return made
            refusals[name] = problem
        raise ConfigError(nothing_isolates(refusals))

    async def open(self, host: Host, options: dict[str, Any]) -> BaseSession:
        """Start a session in the environment that works here."""
        return await (await self.decide()).open(host, options)

    async def not_ready(self) -> str | None:
        """Return what the first session would have to wait for."""
        return await (await self.decide()).not_ready()

    async def describe(self) -> dict[str, Any]:
        """Return which environment was chosen, and what isolates cells there."""
        chosen = await self.decide()
        why = {"reason": self.reason} if self.reason else {}
        return {"chosen": chosen.name, **why, **await chosen.describe()}

    async def prepare(self, context: ContextSource) -> None:
        """Do the slow part of `load` in advance."""
        await (await self.decide()).prepare(context)

    async def close(self) -> None:
        """Close the sessions that are still open."""
        for each in list(self._made.values()):
            await each.close()

    def _of(self, name: str, refusals: Mapping[str, str]) -> BaseEnvironment:
        if name not in self._made:
            try:
                self._made[name] = self._make(name)
            except ConfigError as error:
                if name == CANDIDATES[0]:
                    raise
                why = "".join(f"{each}: {problem}; " for each, problem in refusals.items())
                raise ConfigError(
                    f"environment='auto' chose {name!r} here ({why}{error}): name the environment "
                    "you want, or omit the option"
                ) from error
        return self._made[name]

    def _adopt(self, chosen: BaseEnvironment) -> None:
        self._chosen = chosen
        self.name = chosen.name
        self.lacks, self.patience = chosen.lacks, chosen.patience


def known_problem(name: str) -> str | None:
    """Return why a candidate can't be used here, as far as that is known without a trial."""
    # Imported one by one: usually the first one works, and no other is needed.
    if name == "local":
        from rlm.environments.local import LocalEnvironment

        return LocalEnvironment.problem()
    if name == "wasm":
        from rlm.environments.wasm import WasmEnvironment

        return WasmEnvironment.problem()
    from rlm.environments.docker import DockerEnvironment

    return DockerEnvironment.problem()


async def refusal(environment: BaseEnvironment) -> str | None:
    """Return why no session can be opened, as far as that is known without starting anything."""
    obstacle = getattr(environment, "obstacle", environment.problem)()
    if obstacle is None and environment.name == "docker":
        return await trial(environment)
    return None if obstacle is None else str(obstacle)


async def trial(environment: BaseEnvironment) -> str | None:
    """Try a candidate that may work; return why it does not, or None if it does."""
    try:
        if environment.name == "local":
            await environment.describe()
        elif environment.name == "docker":
            async with asyncio.timeout(_ENGINE_SECONDS):
                await environment.not_ready()  # Having to fetch an image is no problem.
    except TimeoutError:
        return f"no engine answered within {_ENGINE_SECONDS:.0f} s"
    except (ConfigError, SessionError, OSError) as error:
        return str(error)
    return None


def nothing_isolates(refusals: Mapping[str, str]) -> str:
    """Return a message that says what to do if no candidate works, and why none does."""
    import platform

    if sys.platform == "win32" and platform.machine() == "ARM64":  # pyeryx has no wheel for it.
        advice = "start Docker, or use WSL 2"
    elif sys.version_info >= (3, 12):
        advice = f"run: {install_command('wasm')}"
    elif sys.platform == "linux":
        advice = (
            "use Python 3.12 or newer (uv venv --python 3.13) and run "
            f"{install_command('wasm')}, or start Docker"
        )
    else:
        advice = (
            f"use Python 3.12 or newer, where {own_name()} includes WebAssembly "
            "(uv venv --python 3.13), or start Docker"
        )
    first = {name: problem.partition(". ")[0] for name, problem in refusals.items()}
    reasons = "; ".join(f"{name}: {problem}" for name, problem in first.items())
    return f"no environment here can isolate model-written code; {advice}. ({reasons})"


def meant_by_local() -> str:
    """Return what `local` means in a program for the reference engine: off Linux, `auto`.

    In such a program, `local` names the machine, not a kind of isolation. Warns once.
    """
    if sys.platform == "linux":
        return "local"
    warnings.warn(
        "environment='local' can't isolate code on this system, so 'auto' is used instead; pass "
        "environment='auto' to choose it explicitly",
        UserWarning,
        stacklevel=4,
    )
    return "auto"
