"""The functions with which a cell calls models, child runs and tools, and asks for the budget.

Each is written once, as a dialogue: a generator that yields calls, is sent answers, and returns the
value. `functions.CallFunctions` gives every dialogue a blocking and an async form.
"""

from __future__ import annotations

import json

from . import images as pictures
from . import loose_json, tagged, wire
from .channel import question
from .replies import CallFailed, FailedReply, ToolFailed

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
    "several",
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
    prompt: str, model: str | None = None, images: Any = None, max_tokens: int | None = None
) -> Dialogue:
    """One plain model call; raises CallFailed.

    `images` is a list of pictures: bytes of a PNG, JPEG, GIF or WebP file, or names of those that
    the context has. Files of your own are read first: `images=[open(name, "rb").read()]`. The reply
    has at most `max_tokens`, and never more than the run allows.
    """
    shown = None if images is None else [images]
    replies = yield from _ask_models(
        "llm", [prompt], model, False, images=shown, max_tokens=max_tokens
    )
    return _only(replies)


def llm_query_batched(
    prompts: Iterable[str],
    model: str | None = None,
    images: Iterable[Any] | None = None,
    max_tokens: int | None = None,
) -> Dialogue:
    """Many model calls at once, same order out; a failed one is a FailedReply in its place.

    `images` holds one list of pictures, one picture, or None, for each prompt. `max_tokens` limits
    each reply.
    """
    prompts = several(prompts)
    if images is not None:
        images = several(images)
        if len(images) != len(prompts):
            raise ValueError(
                f"{len(prompts)} prompts need as many lists of images, not {len(images)}; "
                "one may be None"
            )
    asked = _ask_models("llm", prompts, model, True, images=images, max_tokens=max_tokens)
    return (yield from asked)


def rlm_query(
    prompt: str,
    context: Any = None,
    model: str | None = None,
    images: None = None,
    tools: Iterable[Any] | None = None,
) -> Dialogue:
    """A child run with its own REPL; `context=None` makes the prompt its context.

    `tools` are those it gets, by name or as they are; without it, all that children may have.
    """
    _refuse_images(images)
    granted = _tool_names(tools)
    replies = yield from _ask_models("rlm", [prompt], model, False, [context], tools=granted)
    return _only(replies)


def rlm_query_batched(
    prompts: Iterable[str],
    contexts: Iterable[Any] | None = None,
    model: str | None = None,
    images: None = None,
    tools: Iterable[Any] | None = None,
) -> Dialogue:
    """Many child runs at once; `contexts` holds one context, or None, for each prompt.

    Each gets these `tools`, by name or as they are; without it, all that children may have.
    """
    _refuse_images(images)
    granted = _tool_names(tools)
    prompts = several(prompts)
    contexts = [None] * len(prompts) if contexts is None else several(contexts)
    if len(contexts) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts need as many contexts, not {len(contexts)}")
    return (yield from _ask_models("rlm", prompts, model, True, contexts, tools=granted))


def llm_query_json(prompt: str, model: str | None = None, images: Any = None) -> Dialogue:
    """One model call whose reply is parsed as JSON; asks once more, then raises ValueError."""
    reply = yield from llm_query(prompt, model, images)
    try:
        return loose_json.parse(reply)
    except ValueError:
        again = f"{prompt}\n\nReply with valid JSON only: no prose, no code fence."
    reply = yield from llm_query(again, model, images)
    try:
        return loose_json.parse(reply)
    except ValueError:
        raise ValueError(f"no JSON in the reply, asked twice; it starts: {reply[:200]!r}") from None


def map_query(question: str, chunks: Iterable[Any], model: str | None = None) -> Dialogue:
    """Ask the same question about each chunk (a text, or what `ctx.chunk` gives), in one batch."""
    prompts = [f"{question}\n\n---\n{_chunk_text(chunk)}" for chunk in several(chunks)]
    return (yield from llm_query_batched(prompts, model))


