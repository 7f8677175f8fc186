"""Each rule that ends a run, or keeps it going, on its own."""

from typing import Any

import pytest

from rlm.config import Guards
from rlm.engine.cells import Actions, Cell, Final, parse_reply
from rlm.engine.decide import (
    Answered,
    Continue,
    Decision,
    Progress,
    StepResult,
    TryMapReduce,
    decide,
)
from rlm.prompts import nudges
from rlm.results import CellError, CellResult, Submission

ERROR = CellError("NameError", "name 'x' is not defined", "NameError: name 'x' is not defined")


def step_result(reply: str, *results: CellResult, looked_up: str | None = None) -> StepResult:
    return StepResult(parse_reply(reply), results, looked_up, empty=not reply.strip())


def printed(text: str, **more: Any) -> CellResult:
    return CellResult(stdout=text, stdout_chars=len(text), **more)


def judge(
    one: StepResult, progress: Progress | None = None, guards: Guards | None = None, step: int = 1
) -> Decision:
    progress = progress or Progress()
    progress.note(one)
    return decide(one, progress, guards or Guards(), step, ("rows", "total"))


CODE = "```repl\nprint(context[:10])\n```\n"


def test_a_submission_from_code_ends_the_run() -> None:
    submission = Submission("42", "FINAL")
    assert judge(step_result(CODE, CellResult(submission=submission))) == Answered(submission)


def test_code_alone_continues_the_run() -> None:
    assert judge(step_result(CODE, printed("hello"))) == Continue()


def test_a_final_in_prose_ends_the_run() -> None:
    assert judge(step_result("FINAL(Paris)")) == Answered(Submission("Paris", "FINAL"))


def test_a_final_that_names_a_variable_submits_its_value() -> None:
    decision = judge(step_result("FINAL_VAR(total)", looked_up="17"))
    assert decision == Answered(Submission("17", "FINAL_VAR"))
    assert judge(step_result("FINAL(total)", looked_up="17")) == decision


def test_an_unknown_variable_is_reported_with_the_known_ones() -> None:
    decision = judge(step_result("FINAL_VAR(totl)"))
    assert decision == Continue((nudges.unknown_variable("totl", ("rows", "total")),))
    assert isinstance(decision, Continue)
    assert "rows, total" in decision.notes[0]


def test_a_literal_final_that_the_output_supports_is_accepted() -> None:
    decision = judge(step_result(CODE + "FINAL(The sum is 1,234)", printed("sum: 1234\n")))
    assert decision == Answered(Submission("The sum is 1,234", "FINAL"))


def test_an_unsupported_literal_must_be_confirmed_once_per_run() -> None:
    progress = Progress()
    one = step_result(CODE + "FINAL(The sum is 99)", printed("sum: 1234\n"))
    assert judge(one, progress) == Continue((nudges.CONFIRM_FINAL,))
    assert judge(one, progress) == Answered(Submission("The sum is 99", "FINAL"))


def test_a_literal_after_a_failed_cell_must_be_confirmed() -> None:
    one = step_result(CODE + "FINAL(fine)", CellResult(error=ERROR))
    assert judge(one) == Continue((nudges.CONFIRM_FINAL,))


def test_a_number_seen_in_an_earlier_output_counts_as_seen() -> None:
    progress = Progress()
    judge(step_result(CODE, printed("code 777")), progress)
    decision = judge(step_result(CODE + "FINAL(777)", printed("ok")), progress)
    assert isinstance(decision, Answered)


@pytest.mark.parametrize("reply", ["", "  \n", "<think>hm</think>"])
def test_an_empty_reply_gets_its_own_nudge(reply: str) -> None:
    one = StepResult(parse_reply(reply), (), None, empty=True)
    assert judge(one) == Continue((nudges.EMPTY_REPLY,))


def test_prose_without_code_or_final_gets_a_nudge() -> None:
    assert judge(step_result("I would first look at the data.")) == Continue((nudges.NO_ACTION,))


def test_consecutive_replies_without_action_are_counted() -> None:
    progress = Progress()
    judge(step_result("Well."), progress)
    judge(step_result("Well."), progress)
    assert progress.invalid_in_a_row == 2
    judge(step_result(CODE, printed("x")), progress)
    assert progress.invalid_in_a_row == 0


