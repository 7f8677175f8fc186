"""What an editor is shown of a prompt while it is answered, in the order in which it happens."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from acp import helpers

from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    ModelReplied,
    OperatorEnded,
    OperatorStarted,
    OutputStreamed,
)
from rlm.results.cards import last_line, words_of

__all__ = ["TurnView", "UpdateQueue", "clean"]

MAX_CHARS = 20_000
"""Of one text of an update: both ends are shown."""
TITLE_CHARS = 80
MAX_CALLS = 50
"""Calls of one prompt that are shown one by one. A cell can make thousands."""
MAX_WAITING = 1_000
"""Updates that wait for a slow client before the run sends no further request."""

_log = logging.getLogger("rlm.acp")

Send = Callable[[Any], Awaitable[None]]


class UpdateQueue:
    """Updates of one prompt, sent one after another."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._pump())

    def put(self, update: Any) -> None:
        self._queue.put_nowait(update)

    async def flush(self) -> None:
        """Wait until everything so far was sent."""
        await self._queue.join()

    async def catch_up(self) -> None:
        """Wait while too many updates wait for the client."""
        while self._queue.qsize() >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """Send what is left, and end."""
        await self.flush()
        self._task.cancel()

    async def _pump(self) -> None:
        is_gone = False
        while True:
            update = await self._queue.get()
            if not is_gone:
                try:
                    await self._send(update)
                except ConnectionError as error:
                    _log.warning("the client is gone: %s", error)
                    is_gone = True
            self._queue.task_done()
            if self._queue.qsize() <= MAX_WAITING // 2:
                self._room.set()


class TurnView:
    """A recorder that turns the events of a run into updates.

    Cells, calls and operators of the root run are tool calls; child runs are one call each. What
    the model says beside its code is a thought, and only the answer is a message.
    """

    wants_pieces = True

    def __init__(self, updates: UpdateQueue) -> None:
        self._updates = updates
        self._open: dict[str, list[str]] = {}
        """The texts shown so far of each tool call that is not over."""
        self._calls = 0
        self._not_shown = 0
        self.streamed = ""
        self.last_reply: ModelReplied | None = None

    async def catch_up(self) -> None:
        await self._updates.catch_up()

    def record(self, event: Event) -> None:
        if event.depth:
            return
        show = _SHOWN.get(type(event))
        if show is not None:
            show(self, event)

    def say(self, text: str) -> None:
        """Show a part of the answer."""
        if text:
            self.streamed += text
            self._updates.put(helpers.update_agent_message_text(clean(text)))

    def think(self, text: str) -> None:
        if text.strip():
            self._updates.put(helpers.update_agent_thought_text(clean(cut(text))))

    def end_all(self) -> None:
        """End the tool calls of a run that was cancelled or failed."""
        for call_id in list(self._open):
            self._finish(call_id, "it did not end", failed=True)

    # -- tool calls --------------------------------------------------------------------------

    def start(
        self, call_id: str, title: str, kind: Any, texts: Sequence[str], raw_input: Any = None
    ) -> None:
        """Show that something begins."""
        self._open[call_id] = shown = [text for text in texts if text]
        self._updates.put(
            helpers.start_tool_call(
                call_id,
                clean(_title(title)),
                kind=kind,
                status="in_progress",
                content=_content(shown),
                raw_input=raw_input,
            )
        )

    def _finish(self, call_id: str, text: str = "", *, failed: bool = False) -> None:
        shown = self._open.pop(call_id, None)
        if shown is None:
            return
        status: Literal["completed", "failed"] = "failed" if failed else "completed"
        content = _content([*shown, text] if text else shown)
        self._updates.put(helpers.update_tool_call(call_id, status=status, content=content))

    # -- events ------------------------------------------------------------------------------

    def _replied(self, event: ModelReplied) -> None:
        if event.purpose == "step":
            self.last_reply = event
        self.think(event.reasoning)
        if event.purpose == "step" and "```" in event.text:
            self.think(words_of(event.text, limit=MAX_CHARS))

    def _cell_started(self, event: CellStarted) -> None:
        first = next((line for line in event.code.splitlines() if line.strip()), "")
        code = [fenced(event.code, "python")]
        self.start(_cell_id(event), f"Run code: {first.strip()}", "execute", code)

    def _cell_output(self, event: CellOutput) -> None:
        shown = self._open.get(_cell_id(event))
        if shown is not None and event.text:
            shown.append(fenced(event.text))
            self._updates.put(helpers.update_tool_call(_cell_id(event), content=_content(shown)))

    def _cell_ended(self, event: CellEnded) -> None:
        problem = last_line(event)
        rest = f"{self._not_shown:,} more model calls" if self._not_shown else ""
        self._not_shown = 0
        failed = event.error_type is not None or event.interrupted
        self._finish(_cell_id(event), "\n\n".join(filter(None, [rest, problem])), failed=failed)

    def _call_started(self, event: CallStarted) -> None:
        if event.operator_id is not None:
            return
        if self._calls >= MAX_CALLS:
            self._not_shown += 1
            return
        self._calls += 1
        what = "Ask a model" if event.kind == "llm" else "Start a child run"
        shown = [fenced(event.prompt)]
        self.start(event.call_id, f"{what}: {event.prompt.strip()}", "think", shown)

    def _call_ended(self, event: CallEnded) -> None:
        text = event.error or fenced(event.reply)
        self._finish(event.call_id, text, failed=event.error is not None)

    def _operator_started(self, event: OperatorStarted) -> None:
        title = f"{event.name} {event.items:,} items: {event.task}"
        self.start(event.operator_id, title, "think", [event.task])

    def _operator_ended(self, event: OperatorEnded) -> None:
        text = event.error or event.summary
        self._finish(event.operator_id, text, failed=event.error is not None)

    def _streamed(self, event: OutputStreamed) -> None:
        self.say(event.text)
        if event.taken_back_chars:
            self.streamed = self.streamed[: -event.taken_back_chars - len(event.text)]


_SHOWN: dict[type[Any], Callable[[TurnView, Any], None]] = {
    ModelReplied: TurnView._replied,
    CellStarted: TurnView._cell_started,
    CellOutput: TurnView._cell_output,
    CellEnded: TurnView._cell_ended,
    CallStarted: TurnView._call_started,
    CallEnded: TurnView._call_ended,
    OperatorStarted: TurnView._operator_started,
    OperatorEnded: TurnView._operator_ended,
    OutputStreamed: TurnView._streamed,
}


def clean(text: str) -> str:
    """Return the text without lone surrogates, which JSON can't hold."""
    return text.encode("utf-8", "replace").decode()


def cut(text: str) -> str:
    """Return a text, of a long one both ends."""
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half:,} characters) …\n{text[-half:]}"


def fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code that it can't leave."""
    shown = cut(text).strip("\n")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{shown}\n{marks}"


def _content(texts: Sequence[str]) -> list[Any]:
    return [helpers.tool_content(helpers.text_block(clean(text))) for text in texts]


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"


def _cell_id(event: CellStarted | CellOutput | CellEnded) -> str:
    return f"{event.run_id}-{event.step}-{event.cell}"
