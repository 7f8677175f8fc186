"""Run `rlm setup`: find what can answer here, choose one, and try it with a question."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from rlm import models
from rlm._util.finding import on_path
from rlm._util.text import UNKNOWN, cost_words
from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._errors import ANSWERED, FAILED, say
from rlm.cli._models import (
    COMPATIBLE,
    NOT_FOR_CHATS,
    PROGRAMS,
    Server,
    find_programs,
    find_servers,
    host_of,
    shown_address,
)
from rlm.cli._options import ADDRESS
from rlm.cli._output import short_path, show_table
from rlm.cli.keys import read_key, store_key
from rlm.errors import ConfigError, RLMError
from rlm.messages import Price
from rlm.settings.configuration import Defaults, set_value
from rlm.settings.keys import key_name
from rlm.wiring.providers import ALIASES, PROVIDERS, first_set, usable_key
from rlm.wiring.registry import (
    OFFLINE_MODEL,
    as_base_url,
    check_provider,
    make_client,
    split_model,
)

__all__ = ["Found", "find_models", "set_up"]

MODELS_A_SERVER = 3
QUESTION = "What is 2 + 2? Answer with the number alone."
LONGEST_SECONDS = 180.0
"""A local server may have to load the model first."""


class Found(NamedTuple):
    """A model that can be used here, its price per million tokens, and where it comes from."""

    model: str
    price: str
    origin: str


def set_up(wanted: str | None, *, yes: bool, tries: bool) -> int:
    """Choose a model, try it, store it, and return the exit code."""
    settings = dotenv.settings(os.environ, Path.cwd())
    if settings.notice:
        say(settings.notice)
    if wanted is not None:
        _refuse_address(wanted)
        model = settings.defaults.resolve(wanted)
        check_provider(model)
    else:
        servers = find_servers(settings.variables, settings.taken)
        found = find_models(settings, servers)
        for server in servers:
            if server.provider in COMPATIBLE and not server.models:
                say(_silent(server, settings.variables))
        if on_path("ollama") and any(_is_silent_ollama(each) for each in servers):
            say("Ollama is installed, but does not answer: start it with `ollama serve`.")
        model = _taken(found) if yes else _chosen(found, settings.defaults)
    variables = dotenv.settings(os.environ, Path.cwd()).variables  # with a key stored just now
    if tries:
        if (problem := _try(model, variables)) is not None:
            say(f"{model} did not answer a test question: {problem}")
            kept = (
                " A key that you entered is kept: see `rlm keys list`."
                if not (wanted or yes)
                else ""
            )
            return say(
                f"The default model is unchanged.{kept} Run `rlm setup` again, or pass --no-try.",
                FAILED,
            )
    else:
        make_client(model, variables)
    path = set_value(os.environ, "model", wanted if wanted in settings.defaults.aliases else model)
    say(f"{model} is now the default model, in {short_path(path)}.")
    if other := os.environ.get("RLM_MODEL"):
        say(f"RLM_MODEL is set to {other}, which takes precedence: unset it.")
    _tell_address(model, variables)
    say('Next: rlm ask "What is this about?" -f FILE')
    return ANSWERED


def _silent(server: Server, variables: Mapping[str, str]) -> str:
    """Say what to do about a named server that does not list its models."""
    variable = first_set(variables, PROVIDERS[server.provider].base_url_variables)
    return (
        f"{variable} is set to {server.address}, which lists no models: check it and its key, or "
        f"pass --model {server.provider}/MODEL."
    )


def _tell_address(model: str, variables: Mapping[str, str]) -> None:
    """Say that a model is reached only while its variable is set."""
    provider = split_model(model)[0]
    known = PROVIDERS.get(provider)
    variable = None if known is None else first_set(variables, known.base_url_variables)
    if variable is not None:
        host = host_of(as_base_url(provider, variables[variable]))
        say(f"Requests go to {host} only while {variable} is set: set it in your shell's profile.")


def _is_silent_ollama(server: Server) -> bool:
    return server.provider == "ollama" and not server.answers


# -- finding --------------------------------------------------------------------------------------


def find_models(settings: dotenv.Settings, servers: list[Server]) -> list[Found]:
    """Return what can answer here: by key, program, and server.

    A server that was named comes first, unless it has OpenAI's default model: then it stands in
    for OpenAI, and any of its models could be the first in its list.
    """
    named = [each for each in servers if each.provider in COMPATIBLE]
    local = [each for each in servers if each.provider not in COMPATIBLE]
    stands_in = any(PROVIDERS["openai"].default_model in each.models for each in named)
    by_key, by_name = _by_key(settings), _by_server(named)
    first = by_key + by_name if stands_in else by_name + by_key
    return [*first, *_by_program(), *_by_server(local)]


def _by_key(settings: dotenv.Settings) -> list[Found]:
    found = []
    for name, each in PROVIDERS.items():
        if key := usable_key(each, settings.variables):
            where = "key store" if key in settings.defaults.stored else key
            if address := first_set(settings.variables, each.base_url_variables):
                where += f", at {host_of(as_base_url(name, settings.variables[address]))}"
            model = f"{name}/{each.default_model}"
            found.append(Found(model, _price(models.about(*split_model(model)).price), where))
    return found


def _by_program() -> list[Found]:
    return [
        Found(model, "your plan", on_path(name) or "") for name, model in find_programs().items()
    ]


def _by_server(servers: list[Server]) -> list[Found]:
    return [
        Found(
            f"{server.provider}/{name}",
            UNKNOWN if server.provider in COMPATIBLE else "free",
            server.address,
        )
        for server in servers
        for name in [
            each
            for each in server.models
            if not any(word in each.lower() for word in NOT_FOR_CHATS)
        ][:MODELS_A_SERVER]
    ]


def _price(price: Price | None) -> str:
    if price is None:
        return UNKNOWN
    return f"{price.input_per_million:g}, {price.output_per_million:g}"


# -- choosing -------------------------------------------------------------------------------------


def _taken(found: list[Found]) -> str:
    if not found:
        raise ConfigError(_nothing())
    return found[0].model


def _nothing() -> str:
    programs = ", ".join(PROGRAMS)
    return (
        "found nothing that can answer: no key is set or stored, no model server answers on this "
        f"machine, and none of {programs} is on PATH. Run `rlm keys set openai` (or another "
        "provider), set OPENAI_BASE_URL to the address of a server with OpenAI's interface, or "
        "start Ollama and run `rlm models pull qwen3:8b`"
    )


def _chosen(found: list[Found], defaults: Defaults) -> str:
    """Show what was found, and ask; a provider's name asks for its key."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            "standard input is not a terminal: pass --yes, with or without --model",
            click.get_current_context(),
        )
    if found:
        rows = [[str(n), *each] for n, each in enumerate(found, 1)]
        show_table(["", "model", "$/M in, out", "from"], rows, name=1, right=0)
    else:
        told = _nothing()
        say(f"{told[:1].upper()}{told[1:]}.")
    which = "A number, provider/model" if found else "A model as provider/model"
    hint = f"{which}, or a provider such as openai to store its key"
    while True:
        typed = str(click.prompt(hint, default="1" if found else None, err=True)).strip()
        try:
            return _meant(typed, found, defaults)
        except ConfigError as error:
            say(str(error))


