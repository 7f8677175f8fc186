"""Runs of the offline model without an engine."""

import asyncio
import contextlib
import io
from typing import Any

from rlm.clients.offline import MODEL, OfflineClient
from rlm.engine.cells import parse_reply
from rlm.messages import Message, Reply, Request, ToolSpec
from rlm.worker.ctx import ContextView

SYSTEM = "You answer a query. Write code in a ```repl block. Names: llm_query, FINAL."
QUESTION = "What is the access code for silver-dolphin?"
NEEDLE = "The access code for silver-dolphin is 4821."
OTHER = "The access code for amber-falcon is 9999."
TOOLS = (ToolSpec("execute_python", "", {}), ToolSpec("submit_answer", "", {}))


def root(*turns: tuple[Any, str], query: str = QUESTION, **facts: Any) -> Request:
    """A step of a run: the standing messages, then (role, text) turns."""
    first = f"Query: {query}\n\nContext: str, 10,485,760 characters\n\nYou have 30 steps. Begin."
    messages = [Message("system", SYSTEM), Message("user", first)]
    messages += [Message(role, text) for role, text in turns]
    given: dict[str, Any] = {
        "model": MODEL,
        "messages": tuple(messages),
        "max_output_tokens": 8_192,
    }
    return Request(**{**given, **facts})


def sub(prompt: str, system: str = "You are a sub-LLM. Answer from the text.") -> Request:
    messages = (Message("system", system), Message("user", prompt))
    return Request(model=MODEL, messages=messages, max_output_tokens=4_096)


async def ask(request: Request) -> Reply:
    return await OfflineClient().complete(request, timeout_seconds=5)


def code_in(reply: Reply) -> str:
    """The one cell of a reply."""
    (cell,) = parse_reply(reply.text).cells
    return cell.code


class Repl:
    """Just enough of a REPL to run what the model writes; calls go to the model itself."""

    def __init__(self, context: object) -> None:
        view = ContextView(context)
        self.prompts: list[str] = []
        self.submitted: list[str] = []
        self.cited: list[tuple[Any, ...]] = []
        self.names: dict[str, Any] = {
            "context": context,
            "ctx": view,
            "peek": view._peek,
            "tail": view._tail,
            "llm_query": self.llm_query,
            "FINAL": self.submitted.append,
            "cite": lambda *place: self.cited.append(place),
            "__name__": "__main__",
        }

    def llm_query(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return asyncio.run(ask(sub(prompt))).text

    def run(self, code: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "<cell>", "exec"), self.names)
        return out.getvalue()


def play(repl: Repl, query: str = QUESTION, max_steps: int = 6) -> list[str]:
    """Play a whole run without an engine; return what was printed at each step."""
    turns: list[tuple[str, str]] = []
    printed: list[str] = []
    while not repl.submitted and len(printed) < max_steps:
        reply = asyncio.run(ask(root(*turns, query=query)))
        printed.append(repl.run(code_in(reply)))
        shown = f"{printed[-1]}stdout 1.2K chars | 0.1 s | 28 steps left"
        turns += [("assistant", reply.text), ("user", shown)]
    return printed
