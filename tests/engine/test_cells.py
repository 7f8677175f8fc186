"""How a reply becomes actions, rule by rule."""

import threading
import warnings
from typing import Any

import pytest

from rlm._util import python_source
from rlm._util.python_source import PythonParser, names_used
from rlm.engine import cells
from rlm.engine.cells import (
    Actions,
    Cell,
    Final,
    final_is_supported,
    parse_reply,
    parse_tool_calls,
    strip_thinking,
)
from rlm.messages import ToolCall


def codes(text: str) -> list[str]:
    return [cell.code for cell in parse_reply(text).cells]


def final(text: str) -> Final | None:
    return parse_reply(text).final


def value(text: str, *, maybe_name: bool = False) -> Final:
    return Final("value", text, maybe_name)


# --- thinking ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("<think>a</think>b", "b"),
        ("<THINKING>a</Thinking>b", "b"),
        ("a<think>1</think>b<think>2</think>c", "abc"),
        ("<think>\n```python\nx()\n```\nFINAL(1)\n</think>b", "b"),
        ("<think>odd fence\n```python\n</think>b", "b"),
        ("<think>cut off FINAL(1)", ""),
        ("Sure.\n<think>cut off", "Sure.\n"),
        ("reasoning FINAL(1)\n</think>\nb", "\nb"),
        ("<think>a <think> b</think> c</think>d", "d"),
        ("I use the <think> tag. b", "I use the <think> tag. b"),
        ('The tag "</think>" ends it', 'The tag "</think>" ends it'),
        ("```python\nprint(1)\n</think>\nb", "\nb"),
        ("no tags", "no tags"),
    ],
)
def test_strip_thinking(text: str, visible: str) -> None:
    assert strip_thinking(text) == visible


@pytest.mark.parametrize(
    "text",
    [
        '```python\ns = "a <think>b</think> c"\n```',
        '```python\ns = """\n</think>\n"""\n```',
        "```xml\n<think>\n</think>\n```",
        "```python\nbroken = (<think>\n```",
        "I strip <think> tags.\n```python\nre.sub('<think>.*?</think>', '', s)\n```",
    ],
    ids=["string", "closing_tag_alone", "other_language", "broken_code", "word_before_code"],
)
def test_tags_in_fenced_code_survive(text: str) -> None:
    assert strip_thinking(text) == text


def test_an_unclosed_fence_in_thinking_does_not_hide_later_code() -> None:
    text = "Let me try ```python\nfoo(\n</think>\n```python\nreal()\n```"
    assert codes(text) == ["real()"]


def test_finals_and_cells_in_thinking_do_not_count() -> None:
    assert parse_reply("<think>FINAL(1)\n```python\nx()\n```</think>\nHm.") == Actions()


# --- fences --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "info", ["repl", "python", "py", "python3", "Python", ' python title="x"', "{.python}", ""]
)
@pytest.mark.parametrize("mark", ["```", "````", "~~~", "~~~~~"])
def test_code_fences_are_cells(mark: str, info: str) -> None:
    assert codes(f"Look:\n\n{mark}{info}\nprint(1)\n{mark}\n\nDone.") == ["print(1)"]


