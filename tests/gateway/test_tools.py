"""Every tool and every refusal, through a real client on every transport and in both eras."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from rlm.gateway.completing import MAX_ANSWER_BYTES
from rlm.gateway.executing import MAX_AT_ONCE_EACH, MAX_INTERPRETERS
from rlm.gateway.files import MAX_BYTES, MAX_LINES, MAX_SCANNED_BYTES
from rlm.gateway.listing import MAX_ENTRIES
from rlm.gateway.runs import MAX_AT_ONCE
from rlm.gateway.search_worker import SHOWN_CHARS
from rlm.gateway.searching import MAX_HITS
from rlm.gateway.sessions import MAX_SESSIONS, MAX_SESSIONS_EACH, Ceilings
from rlm.gateway.tasks import MAX_THREADS_EACH
from rlm.gateway.tools import DOCUMENTED_NAMES, TOOLS
from tests.gateway.places import EVERYWHERE, NEAR, asked, opened, refused, session_of
from tests.gateway.recipes import Recipe

LINES = [f"line {number} of the story" for number in range(1, 501)]
FINAL = """```repl
text = context["story.txt"]
FINAL({"answer": "It is line 42.", "citations": [
    {"file": "story.txt", "start_line": 42, "end_line": 42, "quote": "line 42 of the story"},
    {"file": "story.txt", "start_line": 1, "end_line": 2, "quote": "line 77 of"},
    {"file": "story.txt", "start_line": 1, "end_line": 1, "quote": "never written"},
]})
```"""


@pytest.fixture(params=NEAR)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    root = tmp_path / "repo"
    (root / "docs").mkdir(parents=True)
    (root / "story.txt").write_text("\n".join(LINES) + "\n")
    (root / "docs" / "guide.md").write_text("# Guide\nThe zygote forks workers.\n")
    (root / ".env").write_text("SECRET=hunter2\n")
    (tmp_path / "outside.txt").write_text("outside the root\n")
    (root / "way-out").symlink_to(tmp_path / "outside.txt")
    return Recipe(tmp_path, script=[FINAL])


@pytest.mark.parametrize("place", EVERYWHERE)
async def test_all_ten_tools_work(place: str, recipe: Recipe) -> None:
    async with opened(place, recipe) as house, house.client() as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [entry.name for entry in TOOLS]
        assert all(tool.output_schema for tool in listed)

        made = await asked(client, "rlm_session_create", limits={"calls": 50})
        session = made["session"]
        assert made["roots"] == ["repo"]
        assert made["span"] == {"lines": 200, "bytes": 8192}

        files = (await asked(client, "rlm_list", session=session))["files"]
        assert [file["name"] for file in files] == ["docs/guide.md", "story.txt"]

        story = await asked(client, "rlm_open", session=session, path="story.txt")
        assert (story["lines"], story["handle"]) == (500, files[1]["handle"])

        span = await asked(client, "rlm_read", session=session, handle=story["handle"])
        assert (span["start_line"], span["end_line"]) == (1, 200)
        more = await asked(
            client, "rlm_read", session=session, handle=story["handle"], cursor=span["next_cursor"]
        )
        assert more["text"].splitlines()[0] == LINES[200]

        found = await asked(client, "rlm_search", session=session, query="zygote workers")
        assert [hit["name"] for hit in found["hits"]] == ["docs/guide.md"]

        code = "print(sum(map(len, files.values())))"
        done = await asked(
            client, "rlm_exec", session=session, code=code, handles=[story["handle"]]
        )
        assert (done["output"].strip(), done["error"], done["fresh"]) == (
            str(story["bytes"]),
            None,
            True,
        )

        run = await asked(client, "rlm_complete", session=session, query="Which?", path="story.txt")
        assert (run["status"], run["answer"]) == ("done", "It is line 42.")
        again = await asked(client, "rlm_continue", session=session, run_id=run["run_id"])
        assert again["citations"] == run["citations"]

        report = await asked(client, "rlm_provenance", session=session)
        assert report["of"] == len(report["entries"]) == 10
        closed = await asked(client, "rlm_session_close", session=session)
        assert closed["left"]["calls"] == 50 - 9
        assert "unknown, or has ended" in await refused(client, "rlm_list", session=session)


async def test_citations_are_verbatim_and_can_be_checked_by_reading(
    place: str, recipe: Recipe
) -> None:
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        run = await asked(client, "rlm_complete", session=session, query="Which?", path="story.txt")
        assert [(each["start_line"], each["quote"]) for each in run["citations"]] == [
            (42, "line 42 of the story"),
            (77, "line 77 of"),
        ]
        assert (run["dropped_citations"], run["cited"]) == (1, True)
        for each in run["citations"]:
            number = each["end_line"] - each["start_line"] + 1
            span = await asked(
                client,
                "rlm_read",
                session=session,
                handle=each["handle"],
                start_line=each["start_line"],
                lines=number,
            )
            assert each["quote"] in span["text"]
            assert (each["sha256"], each["version"]) == (span["sha256"], span["version"])


async def test_every_refusal_says_what_to_do(place: str, recipe: Recipe) -> None:
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        for path in ("../outside.txt", "/etc/passwd", ".env", "way-out", "docs", "a\0b", "no.txt"):
            text = await refused(client, "rlm_open", session=session, path=path)
            assert str(recipe.folder) not in text
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("rlm_read", {"handle": "h_unknown"}, "get one with rlm_list or rlm_open"),
            ("rlm_read", {"handle": "h_unknown", "cursor": 3}, "wrong arguments for rlm_read"),
            ("rlm_list", {"cursor": "%%%"}, "not the cursor"),
            ("rlm_list", {"root": "other"}, "roots: repo"),
            ("rlm_list", {"limit": 0}, "wrong arguments for rlm_list"),
            ("rlm_search", {"query": "(", "mode": "regex"}, "not a valid regular expression"),
            ("rlm_search", {"query": "..."}, "no words"),
            ("rlm_search", {"query": "x", "mode": "fuzzy"}, "wrong arguments"),
            ("rlm_exec", {"code": "1", "handles": ["h_x"]}, "no such handle"),
            ("rlm_complete", {"query": "x"}, "choose files"),
            ("rlm_complete", {"query": "x", "path": "../"}, "below the root"),
            ("rlm_complete", {"query": "x", "handles": ["h_x"]}, "no such handle"),
            ("rlm_continue", {"run_id": "r_x"}, "start one with rlm_complete"),
            ("rlm_provenance", {"extra": 1}, "unknown field"),
        ]
        for tool, arguments, expected in cases:
            text = await refused(client, tool, session=session, **arguments)
            assert expected in text, (tool, text)
        for limits in ({"calls": -1}, {"lines": 5}):
            await refused(client, "rlm_session_create", limits=limits)
        assert "there is no root 'x'" in await refused(client, "rlm_session_create", roots=["x"])
        assert "there is no tool" in await refused(client, "rlm_delete", session=session)


async def test_budgets_are_visible_and_enforced(place: str, recipe: Recipe) -> None:
    recipe.ceilings = {"calls": 6, "bytes": 300, "runs": 0}
    async with opened(place, recipe) as house, house.client() as client:
        made = await asked(client, "rlm_session_create", limits={"bytes": 100, "calls": 10**9})
        session = made["session"]
        assert made["left"] == {
            "calls": 6,
            "bytes": 100,
            "seconds": made["left"]["seconds"],
            "runs": 0,
            "cost_usd": None,
        }
        handle = (await asked(client, "rlm_open", session=session, path="story.txt"))["handle"]
        span = await asked(client, "rlm_read", session=session, handle=handle)
        assert len(span["text"].encode()) <= 100
        assert span["left"]["bytes"] == 100 - len(span["text"].encode())
        done = await refused(client, "rlm_exec", session=session, code="print('x' * 99)")
        assert "bytes left" in done
        text = await refused(client, "rlm_complete", session=session, query="x", path="")
        assert "all 0 runs" in text
        assert (await asked(client, "rlm_list", session=session))["left"]["calls"] == 1
        await asked(client, "rlm_list", session=session)
        assert "all 6 calls" in await refused(client, "rlm_list", session=session)


async def test_names_are_shown_only_where_the_operator_allows_it(
    place: str, recipe: Recipe
) -> None:
    recipe.options = {"shows_names": False}
    recipe.script = [FINAL.replace('context["story.txt"]', '""')]
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        told = [
            await asked(client, "rlm_list", session=session),
            await asked(client, "rlm_search", session=session, query="story", limit=2),
            await asked(client, "rlm_complete", session=session, query="?", path="story.txt"),
            await asked(client, "rlm_provenance", session=session),
        ]
        assert "story.txt" not in json.dumps(told)
        assert told[2]["citations"][0]["handle"] == told[0]["files"][1]["handle"]


async def test_descriptions_of_all_tools_fit_six_kilobytes(place: str, recipe: Recipe) -> None:
    async with opened(place, recipe) as house, house.client() as client:
        listed = await client.list_tools()
        told = listed.model_dump(mode="json", by_alias=True, exclude_none=True)["tools"]
        assert len(json.dumps(told, separators=(",", ":")).encode()) <= 6_000
        assert len(told) == 10
        assert [tool.annotations.read_only_hint for tool in listed.tools if tool.annotations] == [
            entry.reads_only for entry in TOOLS
        ]


def test_the_concept_page_states_the_actual_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "gateway.md").read_text()
    usual = Ceilings()
    for row in (
        f"| lines, bytes | one span | {MAX_LINES}, {MAX_BYTES:,} |",
        f"| one search | {MAX_HITS}, {MAX_BYTES:,}, {SHOWN_CHARS} |",
        f"| files | one page of a list | {MAX_ENTRIES} |",
        f"| one run, or one `rlm_exec` | {usual.run_files:,}, {usual.run_bytes:,} |",
        f"| one run | {MAX_ANSWER_BYTES:,} bytes, {MAX_BYTES:,} bytes |",
        f"| runs at once | one session | {MAX_AT_ONCE} |",
        f"| one session | {usual.calls:,}, {usual.bytes:,}, {usual.runs} |",
        f"| one session | {usual.seconds / 3600:g} hours, {usual.idle_seconds / 3600:g} hour |",
        f"one principal, without delaying others | 2, {MAX_THREADS_EACH}, {MAX_AT_ONCE_EACH} |",
        f"| one principal, all | {MAX_SESSIONS_EACH}, {MAX_SESSIONS:,} |",
        f"| one file | {MAX_SCANNED_BYTES >> 30} GiB |",
        f"At most {MAX_INTERPRETERS} interpreters are open",
    ):
        assert row in page, row


def test_documented_names_refer_to_existing_tools() -> None:
    assert set(DOCUMENTED_NAMES.values()) <= {entry.name for entry in TOOLS}
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "gateway.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `rlm_")]
    told = {
        earlier: row.split("`")[1]
        for row in rows
        for earlier in row.rpartition("|")[0].rpartition("|")[2].split("`")
        if earlier.startswith("rlm.")
    }
    assert told == DOCUMENTED_NAMES
    assert [row.split("`")[1] for row in rows] == [entry.name for entry in TOOLS]
