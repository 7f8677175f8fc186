"""The checks of `rlm doctor`. Each returns plain data that never contains the value of a key."""

import asyncio
import importlib.util
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from rlm._util.distribution import install_command, own_name
from rlm.cli._models import COMPATIBLE, Server, choose, host_of
from rlm.environments.auto import CANDIDATES, known_problem, trial
from rlm.errors import CallRefused, ConfigError, RLMError
from rlm.limits import Limits
from rlm.protocols import BaseEnvironment, with_defaults
from rlm.settings.configuration import Defaults
from rlm.wiring.plugins import GROUPS, offers
from rlm.wiring.providers import first_set, usable_key
from rlm.wiring.registry import PROVIDERS, as_base_url, make_client, make_environment, split_model

SESSION_SECONDS = 30.0
EXTRAS = {
    "corpus": (("re2", "tantivy"), "rlm index, and corpora larger than memory"),
    "documents": (
        ("bs4", "mammoth", "markdownify", "olefile", "openpyxl", "pdfminer", "xlrd"),
        "PDF, Office and HTML files as contexts",
    ),
    "mcp": (("mcp",), "rlm mcp, and tools of MCP servers"),
    "otel": (("opentelemetry",), "spans and metrics for OpenTelemetry"),
    "places": (
        ("adlfs", "gcsfs", "huggingface_hub", "s3fs"),
        "files at s3://, az://, gs:// and hf:// addresses",
    ),
    "postgres": (("psycopg",), "PostgreSQL databases as contexts"),
    "server": (("prometheus_client", "python_multipart"), "rlm serve"),
    "tables": (("duckdb", "pyarrow", "pytz"), "Parquet files as tables, and DuckDB's SQL"),
    "typed": (("jsonschema", "pydantic"), "answers that satisfy a JSON schema"),
}
"""Extra → the modules it installs, and their purpose."""

ADAPTERS = {
    "gguf": ("xllamacpp", "gguf:FILE, a model in this process"),
    "litellm": ("litellm", "litellm/…, any model that litellm reaches"),
    "llm": ("llm", "llm/…, the models of the llm tool"),
}
"""Provider, which is also the name of the extra → the module it needs, and its purpose."""

SMALL_WINDOW_TOKENS = 16_000
GIVE_MORE = {
    "llamacpp": "start it with -c 32768",
    "ollama": "start it with OLLAMA_CONTEXT_LENGTH=32768",
    "vllm": "start it with --max-model-len 32768",
}


class ModelCheck(Struct, frozen=True):
    """The models that `rlm ask` would use, and any problem with them."""

    default: str
    sub_model: str
    why: str
    fallback: bool
    problem: str | None = None


def check_keys(variables: Mapping[str, str]) -> dict[str, bool]:
    """Return every key variable and whether it is set."""
    names = [name for each in PROVIDERS.values() for name in each.key_variables]
    return {name: bool(variables.get(name)) for name in dict.fromkeys(names)}


