"""Submitting an answer: every published way, and what is not an answer."""

from rlm.engine.sessions import FRESH_ANSWER
from rlm.results import Submission
from rlm.testing.conformance.bench import Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("finals")

_FINALS = (
    ("FINAL('text')", "text", "FINAL", '"text"'),
    ("FINAL([1, 'é'])", "[1, 'é']", "FINAL", '[1, "é"]'),
    ("FINAL({1, 1})", "{1}", "FINAL", None),
    ("FINAL(1); FINAL(2)", "2", "FINAL", "2"),
    ("x = 5; FINAL_VAR('x')", "5", "FINAL_VAR", "5"),
    ("x = 'Paris'; FINAL_VAR(x)", "Paris", "FINAL_VAR", '"Paris"'),
    ("answer = 42; FINAL_VAR('answer')", "42", "FINAL_VAR", "42"),
    ("SUBMIT('s')", "s", "SUBMIT", '"s"'),
    ("v = 1; SUBMIT(variable_name='v')", "1", "SUBMIT", "1"),
    ("submit_answer('s')", "s", "submit_answer", '"s"'),
    ("answer['content'] = 'c'; answer['ready'] = True", "c", "answer", '"c"'),
    ("answer |= {'content': 'c', 'ready': True}", "c", "answer", '"c"'),
)


@checks("every way of submitting an answer counts, and the cell continues", fresh=True)
async def ways(repl: Repl) -> None:
    for code, text, how, json in _FINALS:
        await repl.run("answer = {'content': '', 'ready': False}; after = None")
        result = await repl.run(f"{code}\nafter = 1")
        if result.error is not None:
            raise Unmet(f"{code} raised {result.error.message}")
        expect(result.submission, Submission(text, how, json), code)
        expect("after" in result.changed_variables, True, f"the cell continued after {code}")


@checks("an answer that is not ready does not count, but its content is reported", fresh=True)
async def drafts(repl: Repl) -> None:
    result = await repl.run("answer['content'] = 'draft'")
    expect((result.submission, result.answer_content), (None, "draft"), "a draft")
    result = await repl.run("answer['content'] = ''; answer['ready'] = True")
    expect(result.submission, None, "an empty answer")


@checks("an answer counts for only one cell", fresh=True)
async def one_cell_only(repl: Repl) -> None:
    expect((await repl.run("FINAL('x')")).submission is not None, True, "FINAL counts")
    expect((await repl.run("pass")).submission, None, "the submission of the next cell")


_LEFT_BEHIND = (
    "answer['content'] = 'old'; answer['ready'] = True",
    "answer['content'] = 'old draft'",
    "answer = {'content': 'old', 'ready': True}",
    "answer = 'old'",
    "answer = ['old']",
    "del answer",
    "class Answer(dict): pass\nanswer = Answer(content='old', ready=True)",
    "kept = answer; kept.update(content='old', ready=True)",
)


@checks("a fresh `answer` replaces whatever an earlier run left", fresh=True)
async def fresh_answer(repl: Repl) -> None:
    """The engine binds a new `answer` at the start of every run of a chat."""
    for code in _LEFT_BEHIND:
        await repl.run(code)
        await repl.session.load("answer", FRESH_ANSWER)
        expect(await repl.session.fetch("answer"), None, f"the answer's text after {code}")
        result = await repl.run("print(answer)")
        expect(result.stdout, "{'content': '', 'ready': False}\n", f"`answer` after {code}")
        expect((result.submission, result.answer_content), (None, None), f"a cell after {code}")
    result = await repl.run("kept['content'] = 'older'")
    expect((result.submission, result.answer_content), (None, None), "the dict of an earlier run")
    result = await repl.run("answer['content'] = 'new'; answer['ready'] = True")
    expect(result.submission, Submission("new", "answer", '"new"'), "the fresh answer")


@checks("FINAL_VAR of an unknown name lists the known ones", fresh=True)
async def unknown_variable(repl: Repl) -> None:
    await repl.run("total = 1; rows = []")
    await repl.fails("FINAL_VAR('totl')", "NameError", "total, rows")


@checks("an answer before an error is kept", fresh=True)
async def before_an_error(repl: Repl) -> None:
    result = await repl.run("FINAL('x')\n1 / 0")
    expect(result.error is not None, True, "the error is reported")
    expect(result.submission is not None, True, "the answer is reported")


@checks("an answer over max_submission_chars is the cell's error", max_submission_chars=100)
async def too_long(repl: Repl) -> None:
    for code in ("FINAL('x' * 101)", "answer.update(content='x' * 101, ready=True)"):
        result = await repl.run(code)
        if result.error is None or result.submission is not None:
            raise Unmet(f"{code} was taken")
    await repl.run("answer = {'content': '', 'ready': False}")
    await repl.lives()


@checks("a submission of 60 MB is refused cleanly")
async def far_too_long(repl: Repl) -> None:
    result = await repl.run("FINAL('x' * 60_000_000)")
    if result.error is None or result.submission is not None:
        raise Unmet("it was taken")
    await repl.lives()
