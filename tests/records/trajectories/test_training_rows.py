"""Rows to train on: calls, scores, once each, without secrets, the same every time."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.events import MAX_PROMPT_CHARS, CallEnded, CallStarted, Event
from rlm.records.judging.judgments import Judgment
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import _replies, export
from rlm.records.trajectories.exports._replies import Once
from rlm.records.trajectories.exports._secrets import without_secrets
from tests.records.trajectories.samples import (
    ended,
    one_run,
    replied,
    scripted_log,
    started,
    tree,
    written,
)

TRAINING = ("sft", "trl", "openai-chat")
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


def rows(path: Path, format_: str, **facts: Any) -> list[dict[str, Any]]:
    trajectory = open_trajectory(path)
    for name, value in facts.items():
        setattr(trajectory, name, value)
    return [json.loads(line) for line in "".join(export(trajectory, format_)).splitlines()]


def calls(run_id: str, *told: tuple[str, str], **facts: Any) -> list[Event]:
    """Calls of a run, each a prompt and a reply."""
    events: list[Event] = []
    for number, (prompt, reply) in enumerate(told):
        about: dict[str, Any] = {"call_id": f"{run_id}.{number}", "kind": "llm", "model": "s"}
        events.append(CallStarted(run_id=run_id, step=1, prompt=prompt, **about))
        events.append(CallEnded(run_id=run_id, step=1, reply=reply, **about, **facts))
    return [started(run_id), replied(run_id, 1), *events, ended(run_id)]


async def test_trl_rows_have_the_same_columns_and_texts(tmp_path: Path) -> None:
    found = rows(await scripted_log(tmp_path), "trl")
    columns = {"prompt", "completion", "kind", "run_id", "root_id", "depth", "score"}
    assert {frozenset(row) for row in found} == {frozenset(columns)}
    assert [(row["kind"], row["depth"]) for row in found] == [
        *[("step", 0)] * 3,
        *(("call", 0), ("step", 0), ("step", 1)),
    ]
    for row in found:
        assert [message["role"] for message in row["completion"]] == ["assistant"]
        assert all(isinstance(m["content"], str) for m in [*row["prompt"], *row["completion"]])


def test_a_call_has_a_row_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", calls("a", ("Is it red?", "no"), ("Is it blue?", "yes")))
    (_, first, second) = rows(path, "sft")
    assert first["prompt"] == [{"role": "user", "content": "Is it red?"}]
    assert first["completion"] == [{"role": "assistant", "content": "no"}]
    assert (second["kind"], second["purpose"], second["model"]) == ("call", "call", "s")
    assert [each["messages"][-1]["content"] for each in rows(path, "openai-chat")[1:]] == [
        "no",
        "yes",
    ]


def test_failed_empty_cut_and_child_calls_have_no_row(tmp_path: Path) -> None:
    failed = written(tmp_path / "a.jsonl", calls("a", ("p", "r"), error="unreachable"))
    assert [row["kind"] for row in rows(failed, "sft")] == ["step"]
    cut = "x" * (MAX_PROMPT_CHARS + 1)
    path = written(tmp_path / "b.jsonl", calls("b", ("p", "  "), (cut, "r")))
    assert [row["kind"] for row in rows(path, "sft")] == ["step"]
    path = written(tmp_path / "c.jsonl", tree())
    kinds = [(row["run_id"], row["kind"]) for row in rows(path, "trl")]
    assert kinds.count(("r", "call")) == 1, "calls that started a child run are its rows"


def test_every_row_has_the_score_of_its_root(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", tree())
    for format_ in ("sft", "trl"):
        by_bench = rows(path, format_, scores={"r": 0.25, "r-c": 1.0})
        assert {row["score"] for row in by_bench} == {0.25}
        by_people = rows(path, format_, scores={"r": 0.25}, judgments={"r": Judgment(score=1.0)})
        assert {row["score"] for row in by_people} == {1.0}
        assert {row["root_id"] for row in by_people} == {"r"}
        assert {row["score"] for row in rows(path, format_)} == {None}


@pytest.mark.parametrize("format_", TRAINING)
def test_equal_conversations_are_exported_once(tmp_path: Path, format_: str) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", calls("a", ("p", "r"), ("p", "r"), ("p", "other")))
    alone = rows(tmp_path / "logs", format_)
    written(tmp_path / "logs" / "b.jsonl", calls("b", ("p", "other"), ("q", "r")))
    both = rows(tmp_path / "logs", format_)
    assert len(both) == len(alone) + 1
    assert both[: len(alone)] == alone, "the first one stays, and the order is that of the files"
    assert rows(tmp_path / "logs", format_) == both


def test_the_memory_for_deduplication_is_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_replies, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(_replies, "MAX_OPEN_CALLS", 3)
    once = Once()
    assert [once.is_new(n) for n in (1, 2, 3, 1, 2, 3)] == [True] * 3 + [False, False, True]
    begun: list[Event] = [
        CallStarted(run_id="a", step=1, call_id=f"{n}", kind="llm", model="s", prompt=f"p{n}")
        for n in range(9)
    ]
    over: list[Event] = [
        CallEnded(run_id="a", step=1, call_id=f"{n}", kind="llm", model="s", reply=f"r{n}")
        for n in range(9)
    ]
    path = written(tmp_path / "a.jsonl", [started("a"), *begun, *over, ended("a")])
    assert [row["prompt"][0]["content"] for row in rows(path, "trl")] == ["p6", "p7", "p8"]


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", TRAINING)
def test_secrets_are_hidden_in_training_rows(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "swordfish-7391")
    told = (f"Use {KEY} and swordfish-7391.", "postgres://me:hunter2hunter2@db/x")
    path = written(tmp_path / "a.jsonl", calls("a", told))
    text = "".join(export(open_trajectory(path), format_))
    for secret in (KEY, "swordfish", "hunter2"):
        assert secret not in text
    assert text.count("[secret]") == 3


@pytest.mark.parametrize(
    "text",
    [
        "sk_learn_pipeline_of_many_steps_here",
        "skip_the_first_paragraph_of_all = 1",
        "hf_dataset_of_long_names",
        "see https://example.org/a@b and a@b.c",
        "Bearer of news",
    ],
)
def test_code_and_prose_are_unchanged_by_hiding_secrets(text: str) -> None:
    assert without_secrets()(text) == text


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.just(KEY),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_no_key_is_left_and_the_structure_is_kept(value: Any) -> None:
    hidden = without_secrets()(value)
    assert KEY not in json.dumps(hidden)
    if KEY not in json.dumps(value):
        assert json.dumps(hidden) == json.dumps(value) or "://" in json.dumps(value)


@pytest.mark.heavy
def test_hiding_secrets_in_hostile_text_is_fast() -> None:
    hide = without_secrets()
    for piece in ("sk-", "://a:", "bearer ", "ghp_", "sk-a"):
        text = piece * 100_000
        assert isinstance(hide(text), str)


def test_rows_of_many_runs_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    events = [*one_run("b"), *one_run("a"), *one_run("c", parent_id="b", depth=1)]
    told = [replied(each, 1, text=f"of {each}") for each in ("b", "a", "c")]
    path = written(tmp_path / "a.jsonl", [*events, *told])
    order = list(dict.fromkeys(row["run_id"] for row in rows(path, "trl")))
    assert order == ["b", "c", "a"], "a child follows its parent"