def check_addresses(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return every variable that sets an address: its host, and the providers that use it.

    The host is empty if the address is invalid. No other part is shown: it may contain a key.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, each in PROVIDERS.items():
        if variable := first_set(variables, each.base_url_variables):
            facts = found.setdefault(variable, {"host": "", "providers": []})
            facts["providers"].append(name)
            with suppress(ConfigError):
                facts["host"] = host_of(as_base_url(name, variables[variable]))
    return found


def check_model(
    variables: Mapping[str, str],
    servers: Collection[Server] = (),
    defaults: Defaults | None = None,
    doubtful: Collection[str] = (),
) -> ModelCheck:
    choice = choose(None, None, variables, lambda: servers, defaults, doubtful)
    problems = (_problem(name, variables) for name in choice.names)
    problem = next((each for each in problems if each is not None), None)
    sub_model = choice.sub_model or choice.model
    return ModelCheck(choice.model, sub_model, choice.why, choice.fallback, problem)


def _problem(model: str, variables: Mapping[str, str]) -> str | None:
    """Return why a model cannot be used, if so."""
    try:
        provider, _ = split_model(model)
        if provider in ADAPTERS and not check_adapters()[provider]:
            return f"{model} is not installed: {install_command(provider)}"
        make_client(model, variables)
    except ConfigError as error:
        return str(error)
    return None


def check_plugins() -> list[dict[str, Any]]:
    """What other distributions offer and, if it can't be loaded, why."""
    found = [offer for group in GROUPS for offer in offers(group).values()]
    return [
        {
            "kind": GROUPS[offer.group],
            "name": offer.name,
            "distribution": offer.distribution,
            "problem": offer.problem(),
        }
        for offer in found
        if offer.distribution != own_name()
    ]


def check_settings(
    variables: Mapping[str, str], defaults: Defaults | None = None, used: str = ""
) -> list[str]:
    """Return settings that are incomplete or ambiguous, with advice; `used` is the chosen model."""
    model = (defaults or Defaults()).values().get("model")
    if model or used.partition("/")[0] in COMPATIBLE:  # The server that an address names answers.
        variables = {"RLM_MODEL": model or used, **variables}
    found = [*_keys_and_addresses(variables)]
    usable = {name: key for name, each in PROVIDERS.items() if (key := usable_key(each, variables))}
    first = {key: name for name, key in reversed(usable.items())}
    chosen = [name for name, key in usable.items() if first[key] == name]
    found += _own_servers(variables, chosen)
    if len(chosen) > 1 and not variables.get("RLM_MODEL"):
        found.append(
            f"Keys for {', '.join(chosen)} are set: the first of them is used; "
            "run `rlm config set model provider/model`, or set RLM_MODEL=provider/model to choose."
        )
    return found


def _keys_and_addresses(variables: Mapping[str, str]) -> list[str]:
    found = []
    named = variables.get("RLM_MODEL")
    for name, each in PROVIDERS.items():
        key = next((k for k in each.key_variables if variables.get(k)), None)
        address = next((a for a in each.base_url_variables if variables.get(a)), None)
        if key and each.base_url is None and not address:
            if _is_only_for(name, key):
                wanted = each.base_url_variables[0]
                found.append(f"{key} is set, but {name} needs an address too: set {wanted}.")
        elif key and not each.default_model and not named and _is_only_for(name, key):
            found.append(
                f"{key} is set, but {name} has no default model: set RLM_MODEL={name}/MODEL."
            )
        elif address and each.needs_key and not (key or named) and each.dialect != "responses":
            found.append(_without_key(name, address, each.key_variables[0]))
        elif address == "LLM_BASE_URL" and not named:
            found.append(
                f"{address} is set, but no model is: set RLM_MODEL={name}/MODEL; `rlm setup` lists "
                "its models."
            )
    return found


def _own_servers(variables: Mapping[str, str], chosen: Sequence[str]) -> list[str]:
    """Return advice if a provider's default model would be requested from a server elsewhere."""
    if not chosen or variables.get("RLM_MODEL"):
        return []
    provider, model = chosen[0], PROVIDERS[chosen[0]].default_model
    variable = first_set(variables, PROVIDERS[provider].base_url_variables)
    if variable not in PROVIDERS["openai-compatible"].base_url_variables:
        return []
    there = f"{variable} is set, so its server gets the requests for {provider}/{model}"
    return [f"{there}: if that server has other models, run `rlm setup`, which lists them."]


def _is_only_for(provider: str, key: str) -> bool:
    """Return whether only this provider uses a key."""
    return all(key not in each.key_variables for n, each in PROVIDERS.items() if n != provider)


def _without_key(name: str, address: str, key: str) -> str:
    text = f"{address} is set, but {name} needs a key: set {key}"
    if address in PROVIDERS["openai-compatible"].base_url_variables:
        text += (
            ", or, if the server needs no key, RLM_MODEL=openai-compatible/MODEL; `rlm setup` "
            "lists its models"
        )
    return f"{text}."


def check_windows(servers: Collection[Server]) -> list[str]:
    """Return models whose server gives them a smaller window than a run needs."""
    return [
        f"{server.provider} runs {name} with a window of {size:,} tokens, too small for most runs: "
        f"{GIVE_MORE.get(server.provider, 'restart it with a larger one')}."
        for server in servers
        for name, size in server.windows.items()
        if size < SMALL_WINDOW_TOKENS
    ]


def check_adapters() -> dict[str, bool]:
    """Return every adapter and whether its packages are installed; nothing is imported."""
    return {
        name: importlib.util.find_spec(module) is not None for name, (module, _) in ADAPTERS.items()
    }


def check_extras() -> dict[str, bool]:
    """Return every extra and whether all of it is installed."""
    return {
        name: all(importlib.util.find_spec(module) for module in modules)
        for name, (modules, _) in EXTRAS.items()
    }


# -- the environment ------------------------------------------------------------------------------


class _NoHost:
    """A host that answers nothing: the code of a check makes no calls."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        raise CallRefused("a check makes no calls", limit="calls")


class EnvironmentCheck(Struct, frozen=True):
    """Whether cells can run in an environment, and what protects this machine.

    `works` is None for one that was not tried.
    """

    works: bool | None
    problem: str | None = None
    isolation: str = ""
    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class AutoCheck(Struct, frozen=True):
    """What `auto` chooses here, or None, and every candidate; those after it are not tried."""

    chosen: str | None
    candidates: dict[str, EnvironmentCheck]


def check_auto() -> AutoCheck:
    """Try the candidates of `auto` up to the first that works."""
    chosen, found = None, dict[str, EnvironmentCheck]()
    for name in CANDIDATES:
        if chosen is not None:
            problem = known_problem(name)
            found[name] = EnvironmentCheck(None if problem is None else False, problem)
            continue
        found[name] = check_environment(name)
        # An image that must be fetched first is reported, but is no reason to choose another.
        if found[name].works or (name == "docker" and _answers(name)):
            chosen = name
    return AutoCheck(chosen, found)


def _answers(name: str) -> bool:
    """Return whether `auto` would choose this environment."""

    async def tried() -> str | None:
        environment = with_defaults(make_environment(name))
        try:
            return await trial(environment)
        finally:
            await environment.close()

    return known_problem(name) is None and asyncio.run(tried()) is None


def check_limits(defaults: Defaults) -> str | None:
    """Return why no run may start: a limit of the project that can't be read."""
    try:
        defaults.check_limits()
    except ConfigError as error:
        return str(error)
    return None


def check_configured(name: str) -> str | None:
    """Return why code can't run in the environment that the settings name, if so."""
    try:
        environment = with_defaults(make_environment(name))
    except ConfigError as error:
        return f"The setting environment is {name}, which can't be used: {error}"
    if environment.is_paid and environment.problem() is None:
        return None  # A trial would cost money.
    problem = check_environment(name).problem
    return None if problem is None else f"The setting environment is {name}: {problem}"


def check_environment(name: str) -> EnvironmentCheck:
    """Open a real session and compute 1+1 in it."""
    try:
        environment = with_defaults(make_environment(name))
        if (problem := _problem_before(environment)) is not None:
            return EnvironmentCheck(False, problem)
        return asyncio.run(_tried(environment))
    except TimeoutError:
        return EnvironmentCheck(False, f"no answer within {SESSION_SECONDS:.0f} s")
    except (RLMError, OSError) as error:
        return EnvironmentCheck(False, str(error))


def _problem_before(environment: BaseEnvironment) -> str | None:
    """Return problems that are known without a trial, and skip trials that cost money."""
    problem = environment.problem()
    if problem is None and environment.is_paid:
        return "not tried, because it costs money; a key is set"
    return problem


async def _tried(environment: BaseEnvironment) -> EnvironmentCheck:
    limits = Limits()
    options = {
        "seed": 0,
        "tools": [],
        "kept_output_chars": limits.kept_output_chars,
        "cell_memory_bytes": limits.cell_memory_bytes,
    }
    try:
        async with asyncio.timeout(SESSION_SECONDS):
            if (problem := await environment.not_ready()) is not None:
                return EnvironmentCheck(False, problem)
            facts = await environment.describe()
            if environment.no_sandbox is not None:
                return EnvironmentCheck(True, None, str(facts["isolation"]))
            session = await environment.open(_NoHost(), options)
            result = await session.execute("print(1+1)", timeout_seconds=SESSION_SECONDS)
            await session.close()
            facts = await environment.describe()
    finally:
        await environment.close()
    printed = result.stdout if result.error is None else result.error.traceback
    problem = None if printed.strip() == "2" else f"1+1 printed {printed[:100]!r}"
    return EnvironmentCheck(
        problem is None,
        problem,
        ": ".join(str(facts[name]) for name in ("chosen", "isolation") if facts.get(name)),
        session.layers,
        tuple(facts.get("missing", ())),
    )
