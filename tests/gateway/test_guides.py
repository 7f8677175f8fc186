"""The guides of the gateway say what the code says: limits, names, clients."""

import re
from pathlib import Path

from rlm.cli._mcp_install import CLIENTS
from rlm.cli.mcp import CLIENTS as OFFERED
from rlm.cli.mcp import mcp
from rlm.gateway.completing import MAX_ANSWER_BYTES
from rlm.gateway.files import MAX_BYTES, MAX_LINES
from rlm.gateway.http import MAX_BODY_BYTES
from rlm.gateway.listing import MAX_ENTRIES
from rlm.gateway.searching import MAX_HITS
from rlm.gateway.sessions import Ceilings
from rlm.gateway.stdio import MAX_LINE_BYTES
from rlm.gateway.tools import DOCUMENTED_NAMES, TOOLS

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
IDE = (GUIDES / "ide-setup.md").read_text("utf-8")


def rows(text: str, head: str) -> list[list[str]]:
    table = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line] for line in lines]


def test_the_guide_lists_every_ceiling_and_its_option() -> None:
    told = [
        (name.strip("`"), default, option) for name, default, option in rows(IDE, "for a session")
    ]
    usual = Ceilings()
    shown = {n: getattr(usual, n) for n in usual.__struct_fields__}
    assert {name: default for name, default, _ in told} == {
        name: "none" if value is None else f"{value:,.0f}" for name, value in shown.items()
    }
    options = {option for each in mcp.params for option in each.opts}
    for name, _, option in told:
        expected = "--budget-usd" if name == "cost_usd" else f"--max-{name.replace('_', '-')}"
        assert option == f"`{expected}`"
        assert option.strip("`") in options


def test_the_guide_states_the_fixed_limits() -> None:
    told = dict(rows(IDE, "always"))
    assert told["a span of `rlm_read`"] == f"{MAX_LINES} lines and {MAX_BYTES:,} bytes"
    assert told["a page of `rlm_list`"] == f"{MAX_ENTRIES} files"
    assert told["hits of `rlm_search`"].startswith(f"{MAX_HITS},")
    assert told["an answer of `rlm_complete`"].startswith(f"{MAX_ANSWER_BYTES:,} bytes")
    assert told["a message"] == (
        f"{MAX_LINE_BYTES >> 20} MiB over stdio, {MAX_BODY_BYTES >> 20} MiB over HTTP"
    )


def test_the_guide_lists_the_tool_names_of_earlier_documents() -> None:
    told = {there.strip("`"): re.findall(r"`(\w+)`", here)[0] for there, here in rows(IDE, "there")}
    assert told == DOCUMENTED_NAMES


def test_every_client_and_every_tool_is_documented() -> None:
    assert tuple(CLIENTS) == OFFERED
    told = [row[1].strip("`") for row in rows(IDE, "client")]
    assert told == list(CLIENTS)
    start = (GUIDES / "mcp-gateway-quick-start.md").read_text("utf-8")
    assert [row[0].strip("`") for row in rows(start, "tool")] == [each.name for each in TOOLS]
