"""A run whose sandbox lies: prompts, events and the journal still keep the caller's limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits
from rlm.chat.variables import _checked
from rlm.engine.bridge import CONTEXT, Bridge, _all_decoded
from rlm.errors import CallRefused, SessionError
from rlm.events import MAX_PROMPT_CHARS, MAX_RESULT_CHARS, CallStarted, ToolCalled
from rlm.prompts.observation import observation
from rlm.protocols import Host
from rlm.results import CellError, CellResult, Submission, bounded
from rlm.testing.scripted import ScriptedClient
from rlm.worker import bounds
from tests.fakes import PlanSession

KEPT, OUTPUT = 5_000, 1_000
LIMITS = Limits(kept_output_chars=KEPT, output_chars=OUTPUT)
LIES = {
    "stdout": CellResult(stdout="x" * 3_000_000, stdout_chars=5),
    "stderr": CellResult(stderr="x" * 3_000_000, stderr_chars=2**64),
    "message": CellResult(error=CellError("E", "m" * 4_000_000, "t")),
    "traceback": CellResult(error=CellError("E", "m", "t" * 4_000_000)),
    "type": CellResult(error=CellError("E" * 4_000_000, "m", "t")),
    "names": CellResult(new_variables={"n" * 100_000 + str(n): "int" for n in range(30)}),
    "many names": CellResult(new_variables={f"n{n}": "int" for n in range(100_000)}),
    "descriptions": CellResult(changed_variables={f"n{n}": "t" * 100_000 for n in range(30)}),
    "answers": CellResult(answer_content="a" * (bounds.MAX_ANSWER_CHARS + 5)),
}


class LyingSession(PlanSession):
    """Its cells have the result that they name."""

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        return LIES.get(code.strip("# \n"), CellResult(submission=Submission("done", "FINAL")))


class LyingEnvironment:
    name = "lying"

    async def open(self, host: Host, options: dict[str, Any]) -> LyingSession:
        return LyingSession(host)

    async def close(self) -> None:
        return


@pytest.mark.parametrize("lie", LIES)
def test_a_run_keeps_its_limits_whatever_its_sandbox_reports(lie: str, tmp_path: Path) -> None:
    client = ScriptedClient([f"```repl\n# {lie}\n```", "```repl\n# end\n```"])
    journal = tmp_path / "runs.db"
    with RLM(client, environment=LyingEnvironment(), limits=LIMITS, journal=journal) as engine:
        result = engine.ask("what?", "context")
    assert result.answer == "done"
    told = client.requests[1].messages[-1].content
    assert len(told) < 4 * OUTPUT
    facts = [json.dumps(str(event)) for event in result.events]
    assert max(map(len, facts)) < 2 * bounds.MAX_CHANGED_VARIABLES * 40 + 4 * KEPT
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 2_000_000


def test_values_within_the_limits_are_unchanged() -> None:
    whole = CellResult(
        stdout="x" * KEPT,
        stdout_chars=KEPT,
        error=CellError("E", "m" * bounds.MAX_MESSAGE_CHARS, "t" * bounds.MAX_TRACEBACK_CHARS),
        new_variables={f"n{n}": "int" for n in range(bounds.MAX_CHANGED_VARIABLES)},
        submission=Submission("s" * 10, "FINAL", "s" * 20),
        answer_content="a" * 10,
    )
    assert bounded(whole, KEPT, 10) is whole


def test_each_part_of_an_observation_is_limited() -> None:
    for result in LIES.values():
        assert len(observation([result], output_chars=OUTPUT, steps_left=1)) < 3 * OUTPUT


FORGE = """
import os, stat, struct
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
fd = next(filter(is_socket, range(3, 50)))
def forge(kind, id, *parts):
    table = struct.pack(f'<{len(parts)}I', *map(len, parts))
    body = struct.pack('<BII', kind, id, len(parts)) + table + b''.join(parts)
    data = struct.pack('<I', len(body)) + body
    while data: data = data[os.write(fd, data):]
error = b'{"error": {"type": "E", "message": "' + b'm' * 200_000 + b'", "traceback": "t"}'
"""
FORGED = {
    "error.message": 'forge(34, REQUEST, bytes(25), error + b\', "how": null, "texts": []}\','
    " b'', b'', b'')",
    "stdout": "forge(34, REQUEST, bytes(25), b'', b'x' * 30_000_000, b'', b'')",
    "names": "forge(34, REQUEST, bytes(25), b'', b'', b'', b'v\\0' * 5_000_000)",
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_frame_costs_no_more_than_an_honest_one(what: str) -> None:
    """The first cell of a run is the third request of its session, after INIT and the context."""
    code = FORGE + FORGED[what].replace("REQUEST", "3")
    # The worker's own answer comes one too late, which ends the session: the next one answers.
    final = "```repl\nFINAL('done')\n```"
    client = ScriptedClient([f"```repl\n{code}\n```", *[final] * 3])
    with RLM(client, limits=LIMITS) as engine:
        result = engine.ask("what?", "context")
    assert result.answer == "done"
    assert len(client.requests[1].messages[-1].content) < 4 * OUTPUT
    assert max(len(str(event)) for event in result.events) < 30_000


# -- calls ----------------------------------------------------------------------------------------


def test_call_events_hold_only_the_ends_of_long_texts() -> None:
    code = "llm_query('p' * 1_500_000); note(text='t' * 300_000); FINAL('done')"
    client = ScriptedClient([f"```repl\n{code}\n```", "reply"])
    kept: list[int] = []

    def note(text: str) -> int:
        kept.append(len(text))
        return len(text)

    with RLM(client, tools=[note]) as engine:
        result = engine.ask("what?", "context")
    assert result.answer == "done"
    assert kept == [300_000]
    assert len(client.requests[1].messages[-1].content) == 1_500_000
    (asked,) = [event for event in result.events if isinstance(event, CallStarted)]
    assert MAX_PROMPT_CHARS <= len(asked.prompt) <= MAX_PROMPT_CHARS + 100
    (called,) = [event for event in result.events if isinstance(event, ToolCalled)]
    assert len(str(called.arguments)) <= MAX_RESULT_CHARS + 200


async def test_contexts_of_child_runs_are_measured_before_decoding() -> None:
    lists = "[" + "[]," * 200_000 + "[]]"
    with pytest.raises(CallRefused, match="pass a string"):
        await _all_decoded([{"kind": "json"}], [lists])
    assert await _all_decoded([{"kind": "text"}, None], [lists]) == [lists, None]
    value = [{"id": n, "text": "some, text"} for n in range(20_000)]
    assert await _all_decoded([{"kind": "json"}], [json.dumps(value)]) == [value]
    assert CONTEXT.values == bounds.MAX_CONTEXT_VALUES


async def test_the_key_of_a_note_is_limited() -> None:
    bridge = object.__new__(Bridge)
    with pytest.raises(CallRefused, match="at most 256 characters"):
        await bridge._tell("note", "k" * 300, "1")


REPORTS = {
    "many lists": '{"names": [' + "[]," * 500_000 + "[]]}",
    "deep": '{"names": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "long numbers": '{"names": [' + "9" * 100_000 + "]}",
    "long": '{"problem": "' + "x" * 9_000_000 + '"}',
}


@pytest.mark.parametrize("text", REPORTS.values(), ids=REPORTS)
def test_a_report_on_variables_is_measured_before_decoding(text: str) -> None:
    with pytest.raises(SessionError, match="can't be read"):
        _checked(text)
