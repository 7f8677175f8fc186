"""Functions that cells use to call models, child runs and tools, and to ask for the budget.

Each is written once, as a dialogue: a generator that yields calls, is sent answers, and returns the
value. `functions.CallFunctions` gives every dialogue a blocking and an async form.
"""

from __future__ import annotations

import json

from . import images as pictures
from . import loose_json, tagged, wire
from .arguments import (
    chunk_text,
    context_kind,
    context_text,
    plain_schema,
    positive,
    several,
    tool_names,
)
from .channel import question
from .replies import CallFailed, FailedReply, ToolFailed, whole_text

__all__ = [
    "budget",
    "call_tool",
    "llm_query",
    "llm_query_batched",
    "llm_query_json",
    "map_query",
    "meta",
    "rlm_query",
    "rlm_query_batched",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any

    Dialogue = Generator[list[bytes], wire.Frame, Any]
    Dialogues = Callable[..., Dialogue]

_ARGUMENTS_WITHOUT_MODEL = {
    batched: wire.to_json({"model": None, "batched": batched}) for batched in (False, True)
}
"""The arguments of nearly every model call, encoded once."""

_POSITIONAL = "*"
"""The key of a tool's positional arguments, a list; no keyword can have this name."""


def llm_query(
    prompt: str,
    model: str | None = None,
    images: Any = None,
    max_tokens: int | None = None,
    schema: Any = None,
) -> Dialogue:
    """Call a model once, without a REPL; raise CallFailed if that fails.

    `images` is a list of pictures: bytes of a PNG, JPEG, GIF or WebP file, or names of pictures in
    the context. Read your own files first: `images=[open(name, "rb").read()]`. The reply has at
    most `max_tokens`, and never more than the run allows. With a `schema`, the reply is a checked
    value: `llm_query(prompt, schema={"name": "str", "age": "int"})`.
    """
    shown = None if images is None else [images]
    replies = yield from _ask_models(
        "llm", [prompt], model, False, images=shown, max_tokens=max_tokens, schema=schema
    )
    return _only(replies)


def llm_query_batched(
    prompts: Iterable[str],
    model: str | None = None,
    images: Iterable[Any] | None = None,
    max_tokens: int | None = None,
    schema: Any = None,
) -> Dialogue:
    """Make many model calls at once; return replies in order, a FailedReply for a failed call.

    `images` holds a list of pictures, one picture, or None, for each prompt. `max_tokens` limits
    each reply, and a `schema` says what value each is, as in `llm_query`.
    """
    prompts = several(prompts)
    if images is not None:
        images = several(images)
        if len(images) != len(prompts):
            raise ValueError(
                f"{len(prompts)} prompts need as many lists of images, not {len(images)}; a list "
                "can be None"
            )
    asked = _ask_models(
        "llm", prompts, model, True, images=images, max_tokens=max_tokens, schema=schema
    )
    return (yield from asked)


def rlm_query(
    prompt: str,
    context: Any = None,
    model: str | None = None,
    images: None = None,
    tools: Iterable[Any] | None = None,
) -> Dialogue:
    """Start a child run with its own REPL; with `context=None`, the prompt is its context.

    `tools` are the tools it gets, as names or functions; by default, all that children may have.
    """
    _refuse_images(images)
    granted = tool_names(tools)
    replies = yield from _ask_models("rlm", [prompt], model, False, [context], tools=granted)
    return _only(replies)


def rlm_query_batched(
    prompts: Iterable[str],
    contexts: Iterable[Any] | None = None,
    model: str | None = None,
    images: None = None,
    tools: Iterable[Any] | None = None,
) -> Dialogue:
    """Start many child runs at once; `contexts` holds a context, or None, for each prompt.

    Each gets these `tools`, as names or functions; by default, all that children may have.
    """
    _refuse_images(images)
    granted = tool_names(tools)
    prompts = several(prompts)
    contexts = [None] * len(prompts) if contexts is None else several(contexts)
    if len(contexts) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts need as many contexts, not {len(contexts)}")
    return (yield from _ask_models("rlm", prompts, model, True, contexts, tools=granted))


def llm_query_json(prompt: str, model: str | None = None, images: Any = None) -> Dialogue:
    """Call a model and parse its reply as JSON; ask once more, then raise ValueError."""
    reply = yield from llm_query(prompt, model, images)
    try:
        return loose_json.parse(reply)
    except ValueError:
        again = f"{prompt}\n\nReply with valid JSON only: no prose, no code fence."
    reply = yield from llm_query(again, model, images)
    try:
        return loose_json.parse(reply)
    except ValueError:
        raise ValueError(
            f"no JSON in the reply after asking twice; it starts: {reply[:200]!r}"
        ) from None


def map_query(question: str, chunks: Iterable[Any], model: str | None = None) -> Dialogue:
    """Ask the same question about each chunk, a text or a chunk of `ctx.chunk`, in one batch."""
    prompts = [f"{question}\n\n---\n{chunk_text(chunk)}" for chunk in several(chunks)]
    return (yield from llm_query_batched(prompts, model))


def budget() -> Dialogue:
    """Return what is left of the run's tokens, money, seconds and calls."""
    return meta((yield question("budget", b"{}", [])), CallFailed)


def call_tool(name: str, /, *arguments: Any, **named: Any) -> Dialogue:
    """Call a registered tool; a dict as the only argument holds named arguments."""
    if arguments and _are_named(arguments):
        named = {**arguments[0], **named}
    elif arguments:
        named = {_POSITIONAL: list(arguments), **named}
    given = {key: tagged.marked(value) for key, value in named.items()}
    arguments_json = wire.to_json({"name": str(name), "arguments": given})
    answer = yield question("tool", arguments_json, [])
    return tagged.loads(meta(answer, ToolFailed)["json"])


def _ask_models(
    kind: str,
    prompts: list[Any],
    model: str | None,
    batched: bool,
    contexts: list[Any] | None = None,
    images: list[Any] | None = None,
    tools: list[str] | None = None,
    max_tokens: int | None = None,
    schema: Any = None,
) -> Dialogue:
    if not prompts:
        return []
    texts = [whole_text(prompt) for prompt in prompts]
    sent: list[bytes] = []
    options = (contexts, model, images, max_tokens, schema)
    if all(option is None for option in options):
        arguments = _ARGUMENTS_WITHOUT_MODEL[batched]
    else:
        given: dict[str, Any] = {"model": model, "batched": batched}
        given.update(_call_options(tools, max_tokens, schema))
        if contexts is not None:
            given["contexts"] = [context_kind(context) for context in contexts]
            texts += [context_text(context) for context in contexts if context is not None]
        if images is not None:
            rows, sent = pictures.attached(images)
            if any(rows):
                given["images"] = rows
        arguments = wire.to_json(given)
    parts = question(kind, arguments, texts)
    answer = yield parts + sent if sent else parts
    return _replies(answer, len(prompts), parsed=schema is not None)


def _call_options(
    tools: list[str] | None, max_tokens: int | None, schema: Any
) -> Generator[tuple[str, Any], None, None]:
    if tools is not None:
        yield "tools", tools
    if max_tokens is not None:
        yield "max_tokens", positive("max_tokens", max_tokens)
    if schema is not None:
        yield "schema", plain_schema(schema)


def _replies(answer: wire.Frame, count: int, parsed: bool) -> list[Any]:
    """Return the replies of an answer, in order; if `parsed`, their JSON values."""
    told = meta(answer, CallFailed)
    limits = told.get("limits", {})
    replies: list[Any] = answer.texts(1)[:count]
    if len(replies) < count:
        raise wire.WireError(f"{count} prompts got {len(replies)} replies")
    for index, reason in told.get("failed", {}).items():
        replies[int(index)] = FailedReply(reason, limits.get(index))
    if parsed:
        return [each if isinstance(each, FailedReply) else json.loads(each) for each in replies]
    return replies


def _are_named(arguments: tuple[Any, ...]) -> bool:
    """Return whether the positional arguments are one dict that must be meant as keywords."""
    first = arguments[0]
    return len(arguments) == 1 and isinstance(first, dict) and all(map(_is_name, first))


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def meta(answer: wire.Frame, failure: type[RuntimeError]) -> dict[str, Any]:
    """Return the metadata of an answer; raise `failure` if it reports one."""
    # After most model calls there is no metadata, and the part is empty.
    told: dict[str, Any] = answer.json(0) if answer.part(0) else {}
    if answer.type == wire.ANSWER_ERROR:
        raise failure(told["message"])
    return told


def _only(replies: list[str]) -> str:
    (reply,) = replies
    if isinstance(reply, FailedReply):
        raise reply.as_error()
    return reply


def _refuse_images(images: None) -> None:
    if images is not None:
        raise TypeError(
            "a child run accepts no images; look at them with llm_query(prompt, images=[...]), or "
            "tell the child the names of the context's pictures, which it can use too"
        )
