"""The list over HTTP: its rows, search over all runs, and judging, also by hostile clients."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.events import CellEnded, CellOutput, CellStarted, Event
from rlm.records.judging import JudgmentChange, Judgments
from rlm.records.searching import ReadFile, SearchIndex
from rlm.viewer import searching
from rlm.viewer.library import Library
from tests.records.trajectories.samples import ended, one_run, started, tree, written
from tests.viewer.serving import Answer, Client, log_shelf, serving

SECONDS = 60


def with_cells(run_id: str, code: str, output: str, **facts: Any) -> list[Event]:
    about: dict[str, Any] = {"run_id": run_id, "step": 1, "cell": 2}
    return [
        started(run_id, **facts),
        CellStarted(code=code, **about),
        CellOutput(stream="stdout", text=output, written_chars=len(output), **about),
        CellEnded(seconds=0.1, calls=0, error_message="ZeroDivisionError: no", **about),
        ended(run_id, step=1),
    ]


def shown(folder: Path, **options: Any) -> Any:
    """A viewer of a folder of logs that can search and judge."""
    state = folder / "state"
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    return serving(
        log_shelf(logs),
        folder,
        judgments=Judgments(state),
        index=state / "search" / "i.sqlite",
        **options,
    )


async def found(client: Client, path: str) -> Any:
    """The answer to a search, once everything is indexed."""
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await client.get(f"/api/search?{path}")
            if "indexing" not in answer and "problem" not in answer:
                return answer
            await asyncio.sleep(0.05)


async def judge(client: Client, run_id: str, order: Any, **options: Any) -> Answer:
    own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
    headers = {**own, **options.pop("headers", {})}
    data = order if isinstance(order, bytes) else json.dumps(order).encode()
    return await client.ask(
        f"/api/runs/{run_id}/judgment", "POST", data=data, headers=headers, **options
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "LOOK_SECONDS", 0.05)


# -- rows -----------------------------------------------------------------------------------------


async def test_a_row_shows_answer_models_and_judgment(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    Judgments(tmp_path / "state").change(
        "r", JudgmentChange(score=0.5, add_tags=("a",), comment="Yes.")
    )
    async with shown(tmp_path) as client:
        (row,) = (await client.get("/api/runs"))["runs"]
        assert (row["answer"], row["tags"], row["score"], row["comments"]) == ("42", ["a"], 0.5, 1)
        assert [each["model"] for each in row["models"]] == ["m"]
        assert row["models"][0]["tokens"] == 1_000 + 872 + 4_000 + 3_000 + 50 + 20
        facts = await client.get("/api/viewer")
        assert (facts["can_judge"], facts["can_search"]) == (True, True)


async def test_models_are_listed_separately_and_include_child_runs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", one_run("r", 3))
    async with shown(tmp_path) as client:
        (row,) = (await client.get("/api/runs"))["runs"]
        assert row["models"] == [
            {"model": "m", "tokens": 330, "cost_usd": 1.5},
            {"model": "s", "tokens": 330, "cost_usd": 1.5},
        ]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"kind": "chat", "name": "c1"}, {"kind": "chat", "name": "c1"}),
        ({"kind": "batch", "name": "x" * 999}, {"kind": "batch", "name": "x" * 200}),
        ({"kind": "evil", "name": "c1"}, None),
        ({"kind": ["chat"], "name": "c1"}, None),
        ({"kind": "chat"}, None),
        ("chat", None),
        ([[[[]]]], None),
    ],
)
async def test_runs_of_a_group_name_it(tmp_path: Path, group: Any, expected: Any) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", [started("r", settings={"group": group}), ended("r")])
    async with shown(tmp_path) as client:
        (row,) = (await client.get("/api/runs"))["runs"]
        assert row.get("group") == expected


async def test_damaged_judgments_are_reported_and_hide_no_runs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", one_run("r"))
    judgments = Judgments(tmp_path / "state")
    judgments.path.parent.mkdir()
    judgments.path.write_bytes(b"x" * 1_000)
    async with shown(tmp_path) as client:
        answer = await client.get("/api/runs")
        assert len(answer["runs"]) == 1
        assert "judgments.sqlite can't be used" in str(answer["skipped"]["reasons"])
        assert str(tmp_path) not in str(answer)
        exported = await client.ask("/api/runs/r/export/html")
        assert (exported.status, "query of r" in exported.text) == (200, True)
    assert judgments.path.read_bytes() == b"x" * 1_000


# -- search ---------------------------------------------------------------------------------------


async def test_a_search_finds_hits_in_all_runs_with_their_location(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", with_cells("a", "print('kiwi')", "banana split"))
    written(tmp_path / "logs" / "b.jsonl", with_cells("b", "pass", "apple", query="Which kiwi?"))
    async with shown(tmp_path) as client:
        answer = await found(client, "q=kiwi")
        hits = {run["run"]["run_id"]: run["hits"] for run in answer["runs"]}
        assert hits["a"] == [
            {
                "run_id": "a",
                "step": 1,
                "index": 1,
                "kind": "code",
                "cell": 2,
                "excerpt": "print('kiwi')",
            }
        ]
        assert (hits["b"][0]["kind"], hits["b"][0]["step"]) == ("query", 0)
        kinds = {"q=banana": "output", "q=zerodivision": "error", "q=42": "answer"}
        for query, kind in kinds.items():
            assert (await found(client, query))["runs"][0]["hits"][0]["kind"] == kind


async def test_only_added_changed_and_removed_files_are_reindexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    reads: list[str] = []
    put_all = SearchIndex.put_all

    def noting(self: SearchIndex, files: Iterable[ReadFile]) -> None:
        def noted() -> Iterator[ReadFile]:
            for file in files:
                reads.append(f"{Path(file.path).name}{' +' if file.adds else ''}")
                yield file

        put_all(self, noted())

    monkeypatch.setattr(SearchIndex, "put_all", noting)
    written(logs / "a.jsonl", with_cells("a", "x = 1", "first"))
    written(logs / "b.jsonl", with_cells("b", "x = 1", "first"))

    async def roots(client: Client, query: str) -> set[str]:
        return {run["run"]["run_id"] for run in (await found(client, f"q={query}"))["runs"]}

    async def until(client: Client, query: str, expected: set[str]) -> None:
        async with asyncio.timeout(SECONDS):
            while await roots(client, query) != expected:
                await client.get("/api/runs")
                await asyncio.sleep(0.05)

    async with shown(tmp_path) as client:
        await until(client, "first", {"a", "b"})
        assert sorted(reads) == ["a.jsonl", "b.jsonl"]
        written(logs / "c.jsonl", with_cells("c", "x = 1", "third"))
        await until(client, "third", {"c"})
        with (logs / "a.jsonl").open("ab") as file:
            more = written(tmp_path / "more.jsonl", with_cells("a2", "x = 1", "second"))
            file.write(more.read_bytes())
        await until(client, "second", {"a2"})
        await until(client, "first", {"a", "b"})
        (logs / "b.jsonl").unlink()
        await until(client, "first", {"a"})
    assert reads[2:] == ["c.jsonl", "a.jsonl +"]
    reads.clear()
    async with shown(tmp_path) as client:  # Nothing has changed since.
        await until(client, "first", {"a"})
    assert reads == []


async def test_a_replaced_log_is_reindexed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    written(logs / "a.jsonl", with_cells("a", "x = 1", "before"))
    async with shown(tmp_path) as client:
        assert len((await found(client, "q=before"))["runs"]) == 1
    (logs / "a.jsonl").write_bytes(
        written(tmp_path / "o.jsonl", [*with_cells("z", "y", "after"), *one_run("q")]).read_bytes()
    )
    async with shown(tmp_path) as client:
        async with asyncio.timeout(SECONDS):
            while (await found(client, "q=before"))["runs"]:
                await asyncio.sleep(0.05)
        assert len((await found(client, "q=after"))["runs"]) == 1


async def test_a_condition_narrows_the_search(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in "abc":
        written(
            tmp_path / "logs" / f"{name}.jsonl", with_cells(name, "x", "same", model=f"p/{name}")
        )
    Judgments(tmp_path / "state").change("b", JudgmentChange(add_tags=("good",)))
    async with shown(tmp_path) as client:
        answer = await found(client, "q=same&where=tag%3Dgood%20or%20model%3Dc")
        assert {run["run"]["run_id"] for run in answer["runs"]} == {"b", "c"}
        wrong = await client.ask("/api/search?q=same&where=scroe%3E1")
        assert (wrong.status, "Did you mean score" in wrong.json["error"]) == (400, True)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "q=",
        "q=%20",
        "q=%22%22",
        "q=*",
        f"q={'x' * 1_001}",
        "q=x&limit=0",
        "q=x&limit=-1",
        "q=x&limit=1e9",
        "q=x&limit=%D9%A1",
        f"q=x&where={'x' * 2_001}",
        "q=x&where=(",
    ],
)
async def test_an_invalid_search_is_refused(tmp_path: Path, query: str) -> None:
    async with shown(tmp_path) as client:
        answer = await client.ask(f"/api/search?{query}")
        assert answer.status == 400, answer
        assert len(answer.json["error"]) < 600


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_search_for_any_bytes_gets_an_answer(tmp_path: Path, query: bytes, where: bytes) -> None:
    def encoded(data: bytes) -> str:
        return "".join(f"%{byte:02x}" for byte in data)

    async def ask() -> int:
        async with shown(tmp_path) as client:
            address = f"/api/search?q={encoded(query)}&where={encoded(where)}"
            status: int = (await client.ask(address)).status
            return status

    assert asyncio.run(ask()) in {200, 400}


async def test_hostile_logs_are_indexed_within_bounds(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    huge = "x" * 100_000 + " needle"
    events = with_cells("a", huge, "\ud800\x00<script>needle2</script>\u202e")
    written(logs / "a.jsonl", events)
    with (logs / "a.jsonl").open("ab") as file:
        file.write(b'{"type":"cell_started","run_id":"a","step":1,"cell":99999999999999999999}\n')
        file.write(b'{"type":"cell_output","run_id":"a","step":1,"cell":1,"text":["needle3"]}\n')
        file.write(b"\xff\xfe not json\n" + b'{"type":"run_started","run_id":{}}\n')
    (logs / "b.jsonl").write_bytes(b"\0" * 10_000)
    (logs / "c.jsonl").symlink_to(tmp_path / "elsewhere")
    async with shown(tmp_path) as client:
        assert (await found(client, "q=needle2"))["runs"][0]["run"]["run_id"] == "a"
        assert (await found(client, "q=%22needle%22"))["runs"] == []  # beyond what is indexed
        assert (await found(client, "q=needle3"))["runs"] == []


async def test_a_search_during_indexing_says_that_it_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs indexed during a search are not in its results, so the page must search again."""
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    searches: list[searching.RunSearch] = []
    real = SearchIndex.search

    def finish_indexing(self: SearchIndex, *given: Any, **named: Any) -> Any:
        answer = real(self, *given, **named)
        for search in searches:
            search._left = 0
        return answer

    def start(self: searching.RunSearch) -> None:
        searches.append(self)

    monkeypatch.setattr(SearchIndex, "search", finish_indexing)
    monkeypatch.setattr(searching.RunSearch, "start", start)
    async with shown(tmp_path) as client:
        assert "indexing" in await client.get("/api/search?q=word")
        assert "indexing" not in await client.get("/api/search?q=word")


