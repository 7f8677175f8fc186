"""What `rlm doctor` looks at. Every check returns plain data; no key's value is ever among it."""

import asyncio
import http.client
import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from rlm.cli._models import choose
from rlm.errors import CallRefused, ConfigError, RLMError
from rlm.limits import Limits
from rlm.registry import PROVIDERS, make_client, make_environment

ANSWER_SECONDS = 0.7
SESSION_SECONDS = 30.0
LARGEST_ANSWER_BYTES = 65_536
SHOWN_MODELS = 5
EXTRAS = {
    "documents": (("markitdown",), "PDF, Office and HTML files as contexts"),
    "typed": (("jsonschema", "pydantic"), "answers that satisfy a JSON schema"),
}
"""Extra → the modules it brings, and what they are good for."""


class ModelCheck(Struct, frozen=True):
    """The models a plain `rlm ask` would use, and what is wrong with them, if anything."""

    default: str
    sub_model: str
    why: str
    fallback: bool
    problem: str | None = None


class ServerCheck(Struct, frozen=True):
    """A model server on this machine, at its usual port."""

    provider: str
    address: str
    answers: bool
    models: tuple[str, ...] = ()


def check_keys(variables: Mapping[str, str]) -> dict[str, bool]:
    """Every key variable, and whether it is set."""
    names = [name for each in PROVIDERS.values() for name in each.key_variables]
    return {name: bool(variables.get(name)) for name in dict.fromkeys(names)}


def check_model(variables: Mapping[str, str]) -> ModelCheck:
    choice = choose(None, None, variables)
    problem = None
    try:
        for name in choice.names:
            make_client(name, variables)
    except ConfigError as error:
        problem = str(error)
    sub_model = choice.sub_model or choice.model
    return ModelCheck(choice.model, sub_model, choice.why, choice.fallback, problem)


def check_extras() -> dict[str, bool]:
    """Every extra, and whether all of it is installed."""
    return {
        name: all(importlib.util.find_spec(module) for module in modules)
        for name, (modules, _) in EXTRAS.items()
    }


# -- the environment ------------------------------------------------------------------------------


class _NoHost:
    """Answers nothing: the code of a check calls nobody."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        raise CallRefused("a check makes no calls", limit="calls")


class EnvironmentCheck(Struct, frozen=True):
    """Whether cells can run there, what protects this machine from them, and what does not."""

    works: bool
    problem: str | None = None
    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def check_environment(name: str) -> EnvironmentCheck:
    """Open a real session and compute 1+1 in it."""
    try:
        printed, layers, missing = asyncio.run(_one_and_one(name))
    except TimeoutError:
        return EnvironmentCheck(False, f"no answer within {SESSION_SECONDS:.0f} s")
    except (RLMError, OSError) as error:
        return EnvironmentCheck(False, str(error))
    problem = None if printed.strip() == "2" else f"1+1 printed {printed[:100]!r}"
    return EnvironmentCheck(problem is None, problem, layers, missing)


async def _one_and_one(name: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    environment, limits = make_environment(name), Limits()
    options = {
        "seed": 0,
        "tools": [],
        "kept_output_chars": limits.kept_output_chars,
        "cell_memory_bytes": limits.cell_memory_bytes,
    }
    try:
        async with asyncio.timeout(SESSION_SECONDS):
            session = await environment.open(_NoHost(), options)
            result = await session.execute("print(1+1)", timeout_seconds=SESSION_SECONDS)
            await session.close()
            describe = getattr(environment, "describe", None)
            facts = {} if describe is None else await describe()
    finally:
        await environment.close()
    printed = result.stdout if result.error is None else result.error.traceback
    return printed, getattr(session, "layers", ()), tuple(facts.get("missing", ()))


# -- servers on this machine ----------------------------------------------------------------------


def check_servers() -> list[ServerCheck]:
    """Who answers at the usual ports; all are asked at once, and none for long."""
    addresses = {
        name: each.base_url
        for name, each in PROVIDERS.items()
        if each.base_url is not None and urlsplit(each.base_url).hostname == "localhost"
    }
    found: dict[str, tuple[str, ...] | None] = {}

    def ask(name: str, address: str) -> None:
        found[name] = probe(address)

    threads = [threading.Thread(target=ask, args=pair, daemon=True) for pair in addresses.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * ANSWER_SECONDS)
    return [
        ServerCheck(name, address, found.get(name) is not None, found.get(name) or ())
        for name, address in addresses.items()
    ]


def probe(address: str) -> tuple[str, ...] | None:
    """The models of a server on this machine; None if nothing there is a model server."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", f"{parts.path}/models")
        response = connection.getresponse()
        listed = json.loads(response.read(LARGEST_ANSWER_BYTES))["data"]
        return tuple(str(each["id"])[:80] for each in listed[:SHOWN_MODELS])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None
    finally:
        connection.close()
