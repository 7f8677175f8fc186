"""Stop, resume, delete and export from the page, and from nowhere else."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.records.journal import Archive, Places, RunFacts
from rlm.viewer.acting import file_name
from tests.cli.kept import offline
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import one_run, written
from tests.viewer.serving import Answer, Client, LocalEngines, journal_shelf, log_shelf, serving

CHANGES = ["stop", "resume", "delete"]
HOSTILE = "\"><script>alert(1)</script>\u202e'\r\nX: y/../%2e"


def archive(state: Path) -> Archive:
    return Archive(Places(state))


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if "static" not in path.parts}


async def change(client: Client, run_id: str, what: str, **headers: str) -> Answer:
    own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
    return await client.ask(f"/api/runs/{run_id}/{what}", "POST", headers={**own, **headers})


async def until(condition: Any) -> None:
    for _ in range(600):
        if await condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it never came true")


# -- what each does -------------------------------------------------------------------------------


async def test_deleting_a_run_deletes_its_context_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = await asyncio.to_thread(offline, state)
    kept = archive(state)
    contexts = set(kept.places.contexts.rglob("*"))
    with RLM("offline/extractive", journal=state) as rlm:
        second = await asyncio.to_thread(rlm.ask, "Who?", "Another text, unlike the first.")
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        facts = await client.get(f"/api/runs/{second.run_id}/actions")
        for path in kept.places.contexts.rglob("*"):
            os.utime(path, (0, 0))  # Contexts of the last minutes may belong to a run that begins.
        assert facts["delete"] is None
        assert "not in progress" in facts["stop"]
        assert "has its answer" in facts["resume"]
        assert (await change(client, second.run_id, "delete")).status == 200
        runs = (await client.get("/api/runs"))["runs"]
        assert [run["run_id"] for run in runs] == [first.run_id]
        assert (await client.ask(f"/api/runs/{second.run_id}")).status == 404
        assert (await change(client, second.run_id, "delete")).status == 404
    assert set(kept.places.contexts.rglob("*")) == contexts


async def test_a_run_in_progress_can_be_stopped_but_not_deleted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    asked = asyncio.Event()

    class Slow(ScriptedClient):
        async def complete(self, request: Any, *, timeout_seconds: float) -> Any:
            asked.set()
            await asyncio.Event().wait()

    kept = archive(state)
    slow = Slow([])
    async with (
        RLM(slow, environment=PlanEnvironment(), journal=state) as rlm,
        serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client,
    ):
        running = asyncio.create_task(rlm.aask("Why?", "text"))
        async with asyncio.timeout(60):
            await asked.wait()
        (run,) = kept.places.listed()
        facts = await client.get(f"/api/runs/{run.run_id}/actions")
        assert facts["stop"] is None
        assert "in progress" in facts["delete"]
        assert "in progress" in facts["resume"]
        refused = await change(client, run.run_id, "delete")
        assert refused.status == 400
        assert "end it first" in refused.json["error"]
        assert (await change(client, run.run_id, "stop")).status == 200
        assert (await running).stop_reason == "cancelled"
        assert (await change(client, run.run_id, "stop")).status == 400
        assert (await change(client, run.run_id, "delete")).status == 200


async def test_a_run_without_an_answer_can_be_resumed_in_the_viewer(tmp_path: Path) -> None:
    state = tmp_path / "state"
    went_on: list[str] = []

    class Noting(LocalEngines):
        async def go_on(self, facts: RunFacts, context: Any) -> None:
            went_on.append(facts.run_id)

    client_ = ScriptedClient([cell(["print", "1"])] * 9)
    async with RLM(
        client_, environment=PlanEnvironment(), journal=state, limits={"max_steps": 1}
    ) as rlm:
        result = await rlm.aask("Why?", "text")
    assert result.stop_reason == "steps"
    kept = archive(state)
    async with serving(journal_shelf(kept), tmp_path, engines=Noting(kept)) as client:
        assert (await client.get(f"/api/runs/{result.run_id}/actions"))["resume"] is None
        assert (await change(client, result.run_id, "resume")).status == 200

        async def begun() -> bool:
            return went_on == [result.run_id]

        await until(begun)


async def test_a_run_is_resumed_once_however_often_it_is_requested(tmp_path: Path) -> None:
    state = tmp_path / "state"
    went_on: list[str] = []

    class Waiting(LocalEngines):
        async def go_on(self, facts: RunFacts, context: Any) -> None:
            went_on.append(facts.run_id)
            await asyncio.Event().wait()

    client_ = ScriptedClient([cell(["print", "1"])] * 9)
    async with RLM(
        client_, environment=PlanEnvironment(), journal=state, limits={"max_steps": 1}
    ) as rlm:
        result = await rlm.aask("Why?", "text")
    kept = archive(state)
    async with serving(journal_shelf(kept), tmp_path, engines=Waiting(kept)) as client:
        asked = [change(client, result.run_id, "resume") for _ in range(5)]
        answers = await asyncio.gather(*asked)
        assert sorted(each.status for each in answers) == [200, 400, 400, 400, 400]
        assert went_on == [result.run_id]


# -- who may not ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"X-RLM-Token": "wrong"},
        {"X-RLM-Token": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Authorization": "Bearer wrong"},
    ],
)
async def test_requests_of_other_websites_change_nothing(
    tmp_path: Path, what: str, headers: dict[str, str]
) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        answer = await change(client, result.run_id, what, **headers)
        assert answer.status == 403
        assert [run.run_id for run in kept.places.listed()] == [result.run_id]


@pytest.mark.parametrize("what", CHANGES)
async def test_only_a_post_without_a_body_changes_something(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    kept = archive(state)
    place = f"/api/runs/{result.run_id}/{what}"
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
            assert (await client.ask(place, method, headers=own)).status in {404, 405}
        for body in (b"{}", b"\x00", b"x" * 100_000):
            answer = await client.ask(place, "POST", headers=own, data=body)
            assert answer.status == 400
        assert len(list(kept.places.listed())) == 1


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    "run_id",
    [
        "nobody",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "%00",
        "..%5c..%5cx",
        "%ff%fe",
        "a" * 3_000,
        "*",
        "%F0%9F%92%A9",
    ],
)
async def test_an_invalid_run_id_has_no_effect(tmp_path: Path, what: str, run_id: str) -> None:
    state = tmp_path / "state"
    await asyncio.to_thread(offline, state)
    kept = archive(state)
    before = names_in(tmp_path)
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        answer = await change(client, run_id, what)
        assert answer.status == 404
        assert str(tmp_path) not in answer.text
    assert names_in(tmp_path) >= before


@pytest.mark.parametrize("what", CHANGES)
async def test_logs_and_a_read_only_viewer_offer_no_changes(tmp_path: Path, what: str) -> None:
    log = written(tmp_path / "a.jsonl", one_run("r"))
    async with serving(log_shelf(log), tmp_path) as client:
        assert "only journaled runs" in (await client.get("/api/runs/r/actions"))[what]
        assert (await change(client, "r", what)).status == 400
    state = tmp_path / "state"
    result = await asyncio.to_thread(offline, state)
    async with serving(journal_shelf(archive(state)), tmp_path) as client:
        assert (await change(client, result.run_id, what)).status == 400
    assert log.is_file()
    assert len(list(archive(state).places.listed())) == 1


# -- exports --------------------------------------------------------------------------------------


async def test_a_copied_journal_can_be_neither_resumed_nor_forked(tmp_path: Path) -> None:
    state = tmp_path / "state"
    client_ = ScriptedClient([cell(["print", "1"])] * 9)
    async with RLM(
        client_, environment=PlanEnvironment(), journal=state, limits={"max_steps": 1}
    ) as rlm:
        result = await rlm.aask("Why?", "text")
    kept = archive(state)
    copy = kept.places.journal_of("copy")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(kept.places.journal_of(result.run_id).read_bytes())
    async with serving(journal_shelf(kept), tmp_path, engines=LocalEngines(kept)) as client:
        before = set(state.rglob("*.sqlite"))
        for answer in (
            await change(client, "copy", "resume"),
            await client.fork({"run_id": "copy", "step": 1}),
        ):
            assert (answer.status, "belongs to another run" in answer.text) == (400, True), answer
        assert set(state.rglob("*.sqlite")) == before


async def test_every_export_is_an_attachment_that_browsers_do_not_display(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", one_run("r", query="<script>alert(1)</script>"))
    async with serving(log_shelf(log), tmp_path) as client:
        formats = (await client.get("/api/runs/r/actions"))["formats"]
        assert "html" in formats
        for name in formats:
            answer = await client.ask(f"/api/runs/r/export/{name}")
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert answer.headers["Content-Disposition"].startswith("attachment; filename=rlm-r.")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.text
        assert (await client.ask("/api/runs/r/export/exe")).status == 404
        assert (await client.ask("/api/runs/r/export/..%2fhtml")).status == 404
        assert (await client.ask("/api/runs/nobody/export/html")).status == 404


async def test_a_shared_page_runs_no_scripts_and_loads_nothing(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", one_run("r", query=HOSTILE, model=HOSTILE))
    async with serving(log_shelf(log), tmp_path) as client:
        page = (await client.ask("/api/runs/r/export/html")).text
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src' in page
    assert "<script" not in page
    places = re.findall(r"\b(?:src|href)=(.{2})", page)
    assert set(places) <= {'"#'}
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("run_id", [HOSTILE, "", "..", "\x00", "a" * 900, 'r"; x="', "ü/ä"])
def test_an_export_is_named_with_safe_characters(run_id: str) -> None:
    name = file_name(run_id, ".html")
    assert re.fullmatch(r"rlm-[A-Za-z0-9][A-Za-z0-9._-]*\.html", name)
    assert len(name) < 100
    assert ".." not in name
