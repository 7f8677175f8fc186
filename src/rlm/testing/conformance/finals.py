"""Submitting an answer: every published way, and what is not an answer."""

from rlm.engine.repl_values import FRESH_ANSWER
from rlm.results import Submission
from rlm.testing.conformance.bench import Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("finals")

_FINALS = (
    ("FINAL('text')", "text", "FINAL", '"text"'),
    ("FINAL([1, 'é'])", "[1, 'é']", "FINAL", '[1, "é"]'),
    ("FINAL({1, 1})", "{1}", "FINAL", "[1]"),
    ("FINAL(1j)", "1j", "FINAL", None),
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


_ANSWERING = (
    "FINAL('old')",
    "SUBMIT('old')",
    "globals()['x'] = 'old'; FINAL_VAR('x')",
    "answer['content'] = 'old'; answer['ready'] = True",
    "answer.update(content='old', ready=True)",
    "globals()['answer'] = {'content': 'old', 'ready': True}",
)
_THREADS = {
    "a thread": "threading.Thread(target=late).start()",
    "a timer": "threading.Timer(0, late).start()",
    "a raw thread": "__import__('_thread').start_new_thread(late, ())",
    "a pool": "pool = ThreadPoolExecutor(1); pool.submit(late)",
    "a thread of a thread": """
def again():
    gate.wait()
    threading.Thread(target=late).start()
threading.Thread(target=again).start()
""",
    "a loop of its own": """
async def slow(): await asyncio.to_thread(late)
threading.Thread(target=lambda: asyncio.run(slow())).start()
""",
    "a copied context": """
import contextvars
threading.Thread(target=contextvars.copy_context().run, args=(late,)).start()
""",
    "a loop that it calls": """
loop = asyncio.get_running_loop(); await asyncio.sleep(0)
def call():
    gate.wait()
    loop.call_soon_threadsafe(late)
threading.Thread(target=call).start()
""",
}
_TASKS = {
    "a task": """
async def slow():
    while not gate.is_set(): await asyncio.sleep(0.01)
    late()
task = asyncio.create_task(slow()); await asyncio.sleep(0)
""",
    "a callback": """
loop = asyncio.get_running_loop(); await asyncio.sleep(0)
def check():
    late() if gate.is_set() else loop.call_later(0.01, check)
loop.call_soon(check)
""",
    "a task of a task": """
async def inner(): late()
async def outer():
    while not gate.is_set(): await asyncio.sleep(0.01)
    asyncio.create_task(inner())
task = asyncio.create_task(outer()); await asyncio.sleep(0)
""",
}
_SETUP = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
gate, over = threading.Event(), threading.Event()
def late():
    gate.wait()
    try: {answering}
    except RuntimeError: pass
    finally: over.set()
"""


async def _left_behind(repl: Repl, start: str, answering: str, what: str) -> None:
    """Let a run start something that answers only during the next run."""
    begun = await repl.run(_SETUP.format(answering=answering) + start)
    expect(begun.error, None, f"the cell that starts {what}")
    await repl.session.load("answer", FRESH_ANSWER)
    wait = "gate.set()\nwhile not over.is_set(): await asyncio.sleep(0.01)\nawait asyncio.sleep(0)"
    result = await repl.run(wait)
    expect((result.submission, result.answer_content), (None, None), f"{what}: {answering}")
    result = await repl.run("answer['content'] = 'new'; answer['ready'] = True")
    expect(result.submission, Submission("new", "answer", '"new"'), f"the run after {what}")
    await repl.session.load("answer", FRESH_ANSWER)


@checks("threads of an earlier run do not answer for the next", fresh=True)
async def old_threads(repl: Repl) -> None:
    for what, start in _THREADS.items():
        await _left_behind(repl, start, _ANSWERING[0], what)
    for answering in _ANSWERING[1:]:
        await _left_behind(repl, _THREADS["a thread"], answering, "a thread")


@checks("tasks of an earlier run do not answer for the next", fresh=True)
async def old_tasks(repl: Repl) -> None:
    for what, start in _TASKS.items():
        await _left_behind(repl, start, _ANSWERING[0], what)
    for answering in _ANSWERING[1:]:
        await _left_behind(repl, _TASKS["a task"], answering, "a task")


_OWN_THREADS = (
    "t = threading.Thread(target=FINAL, args=('x',)); t.start(); t.join()",
    "with ThreadPoolExecutor(1) as pool: pool.submit(FINAL, 'x').result()",
    "await asyncio.to_thread(FINAL, 'x')",
)
_OWN_TASKS = (
    "async def one(): FINAL('x')\nawait asyncio.create_task(one())",
    "async def one(): FINAL('x')\nawait asyncio.gather(one(), asyncio.sleep(0))",
    "asyncio.get_running_loop().call_soon(FINAL, 'x'); await asyncio.sleep(0.01)",
)


@checks("threads of a later run answer for it", fresh=True)
async def own_threads(repl: Repl) -> None:
    await _answers(repl, _OWN_THREADS)


@checks("tasks of a later run answer for it", fresh=True)
async def own_tasks(repl: Repl) -> None:
    await _answers(repl, _OWN_TASKS)


async def _answers(repl: Repl, cells: tuple[str, ...]) -> None:
    await repl.run("import asyncio, threading\nfrom concurrent.futures import ThreadPoolExecutor")
    for _ in range(2):
        for code in cells:
            result = await repl.run(code)
            expect(result.submission, Submission("x", "FINAL", '"x"'), code)
        await repl.session.load("answer", FRESH_ANSWER)


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
