"""Journaled runs in the viewer: real runs, their contexts, what was read of those, and forks."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.context import store_context
from rlm.messages import Request
from rlm.records.journal import Archive, Journal, Places, RunFacts, fork
from rlm.records.journal.database import Lock
from rlm.results import RunResult
from rlm.viewer.contexts import text_of
from rlm.viewer.library import Journals, Library
from rlm.viewer.record_files import RecordFile
from tests.cli.kept import offline
from tests.records.trajectories.samples import one_run, started, written
from tests.viewer.serving import Client, LocalEngines, journal_shelf, log_shelf, serving


def words(seed: int, chars: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz \n", k=chars))


TEXT = words(1, 20_000)


def ask(state: Path, codes: list[str], context: Any, rules: Any = (), **options: Any) -> RunResult:
    client = ScriptedClient([f"```repl\n{code}\n```" for code in codes], rules=rules)
    with RLM(client, journal=state, preview_chars=0, **options) as rlm:
        return rlm.ask("Why?", context)


def archive(state: Path) -> Archive:
    return Archive(Places(state))


async def asked(state: Path, *arguments: Any, **options: Any) -> RunResult:
    return await asyncio.to_thread(ask, state, *arguments, **options)


def spans(coverage: dict[str, Any], kind: str | None = None) -> list[tuple[int, int]]:
    readers = coverage["readers"]
    return [
        (span["start"], span["end"])
        for span in coverage["spans"]
        if kind is None or any(readers[reader]["kind"] == kind for reader in span["readers"])
    ]


async def test_a_journal_that_was_empty_at_first_is_read_later(tmp_path: Path) -> None:
    """SQLite creates a file before it writes anything to it."""
    path = tmp_path / "runs" / "20261115-1.sqlite"
    path.parent.mkdir()
    path.touch()
    file = RecordFile(path)
    file.refresh()
    assert list(file.forest().roots) == []
    path.unlink()
    made = await asked(tmp_path / "made", ["FINAL('done')"], TEXT)
    path.write_bytes(archive(tmp_path / "made").places.journal_of(made.run_id).read_bytes())
    file.refresh()
    assert [node.outline.run_id for node in file.forest().roots] == [made.run_id]


# -- coverage -------------------------------------------------------------------------------------


async def test_coverage_of_a_real_run_is_exact(tmp_path: Path) -> None:
    """Printed, passed to a call between other words, printed with repr, and by a child run."""
    codes = [
        "print(context[100:400])\nprint(repr(context[15_000:15_900]))",
        "llm_query('What' + ' is this?' + context[1_000:3_000] + '?')",
        "rlm_query('Look' + ' at it.', context[5_000:9_000])",
        "FINAL('done')",
    ]

    def child(request: Request) -> str:
        is_first = len(request.messages) <= 2
        return f"```repl\n{'print(context[10:210])' if is_first else 'FINAL(1)'}\n```"

    rules = [("What is this?", "words"), ("Look at it.", child)]
    result = await asked(tmp_path / "state", codes, TEXT, rules, limits=Limits(max_depth=2))
    assert result.answer == "done"
    async with serving(journal_shelf(archive(tmp_path / "state")), tmp_path) as client:
        found = await client.get(f"/api/runs/{result.run_id}/coverage")
        expected = [(100, 400), (1_000, 3_000), (5_010, 5_210), (15_000, 15_900)]
        assert spans(found) == expected
        assert spans(found, "call") == [(1_000, 3_000)]
        assert found["available"] is True
        assert found["exact"] is True
        assert found["chars"] == len(TEXT)
        read = sum(end - start for start, end in expected)
        assert found["unread_percent"] == pytest.approx(100 - 100 * read / len(TEXT))
        by_child = found["readers"][found["spans"][2]["readers"][0]]
        assert by_child["run_id"].startswith(f"{result.run_id}-")
        page = await client.get(f"/api/runs/{result.run_id}/context?start=90&end=110")
        assert page == {"text": TEXT[90:110]}
        of_child = await client.get(f"/api/runs/{by_child['run_id']}/coverage")
        assert spans(of_child) == [(5_010, 5_210)]


async def test_the_output_of_the_cell_that_answers_reaches_no_model(tmp_path: Path) -> None:
    codes = ["print(context[100:400])", "print(context[1_000:3_000])\nFINAL('done')"]
    result = await asked(tmp_path / "state", codes, TEXT)
    async with serving(journal_shelf(archive(tmp_path / "state")), tmp_path) as client:
        found = await client.get(f"/api/runs/{result.run_id}/coverage")
        assert spans(found) == [(100, 400)]


async def test_only_what_fits_the_final_request_of_a_run_was_read(tmp_path: Path) -> None:
    """It holds the newest messages that fit, so of the last output only the end."""
    state, text = tmp_path / "state", words(2, 60_000)
    script = [f"```repl\nprint(context[{at}:{at + 30_000}])\n```" for at in (0, 30_000)]
    client = ScriptedClient(script, rules=[("Stop here", "A guess.")], window_tokens=40_000)
    limits = Limits(max_steps=2, output_chars=40_000)
    async with RLM(client, journal=state, preview_chars=0, limits=limits) as rlm:
        result = await rlm.aask("Why?", text)
    assert (result.answer, len(client.requests)) == ("A guess.", 3)
    (last,) = client.requests[-1].messages
    async with serving(journal_shelf(archive(state)), tmp_path) as client_of_page:
        found = await client_of_page.get(f"/api/runs/{result.run_id}/coverage")
        first, (start, end) = spans(found)
        assert (first, end) == ((0, 30_000), 60_000)
        assert str(last.content).startswith(text[start : start + 100])


@pytest.mark.parametrize("kind", ["list", "dict"])
async def test_coverage_is_located_within_each_document(tmp_path: Path, kind: str) -> None:
    texts = [words(seed, 1_000) for seed in (2, 3, 4)]
    context: Any = texts if kind == "list" else dict(zip("abc", texts, strict=True))
    which = "context[1]" if kind == "list" else "context['b']"
    codes = [f"print({which}[200:700])", "FINAL('done')"]
    result = await asked(tmp_path / "state", codes, context)
    async with serving(journal_shelf(archive(tmp_path / "state")), tmp_path) as client:
        found = await client.get(f"/api/runs/{result.run_id}/coverage")
        assert found["documents"] == [
            {"name": "#0" if kind == "list" else "a", "start": 0, "end": 1_000},
            {"name": "#1" if kind == "list" else "b", "start": 1_002, "end": 2_002},
            {"name": "#2" if kind == "list" else "c", "start": 2_004, "end": 3_004},
        ]
        assert spans(found) == [(1_202, 1_702)]
        assert found["unread_percent"] == pytest.approx(100 - 100 * 500 / 3_000)


async def test_a_direct_run_reads_the_whole_context(tmp_path: Path) -> None:
    client = ScriptedClient(["an answer"])
    with RLM(client, journal=tmp_path / "state", strategy="direct") as rlm:
        result = await asyncio.to_thread(rlm.ask, "Why?", TEXT[:3_000])
    async with serving(journal_shelf(archive(tmp_path / "state")), tmp_path) as page:
        found = await page.get(f"/api/runs/{result.run_id}/coverage")
        assert spans(found) == [(0, 3_000)]
        assert found["unread_percent"] == 0.0


async def test_coverage_of_a_log_needs_its_context(tmp_path: Path) -> None:
    stored = store_context(TEXT)
    facts = {"context_sha256": stored.sha256, "context_bytes": stored.size_bytes}
    path = written(tmp_path / "a.jsonl", [started("r", **facts), *one_run("r")[1:]])

    async def covered(context: Any) -> Any:
        async with serving(log_shelf(path), tmp_path, context=context) as client:
            page = await client.get("/api/runs/r")
            found = await client.get("/api/runs/r/coverage")
            assert page["context"]["available"] == found["available"]
            return found

    assert "--context" in (await covered(None))["why_not"]
    assert "not the context" in (await covered(lambda: store_context("other")))["why_not"]
    assert (await covered(lambda: store_context(TEXT)))["unread_percent"] == 100.0


@pytest.mark.parametrize("sha256", ["", "0", "../" * 20, "g" * 64, "0" * 63 + "/", "é" * 64])
async def test_an_invalid_context_hash_is_not_followed(tmp_path: Path, sha256: str) -> None:
    path = written(tmp_path / "a.jsonl", [started("r", context_sha256=sha256)])
    async with serving(log_shelf(path), tmp_path) as client:
        found = await client.get("/api/runs/r/coverage")
        assert "does not say which context" in found["why_not"]
        assert (await client.ask("/api/runs/r/context?start=0&end=10")).status == 400


@pytest.mark.parametrize(
    ("value", "text", "names"),
    [
        ("one", "one", ["#0"]),
        (b"raw \xff", "raw \ufffd", ["context"]),
        ([{"title": "t", "body": "b"}, "x", 7], "t\nb\n\nx\n\n7", ["#0", "#1", "#2"]),
        ({"a": ["x", {"y": "z"}], "n": [1, 2]}, "x\nz\n\n[1,2]", ["a", "n"]),
        ([], "", []),
        ("", "", ["#0"]),
    ],
)
def test_every_kind_of_context_becomes_text(value: Any, text: str, names: list[str]) -> None:
    found = text_of(store_context(value))
    assert found.text == text
    assert [name for name, _, _ in found.documents] == names


# -- lists ----------------------------------------------------------------------------------------


async def test_all_journaled_runs_are_listed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    results = [await asked(state, ["FINAL(1)"], "some text") for _ in range(3)]
    async with serving(journal_shelf(archive(state)), tmp_path) as client:
        runs = (await client.get("/api/runs"))["runs"]
        assert {run["run_id"] for run in runs} == {each.run_id for each in results}
        assert [run["started"] for run in runs] == sorted(
            (r["started"] for r in runs), reverse=True
        )
        assert {run["status"] for run in runs} == {"ended"}
        events = (await client.get(f"/api/runs/{runs[0]['run_id']}/steps/1"))["events"]
        assert [event["type"] for event in events][:2] == ["step_started", "model_asked"]


async def test_a_run_without_events_is_listed_too(tmp_path: Path) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    made = fork(kept, kept.places.find(result.run_id), 1)
    async with serving(journal_shelf(kept), tmp_path) as client:
        runs = {run["run_id"]: run for run in (await client.get("/api/runs"))["runs"]}
        assert runs[made]["status"] == "interrupted"
        assert runs[made]["query"] == runs[result.run_id]["query"]
        page = await client.get(f"/api/runs/{made}")
        assert (page["started"], page["steps"]) == (None, [])
        assert (await client.ask(f"/api/runs/{made}/calls")).status == 404
        assert (await client.get(f"/api/runs/{made}/timeline"))["spans"] == []
        assert (await client.get(f"/api/runs/{made}/usage"))["models"] == []


async def test_a_hostile_journal_is_skipped_or_shown(tmp_path: Path) -> None:
    places = Places(tmp_path / "state")
    places.prepare()
    journal = Journal(places.journal_of("r"))
    for row in (b"x" * 10, "text", None, 7, 1.5, b"\n" * 2_000_000):
        if row is not None:
            journal._database.execute("insert into events (attempt, lines) values (1, ?)", (row,))
    numbers = (1 << 62, -5)
    for number in numbers:
        journal._database.execute("insert into events values (?, 1, ?)", (number, b"{}\n"))
    for event in one_run("r"):
        journal.record(event)
    journal.close()
    async with serving(journal_shelf(Archive(places)), tmp_path) as client:
        found = await client.get("/api/runs")
        assert [run["run_id"] for run in found["runs"]] in ([], ["r"])
        assert str(tmp_path) not in str(found)


# -- forking --------------------------------------------------------------------------------------


async def until_ended(client: Client, run_id: str) -> Any:
    for _ in range(600):
        answer = await client.ask(f"/api/runs/{run_id}")
        if answer.status == 200 and answer.json["run"]["status"] == "ended":
            return answer.json
        await asyncio.sleep(0.1)
    raise AssertionError("the fork did not end")


async def test_a_fork_runs_in_the_server(tmp_path: Path) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        assert (await client.get("/api/viewer"))["can_fork"] is True
        edited = "```repl\nFINAL('another answer')\n```"
        answer = await client.fork({"run_id": result.run_id, "step": 1, "edited": edited})
        assert answer.status == 200, answer
        page = await until_ended(client, answer.json["run_id"])
        assert page["run"]["answer"] == "another answer"
        async with client.stream(f"/api/runs/{answer.json['run_id']}/live?after=-") as messages:
            kinds = [message["event"] async for message in messages]
        assert kinds[-1] == "end"
        assert len((await client.get("/api/runs"))["runs"]) == 2


@pytest.mark.parametrize(
    ("order", "status", "words"),
    [
        ({"run_id": "nobody", "step": 1}, 404, "root runs"),
        ({"run_id": "../runs/x", "step": 1}, 404, "root runs"),
        ({"step": 99}, 400, "can be forked at steps"),
        ({"step": 0}, 400, "can be forked at steps"),
        ({"step": -(2**70)}, 400, "can be forked at steps"),
        ({"step": "1"}, 400, "not a request to fork"),
    ],
)
async def test_a_run_that_cannot_be_forked_is_explained(
    tmp_path: Path, order: dict[str, Any], status: int, words: str
) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        answer = await client.fork({"run_id": result.run_id, **order})
        assert answer.status == status
        assert words in answer.json["error"]
        assert len((await client.get("/api/runs"))["runs"]) == 1


async def test_a_run_of_a_program_cannot_be_forked(tmp_path: Path) -> None:
    result = await asked(tmp_path / "state", ["FINAL(1)"], "text")
    kept = archive(tmp_path / "state")
    from rlm.cli._viewing import RecordedEngines

    async with serving(journal_shelf(kept), tmp_path, engines=RecordedEngines(kept)) as client:
        answer = await client.fork({"run_id": result.run_id, "step": 1})
        assert answer.status == 400
        assert "started by a program" in answer.json["error"]


async def test_the_number_of_concurrent_forks_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    ended: list[str] = []

    class Waiting(LocalEngines):
        async def go_on(self, facts: RunFacts, context: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(facts.run_id)

    monkeypatch.setattr("rlm.viewer.forking.MAX_RUNNING", 2)
    async with serving(journal_shelf(kept), tmp_path, engines=Waiting(kept)) as client:
        order = {"run_id": result.run_id, "step": 1}
        made = [await client.fork(order) for _ in range(3)]
        assert [answer.status for answer in made] == [200, 200, 503]
    assert sorted(ended) == sorted(answer.json["run_id"] for answer in made[:2])


async def test_concurrently_requested_forks_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)

    class Waiting(LocalEngines):
        async def go_on(self, facts: RunFacts, context: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("rlm.viewer.forking.MAX_RUNNING", 2)
    async with serving(journal_shelf(kept), tmp_path, engines=Waiting(kept)) as client:
        order = {"run_id": result.run_id, "step": 1}
        made = await asyncio.gather(*(client.fork(order) for _ in range(8)))
        assert sorted(answer.status for answer in made) == [200, 200, *([503] * 6)]
        wrong = await client.fork({"run_id": "none", "step": 1})
        assert wrong.status == 503, "there is room only when one of them ends"


def test_a_run_killed_before_its_first_event_updates_the_list(tmp_path: Path) -> None:
    places = Places(tmp_path / "state")
    places.prepare()
    path = places.journal_of("r")
    Journal(path).close()
    lock = Lock(path.with_suffix(".lock"))
    assert lock.take()
    library = Library(Journals(Archive(places)))
    library.start()
    assert library.wait_until_read(60)
    before = library.state()
    lock.release()  # as the kernel does with the locks of a killed process
    assert library.state() != before
