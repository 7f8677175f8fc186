"""The context line by line: pages, lines of documents, words, citations; and hostile questions."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.citations import Citation
from rlm.context import store_context
from rlm.errors import ConfigError
from rlm.events import RunEnded
from rlm.viewer import context_lines
from rlm.viewer.context_lines import WINDOW_CHARS, ContextLines
from rlm.viewer.contexts import ContextText, text_of
from tests.records.trajectories.samples import ended, one_run, started, written
from tests.viewer.serving import log_shelf, serving


def lines_of(*texts: str, names: Any = None) -> ContextLines:
    named = dict(zip(names or [], texts, strict=False))
    return ContextLines(
        text_of(store_context(named or (texts[0] if len(texts) == 1 else [*texts])))
    )


def all_rows(lines: ContextLines) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    at: int | None = 0
    while at is not None:
        page = lines.page(at)
        rows += page["rows"]
        at = page["after"]
    return rows


def test_rows_are_lines_and_long_lines_have_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_lines, "ROW_CHARS", 5)
    lines = lines_of("one\n\nabcdefghijkl\nend\n")
    rows = [(row["line"], row["column"], row["text"]) for row in all_rows(lines)]
    assert rows == [
        (1, 0, "one"),
        (2, 0, ""),
        *((3, 0, "abcde"), (3, 5, "fghij"), (3, 10, "kl")),
        (4, 0, "end"),
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(alphabet="ab\n", max_size=60), min_size=1, max_size=4), st.data())
def test_pages_hold_every_character_once_and_link_to_each_other(
    texts: list[str], data: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_lines, "ROW_CHARS", 7)
        patch.setattr(context_lines, "PAGE_ROWS", 3)
        patch.setattr(context_lines, "PAGE_CHARS", 20)
        lines = lines_of(*texts)
        text = lines.context.text
        rows = all_rows(lines)
        told = "".join(
            row["text"] + ("\n" if text[row["end"] : row["end"] + 1] == "\n" else "")
            for row in rows
        )
        assert told == text
        assert all(text[row["start"] : row["end"]] == row["text"] for row in rows)
        assert [row["start"] for row in rows] == sorted({row["start"] for row in rows})
        starts = {row["start"] for row in rows}
        at = data.draw(st.integers(0, len(text) + 5))
        page = lines.page(at, data.draw(st.integers(0, 4)))
        assert page["start"] in starts | {0}
        assert page["before"] is None or page["before"] in starts
        if rows:
            assert any(row["start"] <= min(at, len(text) - 1) <= row["end"] for row in page["rows"])


def test_lines_are_numbered_within_their_document() -> None:
    lines = lines_of("a\nb", "c\nd\ne", names=["x.txt", "y.txt"])
    rows = [(row["document"], row["line"], row["text"]) for row in all_rows(lines)]
    assert rows[:2] == [(0, 1, "a"), (0, 2, "b")]
    assert rows[-3:] == [(1, 1, "c"), (1, 2, "d"), (1, 3, "e")]
    text = lines.context.text
    assert text[lines.line(1, 2)] == "d"
    assert text[lines.line(0, 99)] == "b"
    assert text[lines.line(1, 0)] == "c"
    with pytest.raises(ConfigError, match="2 documents"):
        lines.line(2, 1)


def test_words_are_found_in_any_case_and_across_window_boundaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_lines, "WINDOW_CHARS", 10)
    text = "xxxxxxxNEEDLExx\nneedle needle" + "y" * 50
    lines, stop = lines_of(text), threading.Event()
    found = lines.find("Needle", 0, 9, stop)
    assert [(hit["start"], hit["line"]) for hit in found["hits"]] == [(7, 1), (16, 2), (23, 2)]
    assert found["next"] is None
    assert found["hits"][1]["excerpt"].startswith("xxxxxxxNEEDLExx\nneedle")
    first = lines.find("needle", 0, 1, stop)
    assert (len(first["hits"]), first["next"]) == (1, 16)
    assert lines.find("needle", first["next"], 9, stop)["hits"][0]["start"] == 16
    assert lines.find("(a+)+$", 0, 9, stop) == {"hits": [], "next": None}
    assert lines.find("needle", 10**12, 9, stop) == {"hits": [], "next": None}
    stop.set()
    assert lines.find("needle", 0, 9, stop) == {"hits": [], "next": 0}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="aAbİi\n", max_size=40), st.text(alphabet="aAİi", min_size=1, max_size=3))
def test_the_search_agrees_with_a_regular_expression(text: str, words: str) -> None:
    hits = lines_of(text or "x").find(words, 0, 99, threading.Event())["hits"]
    if "İ" not in text + words:
        found = [each.start() for each in re.finditer(re.escape(words), text, re.IGNORECASE)]
        assert [hit["start"] for hit in hits] == found
    assert all(hit["end"] - hit["start"] == len(words) for hit in hits)


@given(st.text(alphabet="aAİi", max_size=40), st.text(alphabet="aAİi", min_size=1, max_size=3))
def test_a_letter_that_lowercases_to_two_is_found_as_one(text: str, words: str) -> None:
    hits = lines_of(text or "x").find(words, 0, 99, threading.Event())["hits"]
    plain, wanted = text.replace("İ", "i").lower(), words.replace("İ", "i").lower()
    assert [hit["start"] for hit in hits] == [m.start() for m in re.finditer(wanted, plain)]


def test_a_search_with_many_near_matches_ends() -> None:
    """A pattern took longer than the limit for the first part, and let no other thread run."""
    text = f"İ{'a' * (WINDOW_CHARS + 1_000_000)}"
    found = lines_of(text).find(f"{'a' * 999}b", 0, 9, threading.Event())
    assert found == {"hits": [], "next": None}


def cite(file: str | None, start: int, text: str) -> Citation:
    return Citation(file, start, start + len(text), 1, 1, text)


def test_a_citation_is_located_in_its_text() -> None:
    lines = lines_of("one two\nthree", "four two\nfive", names=["a.txt", "b.txt"])
    text = lines.context.text
    assert text[slice(*lines.cited(cite("b.txt", 5, "two")))] == "two"
    assert lines.cited(cite("b.txt", 5, "two"))[0] > text.index("four")
    assert text[slice(*lines.cited(cite("gone.txt", 99, "five")))] == "five"
    for wrong in (cite("a.txt", 0, "nothing like it"), cite("a.txt", 0, ""), cite(None, -5, "?")):
        with pytest.raises(ConfigError, match="not in this context"):
            lines.cited(wrong)
    listed = lines_of("one", "two")
    assert listed.context.text[slice(*listed.cited(cite("[1]", 0, "two")))] == "two"
    assert lines_of("plain text").cited(cite(None, 6, "text")) == (6, 10)


def test_an_empty_context_has_no_rows() -> None:
    lines = ContextLines(ContextText("", [], []))
    assert lines.page(0, 5)["rows"] == []
    assert lines.find("x", 0, 5, threading.Event())["hits"] == []


# -- over HTTP ------------------------------------------------------------------------------------

TEXT = "\n".join(f"line {number} of the text" for number in range(1, 501))


def log(folder: Path, **facts: Any) -> Path:
    stored = store_context(TEXT)
    about = {"context_sha256": stored.sha256, "context_bytes": stored.size_bytes}
    middle = one_run("r")[1:-1]
    over: RunEnded = ended("r", **facts)
    return written(folder / "a.jsonl", [started("r", **about), *middle, over])


async def test_rows_search_and_citations_are_served(tmp_path: Path) -> None:
    citations = (cite(None, TEXT.index("line 77"), "line 77 of the text"), cite(None, 0, "gone"))
    path = log(tmp_path, citations=citations)
    async with serving(log_shelf(path), tmp_path, context=lambda: store_context(TEXT)) as client:
        page = await client.get("/api/runs/r/context/rows?line=300&above=5")
        assert [row["line"] for row in page["rows"]][:6] == [295, 296, 297, 298, 299, 300]
        assert (page["lines"], page["chars"], page["at"]) == (
            500,
            len(TEXT),
            TEXT.index("line 300"),
        )
        after = await client.get(f"/api/runs/r/context/rows?at={page['after']}")
        assert after["rows"][0]["line"] == page["rows"][-1]["line"] + 1
        hits = (await client.get("/api/runs/r/context/find?q=LINE%20499"))["hits"]
        assert [hit["line"] for hit in hits] == [499]
        place = await client.get("/api/runs/r/citations/0")
        assert TEXT[place["start"] : place["end"]] == "line 77 of the text"
        assert (await client.ask("/api/runs/r/citations/1")).status == 400
        assert (await client.ask("/api/runs/r/citations/2")).status == 404


@pytest.mark.parametrize(
    "query",
    [
        *("rows?at=-1", "rows?at=1.5", "rows?at=%D9%A1", "rows?at=9999999999999999", "rows?line=x"),
        *(
            "rows?line=1&document=7",
            "rows?above=-3",
            "rows?at=",
            "find",
            "find?q=",
            "find?q=a&from=b",
        ),
        *(f"find?q={'x' * 1_001}", "find?q=a&limit=-1", "find?q=a&limit=1e9"),
    ],
)
async def test_an_invalid_query_is_refused_with_an_explanation(tmp_path: Path, query: str) -> None:
    path = log(tmp_path)
    async with serving(log_shelf(path), tmp_path, context=lambda: store_context(TEXT)) as client:
        answer = await client.ask(f"/api/runs/r/context/{query}")
        assert answer.status == 400
        assert answer.json["error"]


@pytest.mark.parametrize("number", ["-1", "x", "%00", "1" * 16, "0%2f..", "1.0"])
async def test_an_invalid_citation_number_is_refused(tmp_path: Path, number: str) -> None:
    async with serving(log_shelf(log(tmp_path)), tmp_path) as client:
        assert (await client.ask(f"/api/runs/r/citations/{number}")).status in {400, 404}


async def test_without_the_context_there_are_no_rows(tmp_path: Path) -> None:
    async with serving(log_shelf(log(tmp_path)), tmp_path) as client:
        answer = await client.ask("/api/runs/r/context/rows")
        assert answer.status == 404
        assert "--context" in answer.json["error"]
        assert (await client.ask("/api/runs/nobody/context/rows")).status == 404


async def test_bytes_that_are_not_text_are_shown_with_replacement_characters(
    tmp_path: Path,
) -> None:
    stored = store_context(b"\xff\xfe\x00 abc\n\xc3\x28")
    about = {"context_sha256": stored.sha256, "context_bytes": 9, "context_kind": "bytes"}
    path = written(tmp_path / "a.jsonl", [started("r", **about), ended("r")])
    async with serving(log_shelf(path), tmp_path, context=lambda: stored) as client:
        page = await client.get("/api/runs/r/context/rows")
        assert [row["line"] for row in page["rows"]] == [1, 2]
        assert page["rows"][0]["text"].endswith(" abc")