def test_consecutive_errors_are_counted() -> None:
    progress = Progress()
    for _ in range(2):
        judge(step_result(CODE, CellResult(error=ERROR)), progress)
    assert progress.errors_in_a_row == 2
    judge(step_result(CODE + CODE, printed("x")), progress)
    assert progress.errors_in_a_row == 0


def test_guard_repl_before_final() -> None:
    guards = Guards(require_repl_before_final=True)
    assert judge(step_result("FINAL(Paris)"), guards=guards) == Continue((nudges.need_repl(),))
    assert isinstance(
        judge(step_result(CODE + "FINAL(ok)", printed("ok")), guards=guards), Answered
    )


def test_guard_subcall_before_final() -> None:
    guards = Guards(require_subcall_before_final=True)
    assert judge(step_result("FINAL(Paris)"), guards=guards) == Continue((nudges.need_subcall(),))
    progress = Progress()
    judge(step_result(CODE, printed("x", calls=1)), progress, guards)
    assert isinstance(judge(step_result("FINAL(Paris)"), progress, guards), Answered)


def test_guard_min_steps_applies_to_submissions_from_code_too() -> None:
    guards, submission = Guards(min_steps=3), Submission("42", "FINAL")
    one = step_result(CODE, CellResult(submission=submission))
    assert judge(one, guards=guards, step=2) == Continue((nudges.need_steps(3, 2),))
    assert judge(one, guards=guards, step=3) == Answered(submission)


def test_a_submission_that_a_guard_rejects_is_remembered() -> None:
    progress = Progress()
    judge(step_result("FINAL(Paris)"), progress, Guards(min_steps=5))
    assert progress.submitted == Submission("Paris", "FINAL")


def test_answer_content_that_is_not_ready_is_remembered() -> None:
    progress = Progress()
    assert judge(step_result(CODE, CellResult(answer_content="draft")), progress) == Continue()
    assert progress.submitted == Submission("draft", "answer")


def test_repeating_the_same_code_gets_a_hint_then_a_change_of_course() -> None:
    progress = Progress()
    decisions = [judge(step_result(CODE, printed("x")), progress) for _ in range(6)]
    assert decisions[:2] == [Continue(), Continue()]
    assert decisions[2] == Continue((nudges.SAME_CODE,))
    assert decisions[3:5] == [Continue(), Continue()]
    assert decisions[5] == TryMapReduce(nudges.STUCK[nudges.SAME_CODE])


def test_the_same_error_from_different_code_gets_a_hint() -> None:
    progress = Progress()
    for number in range(3):
        reply = f"```repl\nprint(context, x, {number})\n```"
        decision = judge(step_result(reply, CellResult(error=ERROR)), progress)
    assert decision == Continue((nudges.SAME_ERROR,))


def test_code_that_never_looks_at_the_context_gets_a_hint() -> None:
    progress = Progress()
    decisions = [
        judge(step_result(f"```repl\nprint({n})\n```", printed(str(n))), progress, step=n)
        for n in range(1, 6)
    ]
    assert decisions[2] == Continue((nudges.UNTOUCHED_CONTEXT,))
    assert [d for i, d in enumerate(decisions) if i != 2] == [Continue()] * 4


def test_finals_submitted_by_native_tool_calls_are_accepted() -> None:
    one = StepResult(Actions((Cell("x"),), Final("value", "7")), (printed("7"),))
    assert judge(one) == Answered(Submission("7", "FINAL"))


def test_failures_in_a_row_are_reported_with_the_last_error() -> None:
    progress = Progress()
    last = CellError("KeyError", "two\n lines" + "x" * 500, "KeyError: two")
    for error in (ERROR, ERROR, last):
        progress.note(step_result(CODE, CellResult(error=error)))
    reason, limit = progress.failing(Guards(), 3) or ("", "")
    assert reason.startswith("3 cells failed in a row, the last with: KeyError: two linesxx")
    assert (len(reason) < 300, limit) == (True, "errors")
