"""Read logs of the reference engine as events."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rlm._util.slow_numbers import decode, loads
from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.messages import Message, Usage
from rlm.records.trajectories.decoding import Glance, Line, Skipped, glance_of, lines_of
from rlm.records.trajectories.sources import Span, changed_lately, opened
from rlm.records.trajectories.values import (
    as_count,
    as_dict,
    as_list,
    as_message,
    as_seconds,
    as_text,
    as_time,
    as_usage,
    described,
)

__all__ = ["REFERENCE_TYPES", "ReferenceSource", "SoFar", "converted"]

MAX_DEPTH = 50
MAX_VARIABLES = 1_000
_ASKED = (("Answer the following: ", "\n\nYour context is "), ('original query: "', '"'))
"""The text before and after the query in prompts of versions of the reference engine."""

_ERROR = re.compile(
    r"^(\w{0,100}(?:Error|Exception|Interrupt|Exit)): ?(.*)\Z", re.MULTILINE | re.DOTALL
)


class SoFar(Struct, frozen=True, kw_only=True):
    """The state of a run before an iteration: what is needed to convert that iteration alone."""

    run_id: str
    parent_id: str | None = None
    parent_call_id: str | None = None
    depth: int = 0
    query: str = ""
    steps: int = 0
    started: float = 0.0
    seconds: float = 0.0
    calls: int = 0
    messages: int = 0
    digest: bytes = b""
    variables: frozenset[str] = frozenset()
    usage: Usage = Usage()
    is_over: bool = False

    def is_over_before(self, iteration: dict[str, Any]) -> bool:
        """Return whether that iteration belongs to a run after this one."""
        number = as_count(iteration.get("iteration"))
        return self.is_over or 0 < number <= self.steps


def converted(
    iteration: dict[str, Any], metadata: dict[str, Any], before: SoFar
) -> tuple[list[Event], SoFar]:
    """Return the events of one iteration, with those of child runs, and the state after it."""
    made = _Making(iteration, metadata, before)
    made.convert()
    return made.events, made.after


class _Making:
    """One iteration being converted to events."""

    def __init__(self, iteration: dict[str, Any], metadata: dict[str, Any], before: SoFar) -> None:
        self.events: list[Event] = []
        self._iteration = iteration
        self._metadata = metadata
        self._seconds = as_seconds(iteration.get("iteration_time"))
        self._end = as_time(iteration.get("timestamp"))
        self._start = max(0.0, self._end - self._seconds)
        number = as_count(iteration.get("iteration"))
        self._is_first = before.steps == 0
        self.after = replace(
            before,
            steps=max(number, before.steps + 1),
            started=self._start if self._is_first else before.started,
            seconds=before.seconds + self._seconds,
        )

    @property
    def _model(self) -> str:
        return as_text(self._metadata.get("root_model"))

    def convert(self) -> None:
        messages = _messages(self._iteration.get("prompt"))
        if self._is_first:
            self._begin(messages)
        self._tell(StepStarted, at=self._start)
        self._ask(messages)
        for number, block in enumerate(as_list(self._iteration.get("code_blocks")), 1):
            self._run_cell(number, as_dict(block))
        answer = _answer(self._iteration.get("final_answer"))
        if answer is not None:
            self._finish(answer)

    def _tell(
        self, kind: Any, /, *, at: float | None = None, step: int | None = None, **facts: Any
    ) -> None:
        moment = self._end if at is None else at
        self.events.append(
            kind(
                run_id=self.after.run_id,
                parent_id=self.after.parent_id,
                depth=self.after.depth,
                step=self.after.steps if step is None else step,
                wall_time=moment,
                monotonic_time=moment,
                **facts,
            )
        )

    def _begin(self, messages: tuple[Message, ...]) -> None:
        self._tell(
            RunStarted,
            at=self._start,
            step=0,
            query=_query(messages) or self.after.query,
            model=self._model,
            sub_model=", ".join(map(as_text, as_list(self._metadata.get("other_backends")))),
            strategy="rlm",
            environment=as_text(self._metadata.get("environment_type")),
            context_kind="text",
            context_bytes=0,
            context_sha256="",
            context_description="",
            parent_call_id=self.after.parent_call_id,
        )

    def _ask(self, messages: tuple[Message, ...]) -> None:
        """Add a request; the reference logs whole conversations, an event has only what is new."""
        known = self.after.messages
        same = known <= len(messages) and _digest(messages[:known]) == self.after.digest
        self._tell(
            ModelAsked,
            at=self._start,
            purpose="step",
            model=self._model,
            new_messages=messages[known:] if same else messages,
            message_count=len(messages),
            max_output_tokens=0,
        )
        self.after = replace(self.after, messages=len(messages), digest=_digest(messages))
        blocks = [as_dict(block) for block in as_list(self._iteration.get("code_blocks"))]
        cells = sum(as_seconds(as_dict(b.get("result")).get("execution_time")) for b in blocks)
        self._tell(
            ModelReplied,
            purpose="step",
            model=self._model,
            text=as_text(self._iteration.get("response")),
            seconds=max(0.0, self._seconds - cells),
        )

    def _run_cell(self, number: int, block: dict[str, Any]) -> None:
        result = as_dict(block.get("result"))
        calls = as_list(result.get("rlm_calls"))
        self._tell(CellStarted, cell=number, code=as_text(block.get("code")))
        for call in calls:
            self._call(as_dict(call))
        texts = {stream: as_text(result.get(stream)) for stream in ("stdout", "stderr")}
        for stream, text in texts.items():
            if text:
                written = len(text)
                self._tell(CellOutput, cell=number, stream=stream, text=text, written_chars=written)
        error = _ERROR.search(texts["stderr"].strip()[-2_000:])
        self._tell(
            CellEnded,
            cell=number,
            seconds=as_seconds(result.get("execution_time")),
            calls=len(calls),
            error_type=error and error[1],
            error_message=error and error[2],
            new_variables=self._new_variables(as_dict(result.get("locals"))),
            submitted=result.get("final_answer") is not None,
        )

    def _new_variables(self, variables: dict[str, Any]) -> dict[str, str]:
        room = max(0, MAX_VARIABLES - len(self.after.variables))
        names = [name for name in variables if as_text(name) not in self.after.variables][:room]
        new = {as_text(name): described(variables[name]) for name in names}
        if new:  # Otherwise the states of all lines share one set.
            self.after = replace(self.after, variables=self.after.variables | new.keys())
        return new

    def _call(self, call: dict[str, Any]) -> None:
        number = self.after.calls + 1
        self.after = replace(self.after, calls=number)
        call_id = f"{self.after.run_id}.reference.{number}"
        trajectory = call.get("metadata")
        is_child = isinstance(trajectory, dict) and self.after.depth < MAX_DEPTH
        model, usage = as_text(call.get("root_model")), as_usage(call.get("usage_summary"))
        about: dict[str, Any] = {
            "call_id": call_id,
            "kind": "rlm" if is_child else "llm",
            "model": model,
        }
        prompt = as_text(call.get("prompt"))
        self._tell(CallStarted, **about, prompt=prompt)
        child = f"{self.after.run_id}-call{number}" if is_child else None
        if child is not None:
            self._child(as_dict(trajectory), child, call_id, prompt)
        self.after = replace(self.after, usage=self.after.usage + usage)
        self._tell(
            CallEnded,
            **about,
            reply=as_text(call.get("response")),
            usage=usage,
            seconds=as_seconds(call.get("execution_time")),
            child_run_id=child,
            error=None if call.get("error") is None else as_text(call.get("error")),
        )

    def _child(self, trajectory: dict[str, Any], child_id: str, call_id: str, query: str) -> None:
        metadata = as_dict(trajectory.get("run_metadata"))
        state = SoFar(
            run_id=child_id,
            parent_id=self.after.run_id,
            parent_call_id=call_id,
            depth=self.after.depth + 1,
            query=query,
        )
        for each in as_list(trajectory.get("iterations")):
            events, state = converted(as_dict(each), metadata, state)
            self.events += events

    def _finish(self, answer: str) -> None:
        """End the run; an answer without cells and time was requested after the last step."""
        was_asked = not self._iteration.get("code_blocks") and not self._seconds
        elapsed = self._end - self.after.started
        self._tell(
            RunEnded,
            stop_reason="steps" if was_asked else "answer",
            answer_source="asked" if was_asked else "submitted",
            answer=answer,
            steps=self.after.steps,
            usage=self.after.usage,
            seconds=elapsed if self.after.started and elapsed >= 0 else self.after.seconds,
        )
        self.after = replace(self.after, is_over=True)


def _messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, list):
        return tuple(map(as_message, prompt))
    return () if prompt is None else (as_message(prompt),)


def _query(messages: tuple[Message, ...]) -> str:
    """Return what was asked, if the prompt has one of the reference engine's forms."""
    for message in messages:
        for before, after in _ASKED if message.role == "user" else ():
            text = str(message.content)
            if (start := text.find(before)) >= 0:
                start += len(before)
                if (end := text.find(after, start)) >= 0:
                    return text[start:end]
    return ""