@pytest.mark.parametrize("language", ["json", "bash", "text", "output", "sql", "c++", "sh"])
def test_fences_of_other_languages_are_neither_cells_nor_finals(language: str) -> None:
    assert parse_reply(f"```{language}\nFINAL(1)\nprint(1)\n```") == Actions()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\na()\n```\nthen\n```repl\nb()\n```", ["a()", "b()"]),
        ("```python\na()", ["a()"]),
        ("```python\na()```", ["a()"]),
        ("```python\na()```\nand\n```python\nb()\n```", ["a()", "b()"]),
        ("```python\r\na()\r\nb()\r\n```\r\n", ["a()\r\nb()"]),
        ("- item\n\n    ```python\n    if x:\n        y()\n    ```", ["if x:\n    y()"]),
        ("1. ```python\n   a()\n   ```", ["a()"]),
        ("Now: ```python\na()\n```", ["a()"]),
        ("````python\ns = '''\n```\n'''\n````", ["s = '''\n```\n'''"]),
        ("```python\ns = '''\n```py\nx\n```\n'''\n```", ["s = '''\n```py\nx\n```\n'''"]),
        ("~~~python\ns = '''\n```\n'''\n~~~", ["s = '''\n```\n'''"]),
        ("```python\nawait f(1)\n```", ["await f(1)"]),
        ("```python\n\n```", []),
        ("```python", []),
    ],
    ids=[
        "several_in_order",
        "unterminated",
        "glued_end",
        "glued_end_then_another",
        "crlf",
        "indented",
        "in_list",
        "after_text",
        "longer_fence",
        "fence_in_string",
        "other_mark",
        "await",
        "empty",
        "nothing_follows",
    ],
)
def test_fenced_code_becomes_cells(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_code_that_never_parses_ends_at_the_first_closing_fence() -> None:
    assert codes("```python\nx = (\n```\nhm\n```python\ny = 1\n```") == ["x = (", "y = 1"]


def test_dedent_leaves_lines_without_the_margin_alone() -> None:
    text = "  ```python\n  s = '''\n a\n\n   b\n  '''\n  ```"
    assert codes(text) == ["s = '''\n a\n\n b\n'''"]


@pytest.mark.parametrize(
    "content",
    [
        "42",
        "Paris",
        "[1, 2, 3]",
        "{'a': 1}",
        "The result is unknown.",
        "Traceback (most recent call last):\n    print(x)\nNameError: name 'x' is not defined",
        "src/\n├─ a.py",
        "",
    ],
)
def test_bare_fences_with_output_or_prose_are_no_cells(content: str) -> None:
    assert codes(f"Output:\n```\n{content}\n```") == []


@pytest.mark.parametrize(
    "content",
    [
        "print(1)",
        "x = 5",
        "context[:100]",
        "import re",
        "FINAL(42)",
        "x = (",
        "# look\nfor x in y:\nprint(x)",
        "def f(:\n  pass",
        "print('a)",
        "import re,",
        "rows[0] = = 1",
    ],
)
def test_bare_fences_that_parse_or_begin_like_code_are_cells(content: str) -> None:
    assert codes(f"```\n{content}\n```") == [content]


def test_a_stray_closing_fence_does_not_hide_a_final() -> None:
    reply = parse_reply("```python\nx()\n```\n```\nFINAL(42)")
    assert reply == Actions((Cell("x()"),), value("42"))


# --- no fence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "snippet = peek(80)\nsummary = llm_query(f'Summarize: {snippet}')\nanswer = summary",
        "print(len(context))",
        "import re",
        "await llm_query('x')",
        "x: int = 5",
        "for line in context:\n    print(line)",
        "x = compute()\nFINAL(x)",
        "prompt = '''\nFinal Answer: <here>\nFINAL(1)\n'''\nprint(prompt)",
        "re.findall('\\d+', context)",
        "print(1if x else 2)",
    ],
)
def test_unfenced_code_is_one_cell(text: str) -> None:
    assert parse_reply(text) == Actions((Cell(text),))


@pytest.mark.parametrize(
    "text",
    [
        "Paris",
        "None",
        "'a string'",
        "42",
        "yes or no",
        "Paris, France",
        "Paris (France)",
        "Paris (France), Rome (Italy)",
        "Answer: Paris",
        "global warming",
        "I will print(x) now.",
        "",
        "   \n ",
    ],
)
def test_plain_english_is_nothing(text: str) -> None:
    assert parse_reply(text) == Actions()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5\nFINAL_VAR: x", Actions((Cell("x = 5"),), Final("variable", "x"))),
        ("x = f()\nFINAL: x", Actions((Cell("x = f()"),), value("x", maybe_name=True))),
        ("x = f()\nFinal Answer: it is 5", Actions((Cell("x = f()"),), value("it is 5"))),
        ("Some prose.\nFINAL: 5", Actions((), value("5"))),
        ("FINAL(f(1))", Actions((), value("f(1)"))),
        ("# Done\nFINAL(1)", Actions((), value("1"))),
    ],
)
def test_unfenced_code_and_finals(text: str, expected: Actions) -> None:
    assert parse_reply(text) == expected


@pytest.mark.parametrize("fence", ["```", "```python", "~~~repl"])
@pytest.mark.parametrize(
    ("label", "final"),
    [
        ("FINAL_VAR: rows", Final("variable", "rows")),
        ("FINAL: it is 5", value("it is 5")),
        ("\nFINAL: two\nlines", value("two\nlines")),
    ],
)
def test_a_fence_around_a_labelled_final_is_removed(fence: str, label: str, final: Final) -> None:
    fenced = f"{fence}\n{label}\n{fence[:3]}"
    assert parse_reply(fenced) == Actions((), final)
    assert parse_reply(f"Done.\n{fenced}") == Actions((), final)
    before = f"```repl\nf()\n```\nThen:\n{fenced}"
    assert parse_reply(before) == Actions((Cell("f()"),), final)


