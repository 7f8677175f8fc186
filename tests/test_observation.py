"""What goes back to the model: exact text, because prompts are product."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlm.limits import Limits
from rlm.prompts.observation import budget_worth_showing, cut, observation
from rlm.results import CellError, CellResult


def show(*results: CellResult, steps_left: int = 11, **more: Any) -> str:
    return observation(results, output_chars=100, steps_left=steps_left, **more)


def test_an_observation_ends_with_one_line_of_facts() -> None:
    result = CellResult(stdout="hello\n", stdout_chars=7_400, calls=2, seconds=3.14)
    assert show(result).splitlines()[-1] == "stdout 7.4K chars | 2 calls | 3.1 s | 11 steps left"


def test_a_silent_cell_shows_changed_variables() -> None:
    result = CellResult(new_variables={"rows": "list[3120]"}, changed_variables={"n": "int"})
    assert show(result) == (
        "new: rows = list[3120]\nchanged: n = int\nstdout 0 chars | 0.0 s | 11 steps left"
    )


def test_a_cell_without_any_effect_says_so() -> None:
    assert show(CellResult()).startswith("(no output)\n")


def test_stderr_and_error_follow_the_output() -> None:
    error = CellError("KeyError", "'a'", "Traceback:\n  row['a']\nKeyError: 'a'\n")
    result = CellResult(stdout="out", stdout_chars=3, stderr="warn", stderr_chars=4, error=error)
    assert show(result, steps_left=1).splitlines() == [
        "out",
        "[stderr]",
        "warn",
        "[error]",
        "Traceback:",
        "  row['a']",
        "KeyError: 'a'",
        "stdout 3 chars | 0.0 s | 1 step left",
    ]


def test_output_of_several_cells_is_numbered_and_summed_up() -> None:
    one = CellResult(stdout="a\n", stdout_chars=2, calls=1, seconds=0.5)
    assert show(one, one).splitlines() == [
        "[block 1]",
        "a",
        "[block 2]",
        "a",
        "stdout 4 chars | 2 calls | 1.0 s | 11 steps left",
    ]


def test_notes_precede_the_last_line() -> None:
    assert show(CellResult(), notes=("Careful.",)).splitlines()[-2] == "Careful."


@given(st.text(), st.integers(2, 50), st.integers(0, 10**6))
def test_cut_keeps_head_and_tail_and_counts_missing_characters(
    text: str, limit: int, lost: int
) -> None:
    total = len(text) + lost
    shown = cut(text, limit, total)
    if total <= limit:
        assert shown == text
        return
    half = min(limit, len(text)) // 2
    head, tail = text[:half], text[len(text) - half :]
    assert shown.startswith(head)
    assert shown.endswith(tail)
    assert f"{total - len(head) - len(tail):,} of {total:,} characters cut" in shown


def test_the_number_of_lines_is_shown_where_many_are_cut() -> None:
    rows = "\n".join(f"row {number}" for number in range(500))
    assert "characters cut; 500 lines in total …" in cut(rows, 100)
    assert "lines in total" not in cut("x" * 500, 100)
    assert "lines in total" not in cut(rows, 100, len(rows) + 1)  # some of it was not kept


def test_the_observation_of_a_timed_out_cell_suggests_remedies() -> None:
    slow = CellError("TimeoutError", "cell stopped after 120 s", "Traceback:\n  re.findall(...)")
    shown = show(CellResult(error=slow))
    assert "TimeoutError: cell stopped after 120 s\nThe variables are" in shown
    assert "ctx.grep(...)" in shown
    own = CellError("TimeoutError", "the tool did not answer", "Traceback:")
    assert "ctx.grep(...)" not in show(CellResult(error=own))


def test_money_and_tokens_are_shown_once_half_is_used() -> None:
    limits = Limits(max_tokens=1_000, max_cost_usd=1.0)
    plenty = {"calls": 5, "tokens": 600, "cost_usd": 0.6, "seconds": None}
    assert budget_worth_showing(plenty, limits) == {}
    scarce = {"calls": 5, "tokens": 400, "cost_usd": 0.25, "seconds": None}
    assert budget_worth_showing(scarce, limits) == {"tokens": 400, "cost_usd": 0.25}
    told = show(CellResult(), left={"tokens": 400, "cost_usd": 0.25})
    assert told.endswith("| 400 tokens left | $0.2500 left | 11 steps left")
