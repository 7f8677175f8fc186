"""001 lists what models were seen to do in a REPL. Each works here, with the names of our cells."""

import re

import pytest

from rlm import RLM, ScriptedClient
from rlm.events import CallEnded
from rlm.results import RunResult
from tests.seeds.reading import text_of

LINES = [f"entry {n}: {'a cat sleeps' if n % 3 == 0 else 'a dog barks'}" for n in range(300)]
TEXT = "\n".join(["HEADER v7", *LINES, "TOTAL 300"])


def ran(code: str) -> RunResult:
    """One cell as a model might write it; sub-calls say how many cats they were shown."""
    model = ScriptedClient([f"```repl\n{code}\n```"])
    reader = ScriptedClient(
        rules=[("", lambda asked: str(str(asked.messages[-1].content).count("cat")))]
    )
    with RLM(model, sub_model=reader) as rlm:
        return rlm.ask("How many cats?", TEXT)


def calls(result: RunResult) -> int:
    return sum(isinstance(event, CallEnded) for event in result.events)


def test_all_five_strategies_are_tested() -> None:
    section = text_of("001").partition("### Strategies RLMs Discover")[2].partition("###")[0]
    named = re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE)
    written = [name.lower().replace(" + ", " and ").replace(" ", "_") for name in named]
    assert len(written) == 5
    assert [name for name in written if f"test_{name}" not in globals()] == []


def test_peeking() -> None:
    assert ran("FINAL(peek(9) + ' … ' + tail(9))").answer == "HEADER v7 … TOTAL 300"


def test_grepping() -> None:
    result = ran("FINAL(len(ctx.find(r'\\bcat\\b', regex=True, max_matches=1000)))")
    assert (result.answer, calls(result)) == ("100", 0)


def test_partition_and_map() -> None:
    code = """
chunks = [text for _, _, text in ctx.chunk(2_000)]
counts = llm_query_batched([f"How many cats are in this?\\n{chunk}" for chunk in chunks])
FINAL(sum(int(count) - 1 for count in counts))
"""
    result = ran(code)
    assert calls(result) > 3
    assert 95 <= int(result.answer) <= 100  # a word cut in two at the end of a chunk is no cat


def test_summarization() -> None:
    code = """
notes = map_query("Summarize: how many cats?", [text for _, _, text in ctx.chunk(4_000)])
FINAL(llm_query("cat " * len(notes)))
"""
    result = ran(code)
    assert int(result.answer) == calls(result) - 1 > 1


@pytest.mark.parametrize("code", ["FINAL(sum('cat' in line for line in context.splitlines()))"])
def test_programmatic_processing(code: str) -> None:
    result = ran(code)
    assert (result.answer, calls(result)) == ("100", 0)
