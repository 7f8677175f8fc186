"""The table of `rlm bench run`, in wide and narrow terminals."""

from typing import Any

import pytest

from rlm.bench.results import Outcome
from rlm.cli import _bench_table
from rlm.cli._bench_table import show_results


def outcome(seed: int, score: float | None, **given: Any) -> Outcome:
    usual: dict[str, Any] = {
        "task": "oolong/counting",
        "size": 8_000,
        "method": "rlm",
        "status": "failed" if score is None else "scored",
        "cost_usd": 0.01,
        "input_tokens": 9_000,
        "output_tokens": 500,
        "calls": 3,
        "seconds": 2.25,
    }
    return Outcome(seed=seed, score=score, **{**usual, **given})


OUTCOMES = [
    outcome(0, 1.0),
    outcome(1, 0.5),
    outcome(2, None),
    outcome(0, 0.0, method="plain", status="impossible", cost_usd=None),
    outcome(0, 1.0, method="operators", cost_usd=None),
]


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_results(OUTCOMES)
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_a_line_for_each_task_size_and_method(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(capsys)
    assert head.split() == [
        *("task", "size", "method", "n", "hits", "score", "95", "%", "calls", "tokens"),
        *("cost", "s"),
    ]
    first, second, third = (row.split() for row in rows)
    assert first[:6] == ["oolong/counting", "8k", "rlm", "2", "1", "75.0"]
    assert first[6:] == ["20–97", "3.0", "9,500", "$0.0100", "2.2"]
    assert second[2:] == ["plain", "1", "0", "0.0", "–", "–", "–", "–", "–"]
    assert third[2:] == ["operators", "1", "1", "100.0", "21–100", "3.0", "9,500", "unknown", "2.2"]
    assert len({len(row) for row in (head, *rows)}) == 1  # the last column ends at one place


@pytest.mark.parametrize("columns", [40, 50, 60, 80])
def test_the_table_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bench_table, "terminal_width", lambda: columns)
    lines = shown(capsys)
    assert max(map(len, lines)) <= columns
    assert lines[0] == "oolong/counting 8k rlm"
    text = " ".join(" ".join(lines).split())
    figures = "score 75.0, 95 % 20–97, calls 3.0, tokens 9,500, cost $0.0100, s 2.2"
    assert f"n 2, hits 1, {figures}" in text