def _meant(typed: str, found: list[Found], defaults: Defaults) -> str:
    if typed.isascii() and typed.isdecimal():
        if not 1 <= int(typed[:9]) <= len(found):
            raise ConfigError(f"the table has no number {typed}")
        return found[int(typed) - 1].model
    _refuse_address(typed)
    provider = ALIASES.get(typed.lower(), typed.lower())
    if (known := PROVIDERS.get(provider)) is not None:
        if known.default_model is None:
            raise ConfigError(f"give {provider}/MODEL: {provider} has no default model")
        variable = key_name(provider)
        store_key(variable, read_key(variable))
        return f"{provider}/{known.default_model}"
    model = defaults.resolve(typed)
    check_provider(model)
    return model


def _refuse_address(typed: str) -> None:
    """Say how to use a server if its address is given for a model."""
    if ADDRESS.match(typed):
        raise ConfigError(
            f"{shown_address(typed)} is an address: set OPENAI_BASE_URL to it (and OPENAI_API_KEY, "
            "if it needs a key) and run `rlm setup` again, which lists its models"
        )


# -- trying ---------------------------------------------------------------------------------------


def _try(model: str, variables: Mapping[str, str]) -> str | None:
    """Ask one question; return what is wrong, or None. The answer is shown, right or wrong."""
    free = split_model(model)[0] in {"ollama", "lmstudio", "llamacpp", "gguf", "offline"}
    say(f"Asking {model} one question{'' if free else '; it may cost a fraction of a cent'} …")
    if model == OFFLINE_MODEL:
        return None
    # With a handler, logging prints nothing by itself.
    logging.getLogger("rlm").addHandler(logging.NullHandler())
    try:
        with RLM(
            model,
            strategy="direct",
            limits={"max_seconds": LONGEST_SECONDS, "step_output_tokens": 1_024},
            client_options={model: {"max_attempts": 1}},
            variables=variables,
        ) as engine:
            result = engine.ask(QUESTION)
    except RLMError as error:
        return str(error)
    if result.answer is None:
        return result.detail or result.stop_reason
    usage = result.usage.total
    cost = cost_words(usage.cost_usd)
    say(f"It answered {str(result.answer)!r} ({usage.total_tokens:,} tokens, {cost}).")
    return None
