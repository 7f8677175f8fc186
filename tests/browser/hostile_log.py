"""A log in which every text tries to be executed or interpreted."""

import json
from pathlib import Path
from typing import Any

import msgspec

from rlm.events import CellEnded, CellOutput, CellStarted, Event, ModelAsked, ToolCalled
from rlm.messages import Message
from tests.records.trajectories.samples import USAGE, ended, one_run, replied, started

__all__ = ["LINE_CHARS", "MARKUP", "NAMELESS", "RUN_ID", "write_hostile_log"]

LINE_CHARS = 5_000_000
MARKUP = (
    "<script>window.__pwned='script'</script>"
    "<img src=x onerror=\"window.__pwned='image'\">"
    "</pre></code></textarea></title></script><svg onload=window.__pwned='svg'></svg>"
    "<iframe srcdoc=\"<script>parent.__pwned='frame'</script>\"></iframe>"
    "<style>*{display:none}</style><base href='http://198.51.100.7/'>"
    "{{constructor.constructor('window.__pwned=1')()}}${window.__pwned=2}"
    "<a href=\"javascript:window.__pwned='link'\" onmouseover=\"window.__pwned='over'\">x</a>"
)
MOVING = "\u202egnp.exe\u202c \u2066a\u2069 \u200f \u200b\u200c\u00ad\ufeff"
TERMINAL = (
    "\x1b[31mred\x1b[0m \x1b]8;;http://198.51.100.7/\x07link\x1b]8;;\x07 \x00\x01\x07\x08\x7f\x9b2J"
)
MARKDOWN = (
    f"# {MARKUP}\n\n[press](javascript:window.__pwned='md') ![x](http://198.51.100.7/x.png)\n\n"
    f"<div>{MARKUP}</div>\n\n| {MARKUP} | b |\n|---|:-:|\n| `{MARKUP}` | **{MARKUP}** |\n\n"
    "[a]: javascript:window.__pwned='reference'\n[a] <javascript:window.__pwned='auto'>\n\n"
    f"1. {'*' * 600}\n- {'[' * 600}\n> {'> ' * 600}\n{'`' * 601}\n{'_a' * 600}\n\n"
    f"```html\n{MARKUP}\n```\n~~~\n{MARKUP}\n"
)
NASTY = f"{MARKUP} {MOVING} {TERMINAL}"
RUN_ID = "r\"'><img src=x onerror=window.__pwned='id'> /../\u202e%2f?#&"
NAMELESS = f"{RUN_ID} without a query"
LONE = "half \ud83d a pair \udc00"


def _line(event: Event) -> bytes:
    """Return JSON that may hold lone surrogates, in place of each LONE."""
    text = json.dumps(msgspec.to_builtins(event))
    return text.replace("LONE", json.dumps(LONE)[1:-1]).encode() + b"\n"


def _step(run_id: str, step: int) -> list[Event]:
    at: dict[str, Any] = {"run_id": run_id, "step": step}
    code = f"# {NASTY}\nx = '''{MARKUP}'''"
    return [
        ModelAsked(
            **at,
            purpose=NASTY,
            model=NASTY,
            new_messages=(
                Message(role="user", content=NASTY),
                Message(role="user", content=MARKDOWN),
            ),
            message_count=2,
            max_output_tokens=1,
        ),
        replied(
            run_id, step, f"{MARKDOWN}\n```repl\n{code}\n```\n{NASTY}", model=NASTY, reasoning=NASTY
        ),
        CellStarted(**at, cell=1, code=code),
        CellOutput(**at, cell=1, stream="stdout", text=NASTY, written_chars=9_999_999),
        CellOutput(**at, cell=1, stream="stdout", text="LONE", written_chars=15),
        CellOutput(**at, cell=1, stream="stderr", text="W" * LINE_CHARS, written_chars=LINE_CHARS),
        ToolCalled(
            **at,
            call_id=f"t{NASTY}",
            name=NASTY,
            arguments={NASTY: MARKUP},
            result=NASTY,
            seconds=1,
        ),
        CellEnded(
            **at,
            cell=1,
            seconds=1.0,
            calls=0,
            error_type=NASTY,
            error_message=NASTY,
            traceback=NASTY,
            new_variables={NASTY: NASTY, "__proto__": MARKUP, "constructor": MOVING},
            changed_variables={"toString": TERMINAL},
        ),
    ]


def write_hostile_log(path: Path) -> Path:
    told = {"query": NASTY, "model": NASTY, "sub_model": NASTY, "environment": NASTY}
    described = {"context_description": NASTY, "context_kind": MARKUP, "context_bytes": 10**15}
    events: list[Event] = [started(RUN_ID, **told, **described, settings={NASTY: [MARKUP]})]
    events += _step(RUN_ID, 1)
    child = f"{RUN_ID}-child"
    events += one_run(child, 1, parent_id=RUN_ID, depth=1, query=NASTY, model=NASTY)
    events += _step(RUN_ID, 2)
    events.append(
        ended(RUN_ID, answer=MARKDOWN, error=NASTY, detail=NASTY, limit=MARKUP, usage=USAGE)
    )
    other = one_run("another", 1, query="An innocent question", model="m")
    other += one_run(NAMELESS, 1, query="", model="m")
    junk = [
        b"<script>window.__pwned='line'</script>\n",
        b'{"type": "<img src=x>"}\n',
        b"\x00\xff\n",
    ]
    junk += [
        b"[" * 50_000 + b"\n",
        b'{"type":"run_ended","steps":"many"}\n',
        b"x" * 3_000_000 + b"\n",
    ]
    path.write_bytes(b"".join([*map(_line, events), *junk, *map(_line, other)]))
    return path
