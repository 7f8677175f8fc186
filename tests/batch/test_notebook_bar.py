"""A batch in a notebook is one output that changes. tests/notebook runs one in a real kernel."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.batch import Batch, BatchFolder, Plan, Tally, progress
from rlm.batch.rows import Source
from rlm.limits import Amount, Budget


class Shell:
    """Keeps the messages that a kernel would send."""

    execution_count = 1

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.display_pub = SimpleNamespace(publish=lambda **given: self.sent.append(given))


async def test_a_batch_shows_one_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    monkeypatch.setattr(progress, "kernel_shell", lambda: shell)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN", 0.0)
    tasks = tmp_path / "rows.jsonl"
    rows = [{"query": "How many?"}] * 3 + [{"query": " "}]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = BatchFolder(tmp_path / "answers.jsonl")
    engine = RLM(ScriptedClient(["FINAL(4)"] * 3))
    with folder.opened() as table, folder.answers(table) as answers:
        budget = Budget.shared(max_tokens=1_000_000)
        await Batch(
            engine, Source(tasks), table, answers, budget, Plan(concurrency=1, skips_bad_rows=True)
        ).run()
    await engine.aclose()
    texts = [each["data"]["text/plain"] for each in shell.sent]
    assert texts[0].startswith("0 of 4 rows (0 %)")
    assert any(text.startswith("2 of 4 rows (50 %)") for text in texts)
    assert texts[-1].startswith("4 of 4 rows (100 %) · 1 failed · ")
    assert '<progress value="4" max="4"' in shell.sent[-1]["data"]["text/html"]
    assert len({each["transient"]["display_id"] for each in shell.sent}) == 1
    assert [each["update"] for each in shell.sent] == [False] + [True] * (len(shell.sent) - 1)


def test_the_bar_shows_the_cost_and_the_escaped_reason_for_stopping() -> None:
    shell, budget = Shell(), Budget.shared(max_cost_usd=1)
    budget.charge(Amount(tokens=1_500, picodollars=12_300_000_000))
    bar = progress.NotebookBar(shell, budget)
    bar.update(Tally(total=3, answered=1, running=2))
    bar.update(Tally(total=3, answered=2))  # too soon to be drawn
    assert [each["data"]["text/plain"] for each in shell.sent] == [
        "1 of 3 rows (33 %) · 2 running · 1,500 tokens · $0.0123"
    ]
    bar.end(Tally(total=3, answered=2, stopped="<b>no</b>"))
    assert "stopped: &lt;b&gt;no" in shell.sent[-1]["data"]["text/html"]


def test_outside_of_notebooks_there_is_none() -> None:
    assert progress.notebook_bar(Budget.shared()) is None
