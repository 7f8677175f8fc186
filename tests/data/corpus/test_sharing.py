"""One corpus for many runs: the rows of a batch and child runs ask the one that is open."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlm import Limits, ScriptedClient
from rlm.data.corpus import Corpus
from rlm.data.corpus import source as corpus_source
from tests.batch.desk import SMALL, Desk

Open = Callable[..., Corpus]


async def test_rows_of_a_batch_and_child_runs_share_one_open_corpus(
    texts: Path, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(texts).path
    made: list[Path] = []

    def open_corpus(path: Path) -> Corpus:
        made.append(path)
        return Corpus(path)

    monkeypatch.setattr(corpus_source, "Corpus", open_corpus)
    row = "```repl\nFINAL(rlm_query('Name' + ' the first hit.', context=context))\n```"
    child = "```repl\nFINAL(ctx.search('quick', k=1)[0]['name'])\n```"
    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", row), ("Name the first hit.", child)]))
    desk.limits = Limits(
        max_depth=2,
        step_output_tokens=SMALL.step_output_tokens,
        call_output_tokens=SMALL.call_output_tokens,
    )
    desk.write([{"query": f"row {number} ?", "context_file": folder.name} for number in range(10)])
    tally = await desk.run()
    assert tally.answered == 10
    assert [each["answer"] for each in desk.answers] == ["docs/a.txt"] * 10
    assert made == [folder.resolve()]
