"""What is decided about a cell before monty sees it; needs no monty."""

import ast
from typing import Any

import pytest

from rlm.environments.monty import inside
from rlm.environments.monty.cell import Cell, NotPython, checked_cell
from rlm.environments.monty.definitions import Definitions
from rlm.environments.monty.doubts import doubt_about
from rlm.environments.monty.inside import carrying, finals, report, views
from rlm.environments.monty.loading import Misfit, context_value
from rlm.environments.monty.reports import Ending, read_report
from rlm.environments.monty.support import unsupported
from rlm.environments.monty.survey import Survey, needs, probe
from rlm.environments.monty.tracebacks import Raised
from rlm.environments.monty.values import as_raised, received
from rlm.errors import ProtocolViolation, SessionError
from rlm.worker.ctx import ContextView
from rlm.worker.replies import CallFailed, FailedReply
from tests.environments.conftest import StoredContext

FUNCTIONS = frozenset({"llm_query", "lookup"})


def read(source: str) -> Cell:
    return checked_cell(source, "<cell 1>", FUNCTIONS)


def fed(source: str) -> str:
    return read(source).fed.removesuffix("\n_rlm_report(locals())")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", "x = 1"),
        ("1, 2", "_rlm_echo((\n1, 2\n))"),
        ("x = 1; x", "x = 1; _rlm_echo((\nx\n))"),
        ("x  # why", "_rlm_echo((\nx  # why\n))"),
        ("f(1);", "_rlm_echo((\nf(1)\n))"),
        ("é = 'é'; é", "é = 'é'; _rlm_echo((\né\n))"),
        ("(1 +\n 2)\n# end", "_rlm_echo((\n(1 +\n 2)\n))\n# end"),
        ("for i in x: i", "for i in x: i"),
        ("a = 1\r\na", "a = 1\n_rlm_echo((\na\n))"),
        ("print(1)\\", "_rlm_echo((\nprint(1)\n))"),
        ("", ""),
    ],
)
def test_the_last_expression_is_echoed_on_lines_of_its_own(source: str, expected: str) -> None:
    assert fed(source) == expected
    ast.parse(read(source).fed)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = await llm_query(1)", "x = await _rlm_async_llm_query(1)"),
        (
            "x = await gather(*[llm_query(i) for i in y])",
            "x = await gather(*[_rlm_async_llm_query(i) for i in y])",
        ),
        ("async def f(): return await lookup()", "async def f(): return await _rlm_async_lookup()"),
        ("x = llm_query(1)", "x = llm_query(1)"),
        ("x = await other(1)", "x = await other(1)"),
    ],
)
def test_a_call_that_is_awaited_is_one_of_the_async_form(source: str, expected: str) -> None:
    assert fed(source) == expected


@pytest.mark.parametrize("source", ["x = (", "return 1", "a\x00b", "'\ud800'", "(" * 5000, "1 +"])
def test_what_is_no_python_is_told_in_pythons_words_and_without_our_paths(source: str) -> None:
    with pytest.raises(NotPython) as caught:
        read(source)
    assert caught.value.error.type == "SyntaxError"
    assert "monty" not in caught.value.error.traceback


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("del x", "`del`"),
        ("def f():\n    yield 1", "generator functions"),
        ("class A(B): pass", "inheritance"),
        ("class A:\n    def __len__(self): return 1", "__len__"),
        ("class A:\n    @property\n    def x(self): return 1", "the method x"),
        ("import json\njson.x = 1", "changing a module"),
        ("x = '\\ud800'", "lone surrogates"),
        ("from json import *", "import *"),
        ("list = [1]", "built-in name list"),
        ("sorted(x, key=str.lower)", "the method lower as a value"),
        ("hasattr(x, '__iter__')", "__iter__"),
        ("print(1, file=f)", "printing to a file"),
        ("f.__doc__", "__doc__"),
    ],
)
def test_what_monty_would_take_in_another_sense_is_seen_in_the_source(
    source: str, words: str
) -> None:
    modules: dict[str, str] = {}
    cell = read(source)
    needs(cell.tree, modules)
    reason = unsupported(cell.tree, modules)
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nprint('x', file=sys.stderr)",
        "class A:\n    def __init__(self): self.x = 1",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int",
        "rows.sort(key=lambda r: r[0])\n'a'.upper()",
        "type(x).__name__",
    ],
)
def test_what_monty_has_is_let_pass(source: str) -> None:
    assert unsupported(read(source).tree, {"sys": "sys"}) is None


