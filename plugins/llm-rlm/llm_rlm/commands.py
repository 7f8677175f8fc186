"""`llm rlm ask|doctor|view`: the engine's own commands, with llm's models."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import click
import llm

__all__ = ["commands"]


@click.group(name="rlm")
def commands() -> None:
    """Ask questions about contexts larger than a model's window.

    `llm -m rlm/MODEL -f FILE "question"` is the usual way; these are the engine's own commands.
    """


def _forward(name: str, help_text: str, adapt: Callable[[Sequence[str]], list[str]] = list) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @commands.command(name, help=help_text, context_settings=settings, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def forward(arguments: tuple[str, ...]) -> None:
        try:
            from rlm.cli import main
        except ImportError as error:
            from llm_rlm.common import MISSING_ENGINE

            raise click.ClickException(MISSING_ENGINE) from error
        main([name, *adapt(arguments)])


def _with_llms_models(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with models as the engine names them: `gpt-5` becomes `llm/gpt-5`.

    Without a model, and without RLM_MODEL, add llm's default model.
    """
    from rlm.cli import commands as engine

    given: dict[str, Any] = {}
    try:
        given = (
            engine.commands["ask"]
            .make_context("ask", list(arguments), resilient_parsing=True)
            .params
        )
    except click.ClickException:
        return list(arguments)  # The command itself reports the error.
    models = {"-m": given.get("model"), "--sub-model": given.get("sub_model")}
    if not models["-m"] and not os.environ.get("RLM_MODEL"):
        models["-m"] = llm.get_default_model()
    known = llm.get_model_aliases()
    changed = [
        word
        for option, name in models.items()
        if name in known
        for word in (option, f"llm/{str(name).removeprefix('rlm/')}")
    ]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *changed, *arguments[end:]]


_forward("ask", "Ask a question about files, folders or standard input.", _with_llms_models)
_forward("doctor", "Report what works here, what is missing, and how to fix it.")
_forward("view", "Show runs in a browser.")
