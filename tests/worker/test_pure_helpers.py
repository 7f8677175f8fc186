"""The small pure helpers, the published list of names, and the worker's independence."""

import ast
from pathlib import Path

import pytest

from rlm import worker
from rlm.worker import loose_json
from rlm.worker.repl_names import REPL_NAMES
from rlm.worker.replies import FailedReply, vote

WORKER_FILES = sorted(Path(worker.__file__).parent.glob("*.py"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("42", 42),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("Sure! Here it is:\n```\n[1, 2]\n```\nAnything else?", [1, 2]),
        ('The result is {"a": [1]} as asked.', {"a": [1]}),
        ('<think>{"a": 0}</think>{"a": 1}', {"a": 1}),
        ("use [brackets] like [1]", [1]),
    ],
)
def test_json_is_found_in_text_that_models_write(text: str, value: object) -> None:
    assert loose_json.parse(text) == value


@pytest.mark.parametrize("text", ["", "no", "{" * 5_000, "[" * 100_000])
def test_text_without_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        loose_json.parse(text)


def test_vote_takes_the_majority_of_normalised_answers() -> None:
    assert vote(["Paris", "London", "  paris. "]) == "Paris"
    assert vote(["b", "a", "a", "b"]) == "b"
    assert vote([FailedReply("x"), FailedReply("x"), "yes"]) == "yes"
    with pytest.raises(ValueError, match="no answer"):
        vote([FailedReply("x")])


def test_every_published_name_is_described_once() -> None:
    names = [entry.name for entry in REPL_NAMES]
    assert len(names) == len(set(names))
    assert all(entry.name.isidentifier() and entry.description for entry in REPL_NAMES)
    assert {entry.name for entry in REPL_NAMES if entry.restored} == {
        "context_0", "llm_query", "llm_query_batched", "llm_batch", "rlm_query",
        "rlm_query_batched", "llm_query_json", "map_query", "SHOW_VARS", "FINAL", "FINAL_VAR",
        "SUBMIT", "submit_answer", "call_tool", "cite",
    }  # fmt: skip


@pytest.mark.parametrize("path", WORKER_FILES, ids=lambda path: path.name)
def test_worker_files_are_python_3_9_and_import_nothing_of_rlm(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "rlm" for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] != "rlm"
    assert len(path.read_text().splitlines()) <= 300