def test_needs_are_named_with_the_modules_behind_their_names() -> None:
    modules = {"j": "json"}
    tree = ast.parse("import os.path as p, re\nfrom a import b\nj.loads(re.x)\nlen('').split()")
    assert needs(tree, modules) == {
        *("module os.path", "module re", "module a", "attribute a.b", "attribute json.loads"),
        *("attribute re.x", "name len", "method split"),
    }
    assert modules == {"j": "json", "p": "os.path", "re": "re"}


def test_the_survey_asks_once_and_knows_some_things_by_itself() -> None:
    survey = Survey()
    wanted = {"module re", "method split", "name open", "module os", "module numpy"}
    assert survey.unknown(wanted) == ["method split", "module re"]
    ast.parse(probe(["method split", "module re", "attribute re.x", "name len"]))
    survey.take(["method split", "module re"], ["method split"])
    assert survey.unknown(wanted) == []
    assert survey.lacks({"module re", "module numpy"}) is None
    assert survey.lacks({"module re", "method split"}) == "the method split of str or bytes"
    assert "files" in (survey.lacks({"name open"}) or "")
    assert "module os" in (survey.lacks(wanted) or "")


def test_definitions_are_kept_if_running_them_again_does_nothing_else() -> None:
    definitions = Definitions()
    definitions.note(
        read(
            "import json, re as r\nfrom a import b\ndef f(x=1):\n    return x\n"
            "def g(x=f()): pass\n@cache\ndef h(): pass\nk = lambda: 1\nclass A:\n    n = 1\n"
            "class B:\n    n = f()\nx = 1; import late"
        )
    )
    assert list(definitions.sources()) == ["json", "r", "b", "f", "k", "A"]
    assert definitions.sources()["f"] == "def f(x=1):\n    return x"
    definitions.note(read("é = 1\nimport late; boom()\ndef one(): return 'é'; boom()"))
    assert definitions.sources()["late"] == "import late"
    assert definitions.sources()["one"] == "def one(): return 'é'; boom()"
    definitions.note(read("late = one = 1\nf = 5\nfor json in x: pass"))
    assert list(definitions.sources()) == ["r", "b", "k", "A"]


def _ending(kind: str, message: str) -> Ending:
    return Ending([], None, b"", Raised(kind, message, []))


@pytest.mark.parametrize(
    ("kind", "message", "alone", "after_calls"),
    [
        ("KeyError", "'a'", False, False),
        ("NameError", "name 'rows' is not defined", False, False),
        ("NameError", "name 'input' is not defined", True, True),
        ("TypeError", "whatever", True, False),
        ("AttributeError", "'int' object has no attribute 'bit_length'", True, True),
        ("AttributeError", "'int' object has no attribute 'nothing'", True, False),
        ("ModuleNotFoundError", "No module named 'threading'", True, True),
        ("NotImplementedError", "The monty syntax parser does not", True, True),
        ("NotImplementedError", "mine", True, False),
    ],
)
def test_an_error_is_doubted_unless_it_is_surely_the_users(
    kind: str, message: str, alone: bool, after_calls: bool
) -> None:
    ending = _ending(kind, message)
    assert (doubt_about(ending, has_asked=False) is not None) is alone
    settled = doubt_about(ending, has_asked=True)
    assert (settled is not None and settled.is_settled) is after_calls