@pytest.mark.parametrize("code", ["FINAL_VAR: int = 3\nf()", "x: int = f()", "f()\nFINAL_VAR: x"])
def test_code_with_annotations_is_not_taken_for_a_labelled_final(code: str) -> None:
    assert parse_reply(f"```python\n{code}\n```") == Actions((Cell(code),))


# --- code and finals in one reply ----------------------------------------------------------------


def test_code_and_final_are_both_returned() -> None:
    expected = Actions((Cell("x = 1"),), Final("variable", "x"))
    assert parse_reply("```python\nx = 1\n```\nFINAL_VAR(x)") == expected
    assert parse_reply("FINAL_VAR(x)\n```python\nx = 1\n```") == expected


def test_a_labelled_final_ends_at_the_next_cell() -> None:
    expected = Actions((Cell("f()"),), value("a b"))
    assert parse_reply("FINAL: a b\n```python\nf()\n```") == expected
    assert parse_reply("FINAL(a b\n```python\nf()\n```") == expected


def test_a_final_call_may_contain_whole_code_blocks() -> None:
    text = "FINAL(Use this:\n```python\nf()\n```\nDone.)"
    assert parse_reply(text) == Actions((), value("Use this:\n```python\nf()\n```\nDone."))


def test_a_final_call_inside_a_fence_is_only_code() -> None:
    assert parse_reply("```repl\nFINAL(x)\n```") == Actions((Cell("FINAL(x)"),))


# --- tool calls ----------------------------------------------------------------------------------


def tools(*calls: tuple[str, Any]) -> Actions:
    return parse_tool_calls(tuple(ToolCall("id", name, arguments) for name, arguments in calls))


def test_tool_calls_are_the_same_actions() -> None:
    assert tools(
        ("execute_python", {"code": "a()"}),
        ("execute_python", {"code": "```python\nb()\n```"}),
        ("submit_answer", {"answer": "one"}),
        ("submit_answer", {"variable_name": "rows"}),
    ) == Actions((Cell("a()"), Cell("b()")), Final("variable", "rows"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"answer": " a b "}, value("a b")),
        ({"answer": "result"}, value("result")),
        ({"answer": 42}, value("42")),
        ({"answer": {"a": ["é"]}}, value('{"a": ["é"]}')),
        ({"answer": "x", "variable_name": "y"}, value("x")),
        ({"answer": "", "variable_name": "y"}, Final("variable", "y")),
        ({"answer": None, "variable_name": "y"}, Final("variable", "y")),
        ({"answer": ""}, value("")),
        ({"answer": None}, None),
        ({"answer": {1j}}, None),
        ({"variable_name": 3}, None),
        ({}, None),
    ],
)
def test_submit_answer(arguments: dict[str, Any], expected: Final | None) -> None:
    assert tools(("submit_answer", arguments)).final == expected


def test_unknown_tools_and_malformed_arguments_are_ignored() -> None:
    assert (
        tools(
            ("search", {"code": "a()"}),
            ("execute_python", {"code": 3}),
            ("execute_python", {"code": " "}),
            ("execute_python", {"source": "x"}),
            ("execute_python", None),
            ("submit_answer", ["x"]),
        )
        == Actions()
    )


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(len(context))", {"print", "len", "context"}),
        ("x = 1", set()),
        ("x += y", {"x", "y"}),
        ("f'{a} {b!r}'", {"a", "b"}),
        ("rows[0] = 1\nctx.grep('x')", {"rows", "ctx"}),
        ("def f(a):\n    return a + g", {"a", "g"}),
        ("await q(p)", {"q", "p"}),
        ("x = (", set()),
        ("x\0", set()),
    ],
)
def test_names_used(code: str, expected: set[str]) -> None:
    assert names_used(code) == expected


# --- hostile replies -----------------------------------------------------------------------------