def budget() -> Dialogue:
    """What is left of the run's tokens, money, seconds and calls."""
    return meta((yield question("budget", b"{}", [])), CallFailed)


def call_tool(name: str, /, *arguments: Any, **named: Any) -> Dialogue:
    """Call a registered tool; a lone dict of names holds its named arguments."""
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
) -> Dialogue:
    if not prompts:
        return []
    texts = [str(prompt) for prompt in prompts]
    sent: list[bytes] = []
    if contexts is None and model is None and images is None and max_tokens is None:
        arguments = _ARGUMENTS_WITHOUT_MODEL[batched]
    else:
        given: dict[str, Any] = {"model": model, "batched": batched}
        if contexts is not None:
            given["contexts"] = [_context_kind(context) for context in contexts]
            texts += [_context_text(context) for context in contexts if context is not None]
        if tools is not None:
            given["tools"] = tools
        if max_tokens is not None:
            given["max_tokens"] = _positive("max_tokens", max_tokens)
        if images is not None:
            rows, sent = pictures.attached(images)
            if any(rows):
                given["images"] = rows
        arguments = wire.to_json(given)
    parts = question(kind, arguments, texts)
    answer = yield parts + sent if sent else parts
    told = meta(answer, CallFailed)
    limits = told.get("limits", {})
    replies = answer.texts(1)[: len(prompts)]
    if len(replies) < len(prompts):
        raise wire.WireError(f"{len(prompts)} prompts were answered with {len(replies)} replies")
    for index, reason in told.get("failed", {}).items():
        replies[int(index)] = FailedReply(reason, limits.get(index))
    return replies


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number, 1 or more, not {value!r}")
    return value


def _are_named(arguments: tuple[Any, ...]) -> bool:
    """Return whether the positional arguments are one dict that must be meant as keywords."""
    first = arguments[0]
    return len(arguments) == 1 and isinstance(first, dict) and all(map(_is_name, first))


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def meta(answer: wire.Frame, failure: type[RuntimeError]) -> dict[str, Any]:
    """Return the metadata of an answer; raise `failure` if it reports one."""
    # After most model calls there is no metadata: that is an empty part.
    told: dict[str, Any] = answer.json(0) if answer.part(0) else {}
    if answer.type == wire.ANSWER_ERROR:
        raise failure(told["message"])
    return told


def _only(replies: list[str]) -> str:
    (reply,) = replies
    if isinstance(reply, FailedReply):
        raise reply.as_error()
    return reply


def several(items: Iterable[Any]) -> list[Any]:
    """Return the items of a batch; refuse a single text, which would be a list of letters."""
    if isinstance(items, (str, bytes, dict)):
        raise TypeError(f"expected a list with one item per call, not one {type(items).__name__}")
    return list(items)


def _refuse_images(images: None) -> None:
    if images is not None:
        raise TypeError(
            "a child run takes no images; look at them with llm_query(prompt, images=[...]), "
            "or tell the child the names of the context's pictures, which it may use too"
        )


def _tool_names(tools: Iterable[Any] | None) -> list[str] | None:
    """Return the names of a child's tools, given as names or as functions of the REPL."""
    if tools is None:
        return None
    if isinstance(tools, (str, bytes)) or callable(tools):
        raise TypeError('tools must be a list, such as tools=["search"]; [] gives a child none')
    names = []
    for each in tools:
        name = each if isinstance(each, str) else getattr(each, "__name__", None)
        if not isinstance(name, str):
            raise TypeError("tools holds names of tools, or the tools themselves")
        names.append(name)
    return names


def _context_kind(context: Any) -> dict[str, str] | None:
    if context is None:
        return None
    return {"kind": "text" if isinstance(context, str) else "json"}


def _context_text(context: Any) -> str:
    return context if isinstance(context, str) else json.dumps(context, ensure_ascii=False)


def _chunk_text(chunk: Any) -> str:
    if isinstance(chunk, tuple) and len(chunk) == 3 and isinstance(chunk[2], str):
        return chunk[2]
    return str(chunk)