@pytest.mark.parametrize("value", [None, [], [[["x", "int", 1]], None], [[], ["a"]], "x", [{}, {}]])
def test_a_forged_report_is_a_violation(value: Any) -> None:
    with pytest.raises(ProtocolViolation):
        read_report(value)


def test_contexts_that_monty_can_not_hold_say_why() -> None:
    assert context_value(StoredContext("json", b'{"a": [1, null]}'), 100) == {"a": [1, None]}
    with pytest.raises(Misfit, match="at most 3 are copied"):
        context_value(StoredContext("text", b"abcd"), 3)
    for source in (
        StoredContext("text", "\ud800".encode("utf-8", "surrogatepass")),
        StoredContext("json", b'["\\ud800"]'),
    ):
        with pytest.raises(Misfit, match="surrogates"):
            context_value(source, 100)
    with pytest.raises(SessionError):
        context_value(StoredContext("json", b"{"), 100)


def test_only_plain_data_is_received() -> None:
    class Proxy:
        name = "FailedReply"
        attributes = {"reason": "no"}  # noqa: RUF012

    reply = received([{"a": (1, Proxy())}])[0]["a"][1]
    assert isinstance(reply, FailedReply)
    assert reply.reason == "no"
    with pytest.raises(TypeError, match="not object"):
        received([object()])


def test_errors_reach_the_cell_in_types_that_monty_knows() -> None:
    assert repr(as_raised(CallFailed("no \ud800"))) == "RuntimeError('no \ufffd')"
    assert repr(as_raised(KeyError("a"))) == "KeyError('a')"


# -- what runs inside monty is valid Python too, so its meaning can be compared --------------------


def test_the_prelude_is_bare() -> None:
    text = inside.prelude()
    assert '"""' not in text
    assert "Any" not in text
    ast.parse(text)


@pytest.mark.parametrize(
    "payload", ["abc\ndef\nabc", ["one", "two"], {"a": 1, "b": [2]}, "", "é\n\n", b"x\xff"]
)
def test_views_read_as_those_of_the_worker(payload: Any) -> None:
    ours, theirs = views._RlmContextView(payload), ContextView(payload)
    for ask in (
        *(lambda v: v.slice(1, 4), lambda v: v.find("a"), lambda v: v.grep("a|o", 1)),
        *(lambda v: v.chunk(3, 1), lambda v: v.lines(2, 3), lambda v: v.documents()),
        *(lambda v: v.describe(), lambda v: v.find("A", case_sensitive=False), lambda v: repr(v)),
        *(lambda v: v.grep("("), lambda v: v.lines()),
    ):
        assert ask(ours) == ask(theirs)


@pytest.mark.parametrize(
    ("given", "expected"),
    [((1,), 1), ((None, "a"), "a"), ((None,), None), ((), TypeError), (("a", "b"), TypeError)],
)
def test_submitting_takes_one_value(given: tuple[Any, ...], expected: Any) -> None:
    nothing = finals._rlm_not_given
    value, answer = [*given, nothing, nothing][:2]
    if expected is TypeError:
        with pytest.raises(TypeError):
            finals._rlm_one_of(value, answer, None)
    else:
        assert finals._rlm_one_of(value, answer, None) == expected


def test_only_plain_values_have_a_weight() -> None:
    assert carrying._rlm_weight({"a": [1, "bcd", (b"x", {2.5})]}) > 0
    assert carrying._rlm_weight(["x" * 100] * 10) >= 1000
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (cycle, object(), [len], {"a": range(3)}):
        with pytest.raises(ValueError):
            carrying._rlm_weight(value)


def test_a_report_holds_what_is_the_users() -> None:
    names = {"rows": [1], "_private": 1, "json": ast, "answer": {"content": "c", "ready": 1}}
    rows, answer = report._rlm_report(names)
    assert [row[:3] for row in rows] == [["rows", "list", 1]]
    assert answer == ["c", True, '"c"', 1]