# -- judging --------------------------------------------------------------------------------------


async def test_tags_scores_and_comments_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    async with shown(tmp_path) as client:
        empty: dict[str, Any] = {"tags": [], "score": None, "comments": []}
        assert await client.get("/api/runs/r/judgment") == empty
        answer = await judge(client, "r", {"add_tags": ["a", "b"], "score": 1, "comment": "Hm."})
        assert (answer.status, answer.json["tags"], answer.json["score"]) == (200, ["a", "b"], 1.0)
        answer = await judge(client, "r", {"remove_tags": ["a"], "score": None})
        assert (answer.json["tags"], answer.json["score"]) == (["b"], None)
        assert (await client.get("/api/runs/r/judgment"))["comments"][0]["text"] == "Hm."
        gone = {"remove_comment": answer.json["comments"][0]["id"], "remove_tags": ["b"]}
        assert (await judge(client, "r", gone)).json == empty


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X-RLM-Token": "wrong"},
        {"X-RLM-Token": ""},
        {"Authorization": "Bearer wrong"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ],
)
async def test_only_the_page_itself_can_judge(tmp_path: Path, headers: dict[str, str]) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    async with shown(tmp_path) as client:
        assert (await judge(client, "r", {"score": 1}, headers=headers)).status == 403
        assert (await client.get("/api/runs/r/judgment"))["score"] is None
    assert not Judgments(tmp_path / "state").path.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"[" * 50_000, 400),
        (b'{"score": "1"}', 400),
        (b'{"score": 1e999}', 400),
        (b'{"score": 1e300}', 400),
        (b'{"add_tags": "abc"}', 400),
        (b'{"add_tags": ["a b"]}', 400),
        (b'{"add_tags": [1]}', 400),
        (b'{"comment": ""}', 400),
        (b'{"comment": "' + b"x" * 5_000 + b'"}', 400),
        (b'{"unknown": 1}', 400),
        (b'{"comment": "' + b"x" * 70_000 + b'"}', 413),
        (b"\xff\xff", 400),
    ],
)
async def test_an_invalid_judgment_is_refused(tmp_path: Path, body: bytes, status: int) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    async with shown(tmp_path) as client:
        answer = await judge(client, "r", body)
        assert answer.status == status, answer
        assert (await client.get("/api/runs/r/judgment"))["tags"] == []