def _answer(value: Any) -> str | None:
    """Return the answer; older versions wrote a pair of its kind and the answer."""
    if isinstance(value, list) and value:
        value = value[-1]
    return None if value is None else as_text(value)


def _digest(messages: tuple[Message, ...]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(messages)).digest()[:8]


REFERENCE_TYPES = (b"metadata", b"iteration")
MAX_ITERATIONS = 100_000


class ReferenceSource:
    """One file. Positions are byte offsets; each keeps what is needed to read its line alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metadata: dict[str, Any] = {}
        self._before: dict[int, SoFar] = {}
        self._now = SoFar(run_id=path.stem)
        self._runs = 1

    def glances(
        self, start: int, skipped: Skipped, tail: Skipped
    ) -> Iterator[tuple[int, int, Glance | None]]:
        with opened(self.path) as file:
            for line in lines_of(file, skipped, start=start):
                iteration = self._iteration(line, tail if line.torn else skipped)
                if iteration is None and line.torn:
                    return
                yield line.start, line.end, None
                if iteration is not None and self._remember(line, iteration, skipped):
                    events, self._now = converted(iteration, self._metadata, self._now)
                    for event in events:
                        yield line.start, line.end, glance_of(event)

    def events(self, spans: Sequence[Span] | None, skipped: Skipped) -> Iterator[tuple[int, Event]]:
        ignored = Skipped()
        with opened(self.path) as file:
            for start, stop in [(0, None)] if spans is None else spans:
                for line in lines_of(file, ignored, start=start, stop=stop):
                    before = self._before.get(line.start)
                    iteration = None if before is None else self._iteration(line, ignored)
                    if before is not None and iteration is not None:
                        for event in converted(iteration, self._metadata, before)[0]:
                            yield line.start, event

    def may_grow(self) -> bool:
        return changed_lately(self.path)

    def _iteration(self, line: Line, skipped: Skipped) -> dict[str, Any] | None:
        """Return the iteration on a line; remember metadata, and count anything else."""
        if not line.text:
            return None
        where = f"byte {line.start:,}"
        value, reason = _parsed(line.text)
        if not isinstance(value, dict):
            skipped.add("torn" if line.torn else "not an iteration", where, reason)
        elif value.get("type") == "metadata":
            self._metadata = value
        elif value.get("type") == "iteration":
            return value
        else:
            skipped.add("unknown type", where)
        return None

    def _remember(self, line: Line, iteration: dict[str, Any], skipped: Skipped) -> bool:
        """Store the state of the runs before this line; an iteration 1 starts another run."""
        if len(self._before) >= MAX_ITERATIONS:
            skipped.add("of too many steps", f"byte {line.start:,}", f"{MAX_ITERATIONS:,}")
            return False
        if self._now.is_over_before(iteration):
            self._runs += 1
            self._now = SoFar(run_id=f"{self.path.stem}-run{self._runs}")
        self._before[line.start] = self._now
        return True


def _parsed(text: bytes) -> tuple[Any, str]:
    """Return the value on a line, or why there is none. Accept NaN, which Python writes."""
    try:
        return decode(text, object), "not an object"
    except (ValueError, RecursionError):
        pass
    try:
        return loads(text), "not an object"
    except (ValueError, RecursionError) as error:
        return None, str(error)
