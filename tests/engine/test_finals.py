"""Finals written as prose, and whether the output bears them out."""

import pytest

from rlm.engine.cells import Final, final_is_supported, parse_reply


def final(text: str) -> Final | None:
    return parse_reply(text).final


def value(text: str, *, maybe_name: bool = False) -> Final:
    return Final("value", text, maybe_name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FINAL(42)", "42"),
        ("FINAL( 42 )", "42"),
        ("FINAL (42)", "42"),
        ("FINAL(a (b [c)] (d))", "a (b [c)] (d)"),
        ("FINAL(line one\nline (two)\n)", "line one\nline (two)"),
        ("FINAL(one\r\ntwo)", "one\r\ntwo"),
        ('FINAL("a) b")', "a) b"),
        ("FINAL('''a) \"b\"\nc''')", 'a) "b"\nc'),
        ('FINAL("""a)\nb""")', "a)\nb"),
        ('FINAL("a\\nb\\t\\"c\\"")', 'a\nb\t"c"'),
        ('FINAL("C:\\dir")', "C:\\dir"),
        ('FINAL("C:\\users")', "C:\\users"),
        ('FINAL(r"\\n")', "\\n"),
        ('FINAL("""a\\tb\r\nc""")', "a\tb\r\nc"),
        ('FINAL("one "\n"two")', "one two"),
        ('FINAL("Alice" and "Bob")', '"Alice" and "Bob"'),
        ('FINAL(f"{x}")', 'f"{x}"'),
        ("FINAL(f(x) + 1)", "f(x) + 1"),
        ("FINAL(f'a) {x}')", "f'a) {x}'"),
        ("FINAL(don't stop) more\nIt's (fine)", "don't stop"),
        ("FINAL(the '90s) and it's", "the '90s"),
        ('FINAL(5" pipe) and 6" (pipe)', '5" pipe'),
        ('FINAL(say "hi) there', 'say "hi'),
        ("FINAL(unbalanced (text\nto the end", "unbalanced (text\nto the end"),
        ('FINAL("")', ""),
        ("SUBMIT(it is 5)", "it is 5"),
        ('submit_answer("x y")', "x y"),
        ('submit_answer(answer="x y")', "x y"),
        ("  FINAL(1)", "1"),
        ("- FINAL(1)", "1"),
        ("* FINAL(1)", "1"),
        ("3. **FINAL(1)**", "1"),
        ("## FINAL(1)", "1"),
        ("> FINAL(1)", "1"),
        ("`FINAL(1)`", "1"),
        ("FINAL: a b\nc\n", "a b\nc"),
        ("**FINAL**: a b", "a b"),
        ("FINAL: “a”, (b", "“a”, (b"),
        ("Final Answer: 42.\n\nBecause.", "42.\n\nBecause."),
        ("final answer: a b", "a b"),
        ("FINAL ANSWER: a b", "a b"),
        ("**Final Answer:** a b", "a b"),
        ("**Final Answer:**a b", "a b"),
        ("**Final Answer**: a b", "a b"),
        ("**Final Answer: a b**\nMore", "a b\nMore"),
        ("Final Answer: **a** b", "**a** b"),
        ("### Final Answer\n\na b\nc", "a b\nc"),
        ("**Final Answer**\na b", "a b"),
        ("### Final Answer: a b", "a b"),
        ("Final Answer: FINAL(a b)", "a b"),
        ("Final Answer:\n```json\n[1]\n```", "[1]"),
        ("Final Answer: see\n```json\n[1]\n```", "see\n```json\n[1]\n```"),
        ("FINAL(one)\nFINAL(two words)\nrest", "two words"),
        ("FINAL(one (\nFINAL(2)", "2"),
        ("Final Answer: x y\nFINAL()", "x y\nFINAL()"),
        ("FINAL(one\nFINAL(two) three)\nrest", "one\nFINAL(two) three"),
    ],
)
def test_finals_with_literal_values(text: str, expected: str) -> None:
    assert final(text) == value(expected)


@pytest.mark.parametrize(
    "text", ["FINAL(result)", "FINAL: result", "Final Answer: result", "SUBMIT( result )"]
)
def test_a_bare_identifier_may_name_a_variable(text: str) -> None:
    assert final(text) == value("result", maybe_name=True)


@pytest.mark.parametrize("text", ["FINAL(None)", "FINAL(True)", 'FINAL("result")', "FINAL(a.b)"])
def test_keywords_quoted_words_and_expressions_are_not_variable_names(text: str) -> None:
    found = final(text)
    assert found is not None
    assert not found.maybe_name


@pytest.mark.parametrize(
    "text",
    [
        "FINAL_VAR(name)",
        'FINAL_VAR("name")',
        "FINAL_VAR('name')",
        "FINAL_VAR(`name`)",
        "FINAL_VAR(```name\n```\n",
        "FINAL_VAR: name",
        "FINAL_VAR: `name`.",
        "**FINAL_VAR:** name\nThat is all.",
        "FINAL_VAR:\nname",
        'submit_answer(variable_name="name")',
    ],
)
def test_finals_that_name_a_variable(text: str) -> None:
    assert final(text) == Final("variable", "name")


@pytest.mark.parametrize(
    "text",
    [
        "The FINAL answer is 42",
        "The answer: FINAL(42)",
        "FINALLY: done",
        "Now FINALS(3) begin",
        "\\boxed{42}",
        "FINAL()",
        "FINAL:",
        "FINAL_VAR()",
        "Final Answer",
        "Final Answer\n42",
        "`FINAL(x)` ends the run.",
        "final(42) it is",
    ],
)
def test_text_without_a_final(text: str) -> None:
    assert final(text) is None


def test_a_leading_underscore_belongs_to_the_name() -> None:
    assert final("FINAL_VAR: _rows") == Final("variable", "_rows")


@pytest.mark.parametrize(
    ("text", "printed", "expected"),
    [
        ("It is Paris", "", True),
        ("42", "total 42", True),
        ("42", "total 420", False),
        ("1,234", "1234", True),
        ("1234", "sum: 1,234.00", True),
        ("2.50", "2.5", True),
        ("1, 2 and 3", "[1,2,3]", True),
        ("100,200", "[100, 200]", True),
        ("3 of 4", "3", False),
        ('the code is "XK-Q"', "Code: xk-q", True),
        ('the code is "XK-Q."', "Code: xk-q", True),
        ("the code is 'abc'", "abd", False),
        ("it's Bob's", "", True),
        ("“Smith,  John”", "smith john", True),
    ],
)
def test_a_final_is_supported_if_its_value_was_printed(
    text: str, printed: str, expected: bool
) -> None:
    assert final_is_supported(text, printed) is expected
