"""How to ask the same again: a recorded run as a Python program and as a command line.

Logs are untrusted, and people paste this into terminals. So every text is quoted, and characters
that a terminal would act on, or that hide or move others, are written as escapes.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from rlm.citations import CITE_LINE
from rlm.config import RunConfig
from rlm.errors import ConfigError
from rlm.events import RunStarted
from rlm.limits import Limits

__all__ = ["as_command", "as_python", "recipes_of", "shell_word"]

MAX_CHARS = 20_000
OPTIONS = {
    "max_steps": "--max-steps",
    "max_depth": "--max-depth",
    "max_cost_usd": "--budget-usd",
    "max_tokens": "--max-tokens",
    "max_seconds": "--timeout",
}
CONFIG = ("strategy", "preview_chars", "setup_code", "system_prompt", "protocol", "sampling")
OTHER_ENVIRONMENTS = ("agent", "docker", "ipython", "wasm")
"""A record may name these: they isolate code. The reader has to choose any other."""

_RISKY = frozenset("'\"\\&|<>^%!\u2018\u2019\u201a\u201b\u201c\u201d\u201e")
"""What ends a quoted text, or does something inside one, in some shell.

dash and fish have other rules for backslashes, PowerShell treats typographic quotes as quotes,
cmd.exe has no single quotes, and csh replaces `!` everywhere.
"""


class _Settings(Struct, frozen=True):
    config: RunConfig
    environment: str = ""
    own: tuple[str, ...] = ()
    answer_schema: dict[str, Any] | None = None
    samples: int = 1
    tools: tuple[Any, ...] = ()
    operator: dict[str, Any] | None = None
    values: tuple[str, ...] = field(default_factory=tuple)


def recipes_of(started: RunStarted | None) -> dict[str, str | None]:
    """Return both recipes, and why there are none if the record is not enough."""
    nothing = {"python": None, "command": None}
    if started is None:
        return {**nothing, "why_not_copy": "this run has not reported its settings"}
    if started.parent_id is not None:
        return {**nothing, "why_not_copy": "a child run is asked by its parent; copy the root run"}
    try:
        settings = msgspec.convert(started.settings, _Settings)
    except (msgspec.ValidationError, ConfigError, RecursionError):
        return {**nothing, "why_not_copy": "the record does not say how this run was configured"}
    if settings.operator is not None:
        return {**nothing, "why_not_copy": "this was an operator of a program, not a question"}
    if any(map(_is_program, (settings.config.model, settings.config.sub_model))):
        why = "its model was a program of the machine where it ran; name a model of your own"
        return {**nothing, "why_not_copy": why}
    if len(started.query) > MAX_CHARS:
        return {**nothing, "why_not_copy": "the query is too long to be copied"}
    only = [*(str(each.get("name", "")) for each in settings.tools if isinstance(each, dict))]
    only += [*settings.own, *settings.values]
    return {
        "python": as_python(started, settings, only),
        "command": as_command(started, settings),
        "why_not_copy": None,
    }


def as_python(started: RunStarted, settings: _Settings, only: list[str]) -> str:
    """Return a program that asks the same."""
    config = settings.config
    limits = _changed_limits(config.limits)
    arguments = [repr(config.model)]
    if config.sub_model != config.model:
        arguments.append(f"sub_model={config.sub_model!r}")
    if settings.environment in OTHER_ENVIRONMENTS:
        arguments.append(f"environment={settings.environment!r}")
    if limits:
        named = ", ".join(f"{name!r}: {value!r}" for name, value in limits.items())
        arguments.append(f"limits={{{named}}}")
    arguments += [f"{name}={value!r}" for name, value in _changed(config).items()]
    body = "".join(f"    {each},\n" for each in arguments)
    asked = [repr(started.query), "context"]
    if settings.samples > 1:
        asked.append(f"samples={settings.samples}")
    if settings.answer_schema is not None:
        asked.append(f"response_model={settings.answer_schema!r}")
    missing = f"# It also had these, which only its program has: {only!r}\n" if only else ""
    return (
        "from rlm import RLM\n\n"
        f"# The context was: {started.context_description[:200]!r}\n"
        'context = open("context.txt", encoding="utf-8").read()\n'
        f"{missing}"
        f"rlm = RLM(\n{body})\n"
        f"result = rlm.ask(\n    {f',{chr(10)}    '.join(asked)},\n)\n"
        "print(result.answer)\n"
    )


def as_command(started: RunStarted, settings: _Settings) -> str:
    """Return a command line for a POSIX shell that asks the same."""
    config = settings.config
    words = ["rlm", "ask", shell_word(started.query), "-f", "context.txt"]
    words += ["-m", shell_word(config.model)]
    if config.sub_model != config.model:
        words += ["--sub-model", shell_word(config.sub_model)]
    if settings.environment in OTHER_ENVIRONMENTS:
        words += ["--environment", shell_word(settings.environment)]
    if config.strategy != "rlm":
        words += ["--strategy", config.strategy]
    for name, value in _changed_limits(config.limits).items():
        if name in OPTIONS:
            words += [OPTIONS[name], str(value)]
    if settings.samples > 1:
        words += ["--samples", str(settings.samples)]
    if CITE_LINE in config.prologue:
        words.append("--cite")
    return " ".join(words)


def shell_word(text: str) -> str:
    """Quote a text for a shell; what a terminal or any shell might act on becomes an escape.

    A dash at the start would make it an option, so a space is put before it. Only bash, zsh and ksh
    understand the escapes, but in no other shell can anything end the quotes.
    """
    text = f" {text}" if text.startswith("-") else text
    if not any(map(_is_risky, text)):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _is_risky(character: str) -> bool:
    return character in _RISKY or not character.isprintable()


def _escaped(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\\n"
    if not _is_risky(character):
        return character
    if 0xD800 <= code < 0xE000:
        return "\\uFFFD"
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def _is_program(model: str) -> bool:
    """Return whether this model is a program, which a stranger's record may not choose to run."""
    return model.strip().lower().startswith("command")


def _changed_limits(limits: Limits) -> dict[str, Any]:
    usual = Limits()
    return {
        name: getattr(limits, name)
        for name in Limits.__struct_fields__
        if getattr(limits, name) != getattr(usual, name)
    }


def _changed(config: RunConfig) -> Mapping[str, Any]:
    """Return the options that differ from the defaults, except those that `ask` chooses itself."""
    usual = RunConfig(model=config.model, sub_model=config.sub_model)
    left_out = {"preview_chars"} if config.preview_chars == 400 else set()
    return {
        name: getattr(config, name)
        for name in CONFIG
        if getattr(config, name) != getattr(usual, name) and name not in left_out
    }
