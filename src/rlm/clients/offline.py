"""The offline model: an extractive stand-in, not a language model. It needs no key and no download.

It takes part in the real loop. As a run's model it writes cells that search the context inside the
sandbox and submits what a call over the best passage answers; as the model of such a call it quotes
the sentence that fits the question best. It never writes a sentence of its own about the context.
"""

import asyncio
import re
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from rlm.clients._estimate import capped_reply, message_text, request_text, usage_of, word_by_word
from rlm.clients.offline_cells import SUBMISSION, search_cell, submit_cell, task_cell
from rlm.clients.offline_read import answer_prompt, extract, query_of, question_in
from rlm.clients.offline_search import MARK, TASK_MARK
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolCall

__all__ = ["MODEL", "OfflineClient"]

MODEL = "offline/extractive"
INFO = ModelInfo(window_tokens=128_000, price=Price(0.0, 0.0))
WHO = "Offline extractive stand-in, not a language model:"
LARGE_CHARS = 1_000_000
MOST_TRIES = 2

REPL_WORDS = re.compile(r"```repl|\bREPL\b|\bllm_query\b|\bFINAL(_VAR)?\b|execute_python")
SUB_CALL = re.compile(r"\s*you are a sub-llm", re.IGNORECASE)
ANSWER_NOW = re.compile(r"without code|no (more )?code|answer (the query )?now", re.IGNORECASE)
TASK_IN_CONTEXT = re.compile(r"task is in .{0,24}context", re.IGNORECASE)
PRINTED = re.compile(r"^> (.*)", re.MULTILINE)


class OfflineClient:
    """Answers by quoting, always alike and for nothing; without a match it says so."""

    @classmethod
    def for_model(cls, model: str) -> "OfflineClient":
        """Whatever the model is called."""
        return cls()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """A cell, a quotation or NOT FOUND, whichever the request asks for."""
        if len(request_text(request)) > LARGE_CHARS:
            return await asyncio.to_thread(_reply, request)
        return _reply(request)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """The same reply word by word, then whole."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        async for part in word_by_word(reply):
            yield part

    def info(self, model: str) -> ModelInfo:
        return INFO

    async def close(self) -> None:
        """Nothing to close."""


def _reply(request: Request) -> Reply:
    query = _query_of_a_run(request)
    if query is None:
        prompts = [message_text(each) for each in request.messages if each.role == "user"]
        return capped_reply(request, answer_prompt("\n".join(prompts)))
    return _Run(request, query).reply()


def _query_of_a_run(request: Request) -> str | None:
    """The query, if this is a step of a run and not a call over a text."""
    system = "\n".join(message_text(each) for each in request.messages if each.role == "system")
    asked = [message_text(each) for each in request.messages if each.role == "user"]
    queries = [query for text in asked if (query := query_of(text))]
    if not queries or SUB_CALL.match(system):
        return None
    has_repl = bool(request.tools) or REPL_WORDS.search(system)
    return queries[0] if has_repl or asked[0].lstrip().startswith("Query:") else None


class _Run:
    """The next turn of a run, worked out from its messages alone."""

    def __init__(self, request: Request, query: str) -> None:
        self.request = request
        self.query = query
        own = [each for each in request.messages if each.role == "assistant"]
        self.written = [_written(message) for message in own]
        first = next(i for i, each in enumerate(request.messages) if each.role == "user")
        told = [each for each in request.messages[first + 1 :] if each.role in {"user", "tool"}]
        self.seen = "\n".join(message_text(message) for message in told)
        self.last = message_text(request.messages[-1])
        system = "\n".join(message_text(m) for m in request.messages if m.role == "system")
        self.may_start_children = "rlm_query(" in system

    def reply(self) -> Reply:
        if ANSWER_NOW.search(PRINTED.sub("", self.last)):
            return capped_reply(self.request, self._from_output())
        if MARK in self.seen:
            if self._tries(SUBMISSION) < MOST_TRIES:
                cell = submit_cell(with_child=self.may_start_children)
                return self._cell(cell, "reading the best passage and submitting.")
            return self._final(self._from_output())
        if TASK_IN_CONTEXT.search(self.query):
            if TASK_MARK not in self.seen:
                return self._cell(task_cell(), "the task is in the context; looking at it.")
            self.query = question_in(self.seen.split(TASK_MARK)[-1] + "\n\n")
        if self._tries("report(offline_plan") >= MOST_TRIES:
            return self._final(f"Not found: the search could not be run for {self.query!r}.")
        return self._cell(search_cell(self.query), "searching the context.")

    def _tries(self, code: str) -> int:
        return sum(code in text for text in self.written)

    def _from_output(self) -> str:
        """What the printed passages answer: all there is to go by when no more code may run."""
        answer = extract(self.query, "\n".join(PRINTED.findall(self.seen)) or self.seen)
        return answer or f"Not found: nothing that was printed answers {self.query!r}."

    def _cell(self, code: str, why: str) -> Reply:
        if self._has_tool("execute_python"):
            return self._call("execute_python", {"code": code})
        return capped_reply(self.request, f"{WHO} {why}\n\n```repl\n{code}\n```")

    def _final(self, answer: str) -> Reply:
        if self._has_tool("submit_answer"):
            return self._call("submit_answer", {"answer": answer})
        return capped_reply(self.request, f"Final Answer: {answer}")

    def _has_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self.request.tools)

    def _call(self, name: str, arguments: dict[str, str]) -> Reply:
        call = ToolCall(id=f"call_{len(self.written)}", name=name, arguments=dict(arguments))
        reply = Reply(
            text=WHO, tool_calls=(call,), finish_reason="tool_calls", model=self.request.model
        )
        return replace(reply, usage=usage_of(self.request, reply))


def _written(message: Message) -> str:
    """What the model itself wrote in a turn, in either protocol."""
    codes = [str(call.arguments.get("code", "")) for call in message.tool_calls]
    return "\n".join([message_text(message), *codes])