HOSTILE = {
    "nested_brackets": "```python\n" + "[" * 1_000_000,
    "backticks": "`" * 100_000,
    "fences": "```\n" * 100_000,
    "code_fences": "```python\n(\n```\n" * 20_000,
    "open_fences_and_tags": "```python\n</think>\n" * 20_000,
    "tags": "<think>" * 100_000,
    "finals": "FINAL(" * 100_000,
    "final_lines": "FINAL(\n" * 100_000,
    "quotes": "FINAL(" + "'a\\' " * 50_000,
    "open_quotes": "“" * 300_000,
    "nul": "```python\nx = '\0'\n```",
    "surrogates": "```python\nx = '\ud800'\n```\nFINAL('\\n\ud800')",
    "deep_expression": "x = " + "-" * 100_000 + "1",
    "deep_sum": "x = " + "1+" * 50_000 + "1",
    "long_number": "x = " + "1" * 100_000,
    "list_marks": "- " * 300_000 + "FINAL",
    "spaces": " " * 500_000 + "x",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_replies_are_read_without_raising(text: str) -> None:
    reply = parse_reply(text)
    assert isinstance(reply, Actions)
    assert strip_thinking(text) in text
    assert isinstance(names_used(text), frozenset)
    assert isinstance(final_is_supported(text, text), bool)


def test_code_that_cannot_be_encoded_is_still_a_cell() -> None:
    assert codes(HOSTILE["nul"]) == ["x = '\0'"]
    assert codes(HOSTILE["surrogates"]) == ["x = '\ud800'"]
    assert final(HOSTILE["surrogates"]) == value("\\n\ud800")


@pytest.mark.parametrize("name", ["code_fences", "open_fences_and_tags", "nested_brackets"])
def test_the_number_and_size_of_parses_are_bounded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counting(source: str, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(source))
        return compile(source, *args, **kwargs)

    monkeypatch.setattr(python_source, "compile", counting, raising=False)
    parse_reply(HOSTILE[name])
    assert len(sizes) <= 2 * cells.MAX_FENCE_LINES * (cells.MAX_CLOSING_FENCES + 1)
    assert max(sizes, default=0) <= python_source.MAX_SOURCE_CHARS
    assert sum(sizes) <= python_source.MAX_PARSED_CHARS


def test_data_is_not_parsed_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser took more than a second for 200 KB of it."""
    parsed: list[int] = []

    def counting(source: str, *args: Any, **kwargs: Any) -> Any:
        parsed.append(len(source))
        return compile(source, *args, **kwargs)

    monkeypatch.setattr(python_source, "compile", counting, raising=False)
    rows = '{"id": 1, "value": [1, 2]}\n' * 6_000
    assert parse_reply(rows).cells == ()
    assert parsed == []
    code = "".join(f"value_of_row_{n} = compute(the_argument)\n" for n in range(1_500))
    assert parse_reply(code).cells[0].code == code.strip()
    assert parsed


def test_a_bounded_number_of_closing_fences_is_tried() -> None:
    inside = cells.MAX_CLOSING_FENCES - 1
    code = "s = '''\n" + "```\n" * inside + "'''"
    assert codes(f"```python\n{code}\n```") == [code]
    longer = "s = '''\n" + "```\n" * (inside + 1) + "'''"
    assert codes(f"```python\n{longer}\n```")[0] == "s = '''"


NOISY = [
    r's = "\d \8 \400"',
    r's = b"\u1234 \N"',
    r'f"\{x} \N{EM DASH} {1if x else 2}"',
    r'rf"\d{x}"',
    "[0x1for x in (1,)]",
    "1_0and 1.5e3or 2jif 0b1else .5in x",
    r"s = '\'' + '\\d'",
]


@pytest.mark.parametrize("code", NOISY)
def test_the_parser_never_warns(code: str) -> None:
    """Warnings are errors here, so a warning would show as code that does not parse."""
    before = warnings.filters[:]
    assert PythonParser().parse(code) is not None
    assert warnings.filters == before


def test_suppressing_warnings_does_not_make_invalid_code_valid() -> None:
    for code in (r"x\d", r'"a\"', "a1if x", 'r"\\"', "x = 1 \\ 2"):
        assert PythonParser().parse(code) is None


def test_threads_may_parse_at_once() -> None:
    results: list[Actions] = []
    text = "```python\nprint('\\d')\n```\nFINAL('a\\tb')"
    threads = [threading.Thread(target=lambda: results.append(parse_reply(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [Actions((Cell("print('\\d')"),), value("a\tb"))] * 8


@pytest.mark.parametrize(("failures", "is_parsed"), [(2, True), (3, False)])
def test_code_is_parsed_again_if_the_interpreter_fails(
    monkeypatch: pytest.MonkeyPatch, failures: int, is_parsed: bool
) -> None:
    """In Python 3.11, another thread that parses can cause this for any source."""
    left = ["AST constructor recursion depth mismatch"] * failures

    def parsing(*arguments: Any, **options: Any) -> Any:
        if left:
            raise SystemError(left.pop())
        return compile(*arguments, **options)

    monkeypatch.setattr(python_source, "compile", parsing, raising=False)
    assert (PythonParser().parse("x = 1") is not None) is is_parsed
    assert not left
