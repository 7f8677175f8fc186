"""Anthropic's messages dialect: a request to its body, a body to its reply."""

from typing import Any

from rlm.clients._anthropic_messages import mark, marks_in, system_of, turns_of
from rlm.clients._anthropic_reply import StreamedMessage, error_of, reply_of
from rlm.clients._anthropic_sampling import options_of
from rlm.clients._dialect import ErrorReport
from rlm.clients._json import dump
from rlm.messages import Reply, Request

__all__ = ["AnthropicDialect"]

MOST_MARKS = 4
"""A request with more of them is refused."""


class AnthropicDialect:
    """`POST /v1/messages`; paths are below `/v1`."""

    def path(self, request: Request, *, stream: bool) -> str:
        return "/messages"

    def body(self, request: Request, *, stream: bool) -> bytes:
        options = options_of(request)
        system, turns = system_of(request.messages), turns_of(request.messages)
        if request.grows and "cache_control" not in options:
            _mark_ends(options.get("tools", []), system, turns)
        content = {**options, "model": request.model, "messages": turns}
        if system:
            content["system"] = system
        if stream:
            content["stream"] = True
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(payload)

    def streamed(self) -> StreamedMessage:
        return StreamedMessage()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        return error_of(payload)


def _mark_ends(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> None:
    """Cache up to the end, up to where the step before ended, and the instructions.

    A server looks for an older entry only 20 blocks back from a mark, and one turn may hold more:
    the mark where the last request ended finds exactly what that one wrote.
    """
    ends = [turn["content"] for turn in turns[-1:]]
    ends += [turn["content"] for turn in turns[-2::-1] if turn["role"] == "user"][:1]
    every = [tools, system, *(turn["content"] for turn in turns)]
    mark(MOST_MARKS - sum(map(marks_in, every)), *ends, system or tools)