@pytest.mark.parametrize("run_id", ["x", "r-c", "..%2f..%2fr", "%00", "x" * 501, "r%2f", "%ff"])
async def test_only_listed_root_runs_can_be_judged(tmp_path: Path, run_id: str) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    async with shown(tmp_path) as client:
        assert (await judge(client, run_id, {"score": 1})).status in {400, 404}
    assert not Judgments(tmp_path / "state").path.exists()


async def test_without_a_state_folder_there_are_no_judgments_and_no_search(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", tree())
    async with serving(log_shelf(log), tmp_path) as client:
        facts = await client.get("/api/viewer")
        assert (facts["can_judge"], facts["can_search"]) == (False, False)
        assert (await judge(client, "r", {"score": 1})).status == 400
        assert (await client.ask("/api/search?q=x")).status == 400


async def test_other_open_pages_receive_a_judgment(tmp_path: Path, monkeypatch: Any) -> None:
    from rlm.viewer import live

    monkeypatch.setattr(live, "LIST_SECONDS", 0.1)
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", tree())
    async with shown(tmp_path) as client, client.stream("/api/live") as messages:
        assert (await anext(messages))["event"] == "runs"
        await judge(client, "r", {"score": 1})
        async with asyncio.timeout(SECONDS):
            assert (await anext(messages))["event"] == "runs"


async def test_turns_of_a_chat_and_rows_of_a_batch_are_grouped(tmp_path: Path) -> None:
    from rlm import RLM, ScriptedClient
    from rlm.records.journal import Archive, Places
    from tests.viewer.serving import journal_shelf

    state = tmp_path / "state"
    client = ScriptedClient(rules=[("", "```repl\nFINAL('x')\n```")])
    rlm = RLM(client, environment="inprocess", journal=state)
    chat = rlm.chat("text")
    await chat.aask("First?")
    await chat.aask("Second?")
    await chat.aclose()
    rlm.runner.group = {"kind": "batch", "name": "questions.jsonl"}
    await rlm.aask("A row?", "text")
    await rlm.aclose()
    async with serving(journal_shelf(Archive(Places(state))), tmp_path) as client_:
        rows = (await client_.get("/api/runs"))["runs"]
    groups = {row["query"]: row.get("group") for row in rows}
    assert groups["First?"] == groups["Second?"]
    assert groups["First?"]["kind"] == "chat"
    assert groups["A row?"] == {"kind": "batch", "name": "questions.jsonl"}


async def test_a_condition_is_applied_again_after_a_judgment(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", with_cells("a", "x", "same"))
    async with shown(tmp_path) as client:
        for tags, expected in (([], 0), (["good"], 1)):
            await judge(client, "a", {"add_tags": tags, "comment": "x"})
            for _ in range(2):
                answer = await found(client, "q=same&where=tag%3Dgood")
                assert len(answer["runs"]) == expected


async def test_a_list_that_misses_something_says_that_files_are_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass may end while a request looks at the files, too late for what it has seen."""
    library = Library(log_shelf(written(tmp_path / "a.jsonl", one_run("a"))))
    (file,) = library.files()
    looked = file.add_skipped_to

    def then_the_pass_ends(skipped: Any) -> None:
        looked(skipped)
        file.refresh()
        library._is_read.set()

    monkeypatch.setattr(file, "add_skipped_to", then_the_pass_ends)
    assert library.listing(0.0).reading is not None
    monkeypatch.undo()
    found = library.listing(0.0)
    assert (found.reading, [node.outline.run_id for node in found.runs]) == (None, ["a"])
