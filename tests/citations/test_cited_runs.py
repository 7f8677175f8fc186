"""Whole runs that cite: in the REPL, in the answer, after a crash, and with hostile workers."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits
from rlm.citations import Citation, Citations, collecting
from rlm.context import citable_texts, files, store_context
from rlm.environments._calls import read_call
from rlm.errors import CallRefused, ConfigError, ProtocolViolation
from rlm.events import RunEnded
from rlm.results import RunResult
from rlm.testing import ScriptedClient
from rlm.worker import wire
from tests.hostile import ticking

TEXT = "The log begins.\r\nThe launch code is 4711.\r\nIt ends here, says the log.\r\n"
CODE = "The launch code is 4711."
AT = TEXT.index(CODE)


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


async def run_of(*script: Any, context: Any = TEXT, **options: Any) -> RunResult:
    asked = {name: options.pop(name) for name in ("cite", "run_id") if name in options}
    async with RLM(ScriptedClient(script), **options) as engine:
        return await engine.aask("Which code?", context, **asked)


def ended(result: RunResult) -> RunEnded:
    return next(e for e in result.events if isinstance(e, RunEnded) and e.parent_id is None)


async def test_cells_cite_by_offsets_and_by_quotes() -> None:
    code = (
        f"print(cite({AT}, {AT + 24}) == cite('The  launch code\\nis 4711.'))\n"
        f"cite({AT + 4}, {AT + 10}); FINAL('4711')"
    )
    result = await run_of(cell(code))
    assert result.citations == (
        Citation(None, AT, AT + 24, 2, 2, CODE),
        Citation(None, AT + 4, AT + 10, 2, 2, "launch"),
    )
    assert (result.unsupported_quotes, result.omitted_citations) == (0, 0)
    assert ended(result).citations == result.citations


async def test_an_unsupported_citation_is_reported_and_counted_once() -> None:
    cites = "cite('never written'), cite(5, 2), cite(0, 10**9), cite(-4, 2)"
    code = f"for _ in range(2):\n    print({cites})"
    client = ScriptedClient([cell(code), cell("FINAL('none')")])
    async with RLM(client) as engine:
        result = await engine.aask("Which code?", TEXT)
    seen = str(client.requests[1].messages[-1].content)
    assert "cite: the context does not contain 'never written'; quote it word for word" in seen
    assert "past the end, which is at 72" in seen
    assert seen.count("None None None None") == 2
    assert (result.citations, result.unsupported_quotes) == ((), 4)


async def test_quotes_of_the_answer_are_found_and_others_counted() -> None:
    answer = f'It is 4711: “{CODE}” and "it ends, but nobody has ever said so".'
    result = await run_of(cell(f"cite({CODE!r})\nFINAL({answer!r})"))
    assert [each.text for each in result.citations] == [CODE]
    assert result.unsupported_quotes == 1
    direct = await run_of(f"> {CODE}\n\nSo it is 4711.", strategy="direct")
    assert [each.start_line for each in direct.citations] == [2]


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_texts_of_a_dict_are_named(environment: str) -> None:
    context = {"a.txt": "nothing", "b.txt": TEXT}
    code = (
        f"cite({AT}, {AT + 24}, 'b.txt'); cite({AT}, {AT + 8}, 1); cite('nothing', 'a.txt')\n"
        "print(cite(0, 3)); FINAL('4711')"
    )
    result = await run_of(cell(code), context=context, environment=environment)
    assert [(each.file, each.text) for each in result.citations] == [
        ("b.txt", CODE),
        ("b.txt", "The laun"),
        ("a.txt", "nothing"),
    ]
    assert result.unsupported_quotes == 1


async def test_files_are_cited_by_name(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(TEXT.encode())
    (tmp_path / "other.txt").write_bytes(b"other")
    for context in (tmp_path / "log.txt", tmp_path, files("*.txt", root=tmp_path)):
        result = await run_of(cell(f"cite({CODE!r}); FINAL('4711')"), context=context)
        assert [each.label for each in result.citations] == ["log.txt:2"]


def test_every_kind_of_context_can_be_cited() -> None:
    def texts(value: Any) -> list[tuple[str | None, str]]:
        return [(name, "".join(pieces)) for name, pieces in citable_texts(store_context(value))]

    assert texts("a\ud800") == [(None, "a\ud800")]
    assert texts(["x", "y"]) == [("[0]", "x"), ("[1]", "y")]
    nested = {"a": [{"t": "one"}, 3], "b": {"c": "two"}, "d": None}
    assert texts(nested) == [("a[0].t", "one"), ("b.c", "two")]
    assert texts(b"\x00\xff") == []


async def test_json_too_large_to_search_is_omitted_and_not_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlm.context.citable.MAX_JSON_BYTES", 10)
    answer = f"“{CODE}”"
    result = await run_of(cell(f"print(cite('x'))\nFINAL({answer!r})"), context={"a": [TEXT]})
    assert (result.unsupported_quotes, result.omitted_citations) == (0, 2)


async def test_citations_of_structured_answers_come_from_cells() -> None:
    answer = {"quote": "a text that is long enough", "other": "and one more of the kind"}
    result = await run_of(cell(f"cite({CODE!r})\nFINAL({answer!r})"))
    assert ([each.text for each in result.citations], result.unsupported_quotes) == ([CODE], 0)


async def test_the_number_and_size_of_citations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"line {n:05}\n" for n in range(2_000))
    code = "for n in range(120):\n    cite(n * 11, n * 11 + 10)\nFINAL('x')"
    result = await run_of(cell(code), context=text)
    assert (len(result.citations), result.omitted_citations) == (collecting.MAX_CITATIONS, 20)
    code = "for n in range(70):\n    cite(n, n + 9_000)\nFINAL('x')"
    result = await run_of(cell(code), context=text)
    assert (len(result.citations), result.omitted_citations) == (50, 20)
    assert result.citations[0].cut_chars == 7_000
    monkeypatch.setattr(collecting, "MAX_ATTEMPTS", 2)
    code = (
        "cite(0, 1); cite(1, 2)\ntry:\n    cite(2, 3)\nexcept CallFailed as e:\n    FINAL(str(e))"
    )
    assert (await run_of(cell(code), context=text)).answer == "a run can cite at most 2 times"


@pytest.mark.parametrize(
    "call", ["cite()", "cite(1)", "cite(1.5, 2)", "cite(None)", "cite([1], 2)"]
)
async def test_wrong_types_are_errors_in_the_cell(call: str) -> None:
    code = f"try:\n    {call}\nexcept TypeError as error:\n    FINAL(str(error))"
    assert "cite" in (await run_of(cell(code))).answer


async def test_the_prompt_asks_for_citations_only_on_request() -> None:
    for cite in (False, True):
        client = ScriptedClient([cell("FINAL('x')")])
        async with RLM(client) as engine:
            await engine.aask("q", TEXT, cite=cite)
        assert ("cite(start, end" in str(client.requests[0].messages)) is cite


async def test_the_offline_model_cites(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(TEXT)
    async with RLM("offline/extractive") as engine:
        result = await engine.aask("What is the launch code?", tmp_path / "log.txt", cite=True)
    assert [(each.file, each.start_line, each.text) for each in result.citations] == [
        ("log.txt", 1, TEXT.strip())
    ]


async def test_a_resumed_run_has_the_same_citations(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(TEXT.encode())
    first = cell(f"print(cite({CODE!r}), cite('never written there'))")
    last = cell("FINAL('4711, for “It ends here, says the log.”')")
    options: dict[str, Any] = {"context": path, "run_id": "cited", "journal": tmp_path / "runs"}
    stopped = await run_of(first, "", limits=Limits(max_steps=1), **options)
    assert (stopped.stop_reason, len(stopped.citations)) == ("steps", 1)
    whole = await run_of(last, **options)
    assert [each.label for each in whole.citations] == ["log.txt:2", "log.txt:3"]
    assert whole.unsupported_quotes == 1
    again = await run_of(**options)
    assert (again.citations, again.unsupported_quotes) == (whole.citations, 1)
    assert ended(again).citations == whole.citations


async def test_contexts_of_a_chat_are_cited_by_name() -> None:
    script = [
        cell("FINAL('a')"),
        cell("cite('the second of the texts'); cite('the first'); FINAL('b')"),
    ]
    async with RLM(ScriptedClient(script)) as engine:
        chat = engine.chat("the first of the texts")
        await chat.aask("one")
        result = await chat.aask("two", "the second of the texts")
        await chat.aclose()
    assert [each.file for each in result.citations] == ["context_1", None]


async def test_a_large_context_is_searched_off_the_event_loop() -> None:
    text = "a b " * 5_000_000 + CODE
    citations = Citations(lambda: citable_texts(store_context(text)))
    async with ticking() as ticks:
        told, parts = await citations.cite(
            {"start": None, "end": None, "name": None}, ["a  " * 300]
        )
        assert told["problem"]
        told, parts = await citations.cite({"start": None, "end": None, "name": None}, [CODE])
    assert (parts, citations.found[0].start) == ([CODE], 20_000_000)
    assert ticks.count > 1


async def test_a_file_that_changed_is_reported(tmp_path: Path) -> None:
    def changed() -> Any:
        raise ConfigError("it has changed")

    citations = Citations(changed)
    told, _ = await citations.cite({"start": 0, "end": 1, "name": None}, [])
    await citations.look_into(f"“{CODE}”")
    assert told == {"problem": "the context can't be read: it has changed"}
    assert (citations.omitted, citations.unsupported) == (2, 0)


# -- a hostile worker -----------------------------------------------------------------------------


def frame(arguments: Any, *parts: bytes) -> wire.Frame:
    data = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    return wire.Frame(wire.CALL, 1, [b"cite", data, *parts])


def place(start: Any = None, end: Any = None, name: Any = None) -> dict[str, Any]:
    return {"start": start, "end": end, "name": name}


def test_valid_citation_calls_are_read() -> None:
    assert read_call(frame(place(1, 2, "a"))).arguments == place(1, 2, "a")
    assert read_call(frame(place(name=3), b"quote")).parts == ["quote"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (b"", []),
        (b"{", []),
        ({}, []),
        ({**place(1, 2), "more": 1}, []),
        (place(), []),
        (place(1), []),
        (place(1, 2), [b"quote"]),
        (place(), [b"one", b"two"]),
        (place(True, 2), []),
        (place(1.5, 2), []),
        (place("1", 2), []),
        (place(1, 2, []), []),
        (place(), [b"\xff"]),
    ],
)
def test_malformed_citations_are_violations(arguments: Any, parts: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        read_call(frame(arguments, *parts))


def test_large_citations_are_refused() -> None:
    for each in (frame(place(name="n" * 5_000), b"q"), frame(place(), b"q" * (65 << 10))):
        with pytest.raises(CallRefused):
            read_call(each)


def test_a_run_searches_its_context_for_one_citation_at_a_time() -> None:
    running: list[int] = []
    most: list[int] = []

    def texts() -> Iterator[tuple[str | None, Iterator[str]]]:
        running.append(1)
        most.append(len(running))
        try:
            time.sleep(0.002)  # In a thread.
            yield None, iter(["some text"])
        finally:
            running.pop()

    async def cite_often() -> list[Any]:
        citations = Citations(texts)
        nowhere = {"start": None, "end": None, "name": None}
        place = {"start": 0, "end": 4, "name": None}
        found: list[Any] = await asyncio.gather(
            citations.look_into('He said "nothing of the sort, ever".'),
            *(citations.cite(nowhere, [f"quote {number}"]) for number in range(20)),
            *(citations.cite(place, []) for _ in range(5)),
        )
        return found

    found = asyncio.run(cite_often())
    assert [told for told, _ in found[-5:]] == [{}] * 5
    assert len(most) >= 50
    assert max(most) == 1


@pytest.mark.parametrize(
    ("file", "last", "label"),
    [
        (None, 3, "line 3"),
        (None, 5, "lines 3–5"),
        ("log.txt", 3, "log.txt:3"),
        ("log.txt", 5, "log.txt:3–5"),
    ],
)
def test_a_label_names_one_line_or_several(file: str | None, last: int, label: str) -> None:
    citation = Citation(file=file, start=0, end=1, start_line=3, end_line=last, text="x")
    assert citation.label == label
