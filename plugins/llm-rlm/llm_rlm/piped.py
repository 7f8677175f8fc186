"""Tells what was piped into `llm` from the question beside it.

The command joins both into one text, with a space between, before a model sees it. Its arguments
are still in click's context, so the question is known, and the rest is what was piped in.
"""

import secrets
import sys
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["split_question", "typed_parameters"]

IN_CONTEXT = "(the text in `context`)"


def split_question(text: str) -> tuple[str, str]:
    """What was piped in, and the question; outside of `llm` all of it is the question."""
    given = typed_parameters("prompt")
    if given is None or not text:
        return "", text
    typed = given.get("prompt") or ""
    if names := given.get("template") or ():
        return _split_by_templates(text, typed, names, dict(given.get("param") or ()))
    return _split(text, typed)


def typed_parameters(command: str) -> Mapping[str, Any] | None:
    """The arguments of an `llm` command, if that is what runs in this thread."""
    context = click.get_current_context(silent=True)
    known = getattr(sys.modules.get("llm.cli"), command, None)
    if context is None or known is None or context.command is not known:
        return None
    return context.params


def _split(text: str, typed: str) -> tuple[str, str]:
    if not typed:
        return ("", text) if sys.stdin.isatty() else (text, "")
    if text.endswith(f" {typed}"):
        return text[: -len(typed) - 1], typed
    return "", text


def _split_by_templates(
    text: str, typed: str, names: tuple[str, ...], given: dict[str, str]
) -> tuple[str, str]:
    """The same where templates made the prompt, of what was typed or of all the input."""
    from llm.cli import load_template

    templates = [load_template(name) for name in names]
    if not any("input" in template.vars() for template in templates):
        return _split(text, _filled(templates, typed, given))
    mark = secrets.token_hex(16)
    before, found, after = _filled(templates, mark, given).partition(mark)
    if not found or mark in after or not (text.startswith(before) and text.endswith(after)):
        return "", text
    piped, question = _split(text[len(before) : len(text) - len(after)], typed)
    if not piped:
        return "", text
    return piped, f"{before}{IN_CONTEXT} {question}".rstrip() + after


def _filled(templates: list[Any], prompt: str, given: dict[str, str]) -> str:
    """What `llm` makes of a prompt with these templates, one after the other."""
    for template in templates:
        uses_input = "input" in template.vars()
        made, _ = template.evaluate(prompt if uses_input else "", given)
        if made:
            prompt = f"{made}\n{prompt}" if prompt and not uses_input else made
    return prompt
