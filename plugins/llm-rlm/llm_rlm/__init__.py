"""Recursive Language Models for `llm`: the plugin's hooks.

`llm --help` loads this module, so it imports little: each hook imports what it needs, and the
engine is imported when a run starts.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import llm

if TYPE_CHECKING:
    import click

    from llm_rlm.toolbox import RLMToolbox as RLMToolbox

__all__ = [
    "RLMToolbox",
    "register_commands",
    "register_fragment_loaders",
    "register_models",
    "register_tools",
]


@llm.hookimpl
def register_commands(cli: "click.Group") -> None:
    """Add `llm rlm ask|doctor|view`."""
    from llm_rlm.commands import commands

    cli.add_command(commands)


@llm.hookimpl(wrapper=True)
def register_models(register: Any, model_aliases: Any) -> Generator[None, Any, Any]:
    """Add `rlm/<model>` for every model; a hook wrapper sees the models of all other plugins."""
    registered = yield
    from llm_rlm.models import wrap_all

    wrap_all(register, list(model_aliases))
    return registered


@llm.hookimpl
def register_tools(register: Any) -> None:
    """Add the toolbox for models that call tools themselves."""
    from llm_rlm.toolbox import RLMToolbox

    register(RLMToolbox)


@llm.hookimpl
def register_fragment_loaders(register: Any) -> None:
    """Add `-f rlm:PATH`: a file that is read when needed and never copied to the logs."""
    from llm_rlm.contexts import load_files

    register("rlm", load_files)


def __getattr__(name: str) -> Any:
    if name == "RLMToolbox":
        from llm_rlm.toolbox import RLMToolbox

        return RLMToolbox
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
