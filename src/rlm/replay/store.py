"""A ReplyStore that answers from a recording; what is not in it is a difference."""

import re
from collections.abc import Mapping, Sequence

from rlm.errors import ModelError
from rlm.events import ModelAsked
from rlm.messages import Message, Reply, ReplyKey, Request, Usage
from rlm.replay.comparing import Difference, diff
from rlm.replay.recording import Recording
from rlm.results import Shown

__all__ = ["ReplayStore"]

_SECONDS = re.compile(r"\| \d+\.\d s \|")
"""How long the cells took, in the line below their output; it differs between executions."""

_OPENING = {"system": "system", "task": "user"}
"""The role of each message that a conversation begins with."""


class ReplayStore:
    """Answers every request at once with its recorded reply."""

    def __init__(
        self, recording: Recording, long_results: Mapping[str, Reply] | None = None
    ) -> None:
        self.differences: list[Difference] = []
        self.answered = 0
        self._recording = recording
        self._long_results = long_results or {}
        self._own = {
            (path, digest, number): reply
            for path in recording.runs
            for digest, number, reply in recording.replies_of(path)
        }

    async def get(self, key: ReplyKey, request: Request | None) -> Reply | None:
        """Return the recorded reply; a request that was not recorded fails and is never sent."""
        if key.kind == "child":
            return None  # Children run again too.
        run = self._recording.runs.get(key.path)
        if run is not None and key.kind in ("llm", "tool"):
            call_id = f"{run.started.run_id}.{key.digest[:10]}.{key.number}"
            reply = self._long_results.get(str(key)) or self._recording.results.get(call_id)
        else:
            reply = self._own.get((key.path, key.digest, key.number))
        if reply is None:
            self._note(key, request)
            raise ModelError("the recording has no reply to this request")
        self.answered += 1
        return reply

    async def put(self, key: ReplyKey, reply: Reply) -> None:
        """Do nothing: a recording is not extended."""

    def keep(self, key: ReplyKey, usage: Usage) -> None:
        """Do nothing: nothing is sent."""

    def take_unrecalled(self) -> Sequence[tuple[ReplyKey, Usage]]:
        """Return nothing: what a replay does not repeat is not a part of it."""
        return ()

    async def recorded(self, path: str, step: int, what: str) -> Shown | None:
        """Return what an earlier execution showed, as the resumed run found it.

        Everything else is rendered again, and compared.
        """
        run = self._recording.runs.get(path)
        if run is None or not run.is_resumed:
            return None
        if what in _OPENING:
            text = run.opening(_OPENING[what])
            return None if text is None else Shown(text)
        if what == "observation" and run.was_over(step):
            return next((Shown(text, is_last=False) for text in run.shown_after(step)), None)
        return None

    async def show(self, path: str, step: int, what: str, shown: Shown) -> str:
        """Return what was recorded, so that the next request is found; note differences."""
        run = self._recording.runs.get(path)
        if what != "observation" or run is None:
            return shown.text
        same = _matching(shown.text)
        texts = list(run.shown_after(step))
        for text in texts:
            if found := same.match(text):
                return found[0]
        if texts and step in run.stored_steps:  # An earlier execution may have shown it.
            return texts[-1]
        if texts:
            where = f"what run {run.started.run_id} was shown after step {step}"
            self.differences.append(Difference(where, diff(texts[-1], shown.text)))
            return texts[-1]
        return shown.text

    def _note(self, key: ReplyKey, request: Request | None) -> None:
        run = self._recording.runs.get(key.path)
        if run is None:
            where = f"a child run of step {key.step} that was not recorded"
            self.differences.append(Difference(where, _last_message(request)))
        elif key.kind in ("llm", "tool"):
            recorded = [call.prompt for call in run.calls.values() if call.step == key.step]
            now = "" if request is None else _content(request.messages[-1])
            where = f"a call of step {key.step} in run {run.started.run_id}"
            self.differences.append(Difference(where, diff(_nearest(now, recorded), now)))
        else:
            asks = [a.asked for a in run.asks if (a.asked.step, a.asked.purpose) == _at(key)]
            where = f"the request for {key.kind} {key.step} of run {run.started.run_id}"
            self.differences.append(Difference(where, _request_diff(asks, request)))


def _at(key: ReplyKey) -> tuple[int, str]:
    return key.step, key.kind


def _matching(shown: str) -> re.Pattern[str]:
    """Return a pattern for the same text with any duration of the cells."""
    parts = _SECONDS.split(shown)
    return re.compile(r"\| \d+\.\d s \|".join(map(re.escape, parts)))


def _request_diff(asks: list[ModelAsked], request: Request | None) -> str:
    """Return a diff of what is new in the recorded request and the end of this one."""
    if not asks or request is None:
        return _last_message(request)
    recorded = asks[0].new_messages
    now = request.messages[-len(recorded) :] if recorded else ()
    lines = diff(
        "\n".join(f"[{m.role}]\n{_content(m)}" for m in recorded),
        "\n".join(f"[{m.role}]\n{_content(m)}" for m in now),
    )
    if lines:
        return lines
    facts = f"{asks[0].model}, at most {asks[0].max_output_tokens} tokens"
    return diff(facts, f"{request.model}, at most {request.max_output_tokens} tokens") or (
        "the new messages are the same; sampling, tools or earlier messages differ"
    )


def _nearest(text: str, known: list[str]) -> str:
    """Return the recorded text that shares the longest beginning and end with this one."""

    def shared(other: str) -> int:
        pairs = zip(text, other, strict=False), zip(text[::-1], other[::-1], strict=False)
        return sum(_run_of_equals(each) for each in pairs)

    return max(known, key=shared, default="")


def _run_of_equals(pairs: "zip[tuple[str, str]]") -> int:
    count = 0
    for first, second in pairs:
        if first != second:
            break
        count += 1
    return count


def _last_message(request: Request | None) -> str:
    return diff("", "" if request is None else _content(request.messages[-1]))


def _content(message: Message) -> str:
    return message.content if isinstance(message.content, str) else repr(message.content)
