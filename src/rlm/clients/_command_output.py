"""What programs say about a reply: the JSON of `claude`, `codex` and `gemini`, or plain text.

A format is never guessed from the output, because an answer may look like any of them: it follows
from the program's name and its options.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal

from rlm.clients._adapters import public_line
from rlm.clients._fields import count_of, dicts_in, money_of, parse
from rlm.errors import ModelError
from rlm.messages import LARGEST_COUNT, Reply, Usage

__all__ = ["FORMATS", "Format", "format_of", "problem_in", "reply_in"]

Format = Literal["text", "claude", "codex", "gemini"]
FORMATS: tuple[Format, ...] = ("text", "claude", "codex", "gemini")

TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Colours, cursor movements and titles, which some programs write even into a pipe."""


def format_of(arguments: Sequence[str]) -> Format:
    """Return the format that a command line makes its program write."""
    name = PurePath(arguments[0]).stem.lower()
    rest = arguments[1:]
    joined = {each.partition("=")[0]: each.partition("=")[2] for each in rest if "=" in each}
    options = {**dict(pairwise(rest)), **joined}
    wants_json = "json" in (options.get("--output-format"), options.get("-o"))
    if name == "claude" and wants_json:
        return "claude"
    if name == "gemini" and wants_json:
        return "gemini"
    if name == "codex" and {"--json", "--experimental-json"} & set(rest):
        return "codex"
    return "text"


def reply_in(output: str, form: Format, model: str) -> Reply:
    """Return the reply in a program's output; raise ModelError if it is a failure, or empty."""
    if form == "text":
        return Reply(text=TERMINAL.sub("", output).strip("\r\n"), model=model)
    try:
        text, usage = _READERS[form](output)
    except ValueError as error:
        shown = public_line(str(error))
        raise ModelError(f"{model}: {shown}", retryable=True, ambiguous=True) from None
    return Reply(text=text, usage=usage, model=model)


def problem_in(output: str, form: Format) -> str:
    """Return the failure that a program reports in its own format; empty if it reports none."""
    if form == "text" or not output.strip():
        return ""
    try:
        _READERS[form](output)
    except ValueError as error:
        return public_line(str(error))
    return ""


def _claude(output: str) -> tuple[str, Usage | None]:
    """Read `claude -p --output-format json`: one object, or with --verbose a list that ends in it.

    A cost is kept even if token counts are missing; those are 0 then.
    """
    document = _document(output)
    found = [each for each in dicts_in(document) if each.get("type") == "result"]
    result = found[-1] if found else document
    if not isinstance(result, dict):
        raise ValueError("its output contains no result")
    text = result.get("result")
    if result.get("is_error") or not isinstance(text, str):
        raise ValueError(f"it reports {result.get('subtype') or 'an error'}: {text or 'no result'}")
    told = result.get("usage")
    counts = [
        count_of(told, name) or 0
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    output_tokens = count_of(told, "output_tokens")
    cost_usd = money_of(result, "total_cost_usd")
    if output_tokens is None or not sum(counts):
        return text, None if cost_usd is None else Usage(cost_usd=cost_usd, requests=1)
    return text, Usage(
        input_tokens=sum(counts),
        output_tokens=output_tokens,
        cached_tokens=counts[1],
        cache_write_tokens=counts[2],
        cost_usd=cost_usd,
        requests=1,
    )


def _codex(output: str) -> tuple[str, Usage | None]:
    """Read `codex exec --json`: one event per line; the agent's last message is the reply."""
    text, failure, usage = None, "", None
    for event in _events(output):
        kind, item = event.get("type"), event.get("item")
        if kind == "item.completed" and isinstance(item, dict):
            if item.get("type") == "agent_message" and isinstance(item.get("text"), str):
                text = item["text"]
        elif kind == "turn.completed":
            usage = _plus(usage, _codex_usage(event.get("usage")))
        elif kind in {"turn.failed", "error"}:
            error = event.get("error")
            told = error.get("message") if isinstance(error, dict) else event.get("message")
            failure = str(told or "an error")
    if text is None:
        raise ValueError(f"it reports {failure}" if failure else "its output contains no message")
    return text, usage


def _codex_usage(told: Any) -> Usage | None:
    sent, written = count_of(told, "input_tokens"), count_of(told, "output_tokens")
    if not sent or written is None:
        return None
    cached = min(sent, count_of(told, "cached_input_tokens") or 0)
    thought = min(written, count_of(told, "reasoning_output_tokens") or 0)
    return Usage(sent, written, cached_tokens=cached, reasoning_tokens=thought, requests=1)


def _gemini(output: str) -> tuple[str, Usage | None]:
    """Read `gemini --output-format json`: one object, with the tokens of every model it used."""
    result = _document(output)
    if not isinstance(result, dict):
        raise ValueError("its output contains no response")
    error, text = result.get("error"), result.get("response")
    if error or not isinstance(text, str):
        told = error.get("message") if isinstance(error, dict) else error
        raise ValueError(f"it reports {told or 'no response'}")
    stats = result.get("stats")
    used = stats.get("models") if isinstance(stats, dict) else None
    usage = None
    for each in used.values() if isinstance(used, dict) else ():
        tokens = each.get("tokens") if isinstance(each, dict) else None
        usage = _plus(usage, _gemini_usage(tokens))
    return text, usage


def _gemini_usage(told: Any) -> Usage | None:
    sent = count_of(told, "prompt") or count_of(told, "input")
    written = count_of(told, "candidates")
    if not sent or written is None:
        return None
    thought = count_of(told, "thoughts") or 0
    cached = min(sent, count_of(told, "cached") or 0)
    return Usage(
        sent, written + thought, cached_tokens=cached, reasoning_tokens=thought, requests=1
    )


_READERS: dict[Format, Callable[[str], tuple[str, Usage | None]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
}


def _plus(one: Usage | None, other: Usage | None) -> Usage | None:
    """Add up two usages; whatever a program reports, it is one request with plausible counts."""
    if one is None or other is None:
        return one or other
    return Usage(
        min(one.input_tokens + other.input_tokens, LARGEST_COUNT),
        min(one.output_tokens + other.output_tokens, LARGEST_COUNT),
        cached_tokens=min(one.cached_tokens + other.cached_tokens, LARGEST_COUNT),
        reasoning_tokens=min(one.reasoning_tokens + other.reasoning_tokens, LARGEST_COUNT),
        requests=1,
    )


def _document(output: str) -> Any:
    """Return the JSON document in an output, ignoring lines that a program writes before it."""
    text = output.strip()
    try:
        return parse(text)
    except ValueError:
        start = re.search(r"^[{\[]", text, re.MULTILINE)
        if start is None or start.start() == 0:
            raise ValueError(f"its output is not JSON: {text[:200]!r}") from None
    try:
        return parse(text[start.start() :])
    except ValueError:
        raise ValueError(f"its output is not JSON: {text[:200]!r}") from None


def _events(output: str) -> Iterator[dict[str, Any]]:
    """Yield the lines that are JSON objects; other lines are notices."""
    for line in output.splitlines():
        try:
            event = parse(line) if line.lstrip().startswith("{") else None
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
