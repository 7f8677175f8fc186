"""One complete run, event by event. `UPDATE_GOLDEN=1` rewrites the file; read its diff."""

import json
import os
import re
from pathlib import Path
from typing import Any, get_args

import msgspec

from rlm.api import RLM
from rlm.errors import ModelError
from rlm.events import SCHEMA_VERSION, Event
from rlm.limits import Limits
from rlm.messages import Usage
from rlm.results import RunResult
from rlm.testing.scripted import ScriptedClient

GOLDEN = Path(__file__).parent / "golden" / "trajectory.jsonl"
SECONDS = re.compile(r"\b\d+\.\d s\b")
CARETS = re.compile(r"\\n[ ~^]*\^[ ~^]*(?=\\n)")
"""The line below a traceback's source line, which Python versions draw differently."""


THIRD_REPLY = """
```repl
replies = llm_query_batched(['piece-1', 'piece-2'])
print(replies)
part = rlm_query('add one to 41')
FINAL(part)
```
"""


async def scripted_run() -> RunResult:
    """Two steps, a batch with a failing item, a child run and a repaired error."""
    client = ScriptedClient(
        [
            "I look first.\n```repl\nprint(context[:5])\nrows = context.split()\n```",
            "```repl\nprint(undefined_name)\n```",
            THIRD_REPLY,
        ],
        rules=[
            ("piece-1", "one"),
            ("piece-2", ModelError("the second one failed")),
            ("The task is in the variable", "```repl\nFINAL(41 + 1)\n```"),
        ],
        # Not counted: tracebacks are of different lengths in different Pythons.
        usage=lambda request, text: Usage(100, 10, requests=1),
    )
    engine = RLM(client, limits=Limits(max_depth=2))
    try:
        return await engine.aask("What is the answer?", "alpha beta gamma")
    finally:
        await engine.aclose()


def comparable(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Events without what differs from run to run: ids, times, and the system prompt's text."""
    names: dict[str, str] = {}
    rows = []
    for event in events:
        names.setdefault(event.run_id, f"run-{len(names) + 1}")
        row = json.loads(msgspec.json.encode(event))
        # A hash covers the seconds in a request, too.
        for field in ("wall_time", "monotonic_time", "seconds", "layers", "settings", "digest"):
            row.pop(field, None)
        for message in row.get("new_messages", []):
            if message["role"] == "system":
                message["content"] = "(see golden/prompts)"
        text = SECONDS.sub("0.0 s", json.dumps(row, sort_keys=True, ensure_ascii=False))
        text = CARETS.sub("", text)
        for run_id, name in names.items():
            text = text.replace(run_id, name)
        rows.append(json.loads(text))
    return rows


async def test_the_trajectory_matches_the_golden_file() -> None:
    rows = comparable((await scripted_run()).events)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(lines, "utf-8")
    assert [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()] == rows


async def test_events_survive_json_and_name_their_schema() -> None:
    decoder = msgspec.json.Decoder(Event)
    for event in (await scripted_run()).events:
        assert decoder.decode(msgspec.json.encode(event)) == event
        assert event.schema_version == SCHEMA_VERSION


def test_every_event_has_its_own_tag() -> None:
    schema = msgspec.json.schema(Event)
    tags = [
        d["properties"]["type"]["enum"][0]
        for d in schema["$defs"].values()
        if "type" in d["properties"]
    ]
    assert len(tags) == len(set(tags)) == len(get_args(Event))
