"""The trials of a benchmark in the viewer: their logs, and their scores beside them."""

import json
from pathlib import Path

import pytest

from rlm.bench.trial_runs import TrialRuns
from rlm.cli._viewing import shelf_of
from rlm.errors import ConfigError
from rlm.testing.scripted import ScriptedClient
from rlm.viewer.answers import Answers
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Library
from tests.bench.benches import ALL, answers_to, benched, knowing

NEEDLE = {"s-niah/single": ALL["s-niah/single"]}


def answers_in(folder: Path) -> Answers:
    shelf, page = shelf_of(str(folder))
    assert isinstance(shelf, TrialRuns)
    assert page == "#/results"
    library = Library(shelf)
    library.start()
    return Answers(library, Contexts(None))


async def test_every_trial_is_a_run_with_its_score(tmp_path: Path) -> None:
    right = answers_to(NEEDLE, (0,)) | dict.fromkeys(answers_to(NEEDLE, (0, 1)), "nothing")
    right |= answers_to(NEEDLE, (0,))
    outcomes, _ = await benched(
        knowing(right), NEEDLE, tmp_path, seeds=(0, 1), methods=("rlm", "plain")
    )
    answers = answers_in(tmp_path)
    listed = answers.runs()
    assert listed["skipped"] == {"count": 0, "reasons": []}
    notes = {run["run_id"]: run["note"] for run in listed["runs"]}
    assert len(notes) == 4
    for each in outcomes.values():
        trial = f"s-niah/single 2k {each.method} #{each.seed}"
        assert notes[each.run_id] == f"score {100 * (each.score or 0):.0f}: {trial}"
    assert sorted(each.score or 0.0 for each in outcomes.values()) == [0.0, 0.0, 1.0, 1.0]
    for each in outcomes.values():
        opened = answers.run(each.run_id)
        assert opened["run"]["note"].startswith("score ")
        assert opened["run"]["steps"] == each.steps


async def test_results_show_answers_beside_gold_and_figures_by_method(tmp_path: Path) -> None:
    right = answers_to(NEEDLE, (0,)) | dict.fromkeys(answers_to(NEEDLE, (1,)), "<b>nothing</b>")
    await benched(knowing(right), NEEDLE, tmp_path, seeds=(0, 1), methods=("rlm", "plain"))
    found = TrialRuns(tmp_path).results()
    assert found["kind"] == "bench"
    assert [(each["name"], each["live"]) for each in found["folders"]] == [(tmp_path.name, False)]
    samples = {(each["name"], each["method"]): each for each in found["samples"]}
    for method in ("rlm", "plain"):
        good, bad = samples["#0", method], samples["#1", method]
        assert (good["score"], bad["score"]) == (1.0, 0.0)
        assert good["gold"] in good["answer"]
        assert bad["answer"] == "<b>nothing</b>"
        assert bad["gold"] not in {None, ""}
    figures = [(each["method"], each["score"], each["hits"]) for each in found["figures"]]
    assert figures == [("rlm", 50.0, 1), ("plain", 50.0, 1)]


async def test_two_folders_are_compared_and_other_kinds_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, one)
    await benched(knowing(dict.fromkeys(answers_to(NEEDLE, (0,)), "no")), NEEDLE, other)
    shelf, page = shelf_of(str(one), str(other))
    assert isinstance(shelf, TrialRuns)
    assert (shelf.title, page) == ("one and other", "#/results")
    found = shelf.results()
    assert [(each["folder"], each["score"]) for each in found["samples"]] == [(0, 1.0), (1, 0.0)]
    assert found["samples"][0]["key"] == found["samples"][1]["key"]
    assert len(shelf.paths()) == 2
    assert {each["run_id"] for each in found["samples"]} == {""}, "both have the same id"
    assert len(Library(shelf).state()) == 4
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="can't be compared"):
            shelf_of(str(one), str(wrong))


async def test_a_folder_without_gold_answers_can_be_read(tmp_path: Path) -> None:
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, tmp_path)
    path = tmp_path / "results.jsonl"
    line = json.loads(path.read_text("utf-8"))
    del line["gold"]
    path.write_text(json.dumps(line) + "\n", "utf-8")
    (sample,) = TrialRuns(tmp_path).results()["samples"]
    assert sample["gold"] is None


async def test_a_resumed_trial_is_one_run(tmp_path: Path) -> None:
    broken = ScriptedClient(rules=[("", "no code at all")])
    await benched(broken, NEEDLE, tmp_path, engine_options={"strategy": "rlm"})
    before = list((tmp_path / "runs").iterdir())
    (run,) = answers_in(tmp_path).runs()["runs"]
    path = tmp_path / "results.jsonl"
    line = json.loads(path.read_text("utf-8"))
    failed = {**line, "status": "failed", "score": None}
    path.write_text(json.dumps(failed) + "\n", "utf-8")
    assert (
        answers_in(tmp_path).run(run["run_id"])["run"]["note"].startswith("failed: s-niah/single")
    )
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, tmp_path)
    assert list((tmp_path / "runs").iterdir()) == before
    (again,) = answers_in(tmp_path).runs()["runs"]
    assert (again["run_id"], again["attempts"]) == (run["run_id"], 2)
    assert again["note"].startswith("score 100: ")


async def test_a_damaged_file_of_results_is_reported_and_runs_are_shown(tmp_path: Path) -> None:
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, tmp_path)
    (tmp_path / "results.jsonl").write_text('{"score": "many"}\n', "utf-8")
    listed = answers_in(tmp_path).runs()
    assert [run.get("note") for run in listed["runs"]] == [None]
    assert "is not a result" in listed["skipped"]["reasons"][0]


def test_other_folders_are_shown_as_before(tmp_path: Path) -> None:
    shelf, _ = shelf_of(str(tmp_path))
    assert isinstance(shelf, Folder)


async def test_an_open_page_is_notified_of_a_new_score(tmp_path: Path) -> None:
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, tmp_path)
    library = Library(TrialRuns(tmp_path))
    before = library.state()
    assert library.state() == before
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b"\n")
    assert library.state() != before


@pytest.mark.parametrize("missing", ["results.jsonl", "settings.json"])
async def test_an_incomplete_folder_is_not_a_benchmark(missing: str, tmp_path: Path) -> None:
    await benched(knowing(answers_to(NEEDLE, (0,))), NEEDLE, tmp_path)
    assert TrialRuns.are_in(tmp_path)
    (tmp_path / missing).unlink()
    assert not TrialRuns.are_in(tmp_path)
