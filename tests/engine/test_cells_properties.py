"""What holds for every reply, whatever a model writes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm._util import python_source
from rlm._util.python_source import names_used
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

any_text = st.text(st.characters(exclude_categories=()), max_size=200)
"""Any code points, NUL and lone surrogates included."""

pieces = st.sampled_from(
    [
        *(
            "```python\n",
            "```repl\n",
            "```\n",
            "\n```\n",
            "~~~\n",
            "````py\n",
            "  ```python\n",
            "```",
        ),
        *("<think>", "</think>", "\n</think>\n", "<THINKING>", '"</think>"'),
        *("FINAL(", "\nFINAL(", "\nFINAL: ", "\nFINAL_VAR: x", "\n**Final Answer:** ", "SUBMIT("),
        *("### Final Answer\n", "`FINAL(x)`", "FINAL_VAR(", "\n- FINAL('", ")", "\n)\n"),
        *(
            "x = 1\n",
            "print(f('a'))\n",
            "s = '''\n",
            "'''\n",
            "    y = 2\n",
            "import re\n",
            "if x:\n",
        ),
        *("Some prose. ", "don't ", "(", "]", '"', "'", '"""', "\\", "\\N{", "1if x", "\r\n", "\n"),
        *("\0", "\ud800", "é", "42", "1,234.50", " ", "\t", "**", "# ", "> ", "1. "),
    ]
)
replies = st.lists(pieces | any_text, max_size=30).map("".join)

fence_free = st.text(st.characters(exclude_characters="`~<", codec="utf-8"), max_size=80)
prose = fence_free.filter(lambda text: "final" not in text.lower() and "submit" not in text.lower())

statements = st.sampled_from(
    [
        "x = 1",
        "print(x)",
        "",
        "for i in range(3):\n    print(i)",
        "s = '''\n  indented\n\n   \n'''",
        "await f(1)  # ```",
        "t = '<think>' + \"</think>\"",
        "FINAL(x)",
        "r = re.findall('\\d+', context)",
        "if x:\n\tpass",
    ]
)
programs = st.lists(statements, min_size=1, max_size=6).map("\n".join).filter(str.strip)

string_lines = st.sampled_from(["```", "```python", "text", "```json", "  ```", "````", "~~~", ""])
programs_with_fences = st.lists(string_lines, max_size=6).map(
    lambda lines: "s = '''\n" + "\n".join(lines) + "\n'''\nprint(s)"
)

words = st.text(st.characters(exclude_characters="()\"'`~<\\", codec="utf-8"), max_size=12)
balanced = st.recursive(
    words | st.sampled_from(['"a) b"', "'(('", '"""\n)"""', "it's", "[", "}"]).map(" {} ".format),
    lambda inner: st.lists(inner.map("({})".format) | inner, max_size=4).map("".join),
    max_leaves=12,
)


@settings(max_examples=400)
@given(replies | any_text)
def test_no_text_makes_it_raise(text: str) -> None:
    actions = parse_reply(text)
    assert all(cell.code.strip() for cell in actions.cells)
    if actions.final is not None:
        assert actions.final.text == actions.final.text.strip() or "'" in text or '"' in text
    assert len(strip_thinking(text)) <= len(text)
    assert isinstance(names_used(text), frozenset)
    assert final_is_supported(text, text)


@settings(max_examples=300)
@given(replies)
def test_parsing_is_deterministic_and_ignores_thinking(text: str) -> None:
    assert parse_reply(text) == parse_reply(text)
    assert parse_reply(f"<think>{text.replace('</', '')}") == Actions()


@settings(max_examples=300)
@given(
    prose, programs, prose, st.sampled_from(["```python", "```repl", "~~~py", "````python3 a=1"])
)
def test_fenced_code_comes_back_exactly(before: str, code: str, after: str, fence: str) -> None:
    mark = fence.rstrip("abcdefghijklmnopqrstuvwxyz0123456789= ")
    text = f"{before}\n{fence}\n{code}\n{mark}\n{after}"
    assert parse_reply(text) == Actions((Cell(code),))


@settings(max_examples=300)
@given(programs_with_fences, st.sampled_from(["```", "~~~", "````", "`````"]))
def test_code_with_fences_in_strings_comes_back_exactly(code: str, mark: str) -> None:
    assert parse_reply(f"{mark}python\n{code}\n{mark}\nDone.") == Actions((Cell(code),))


@settings(max_examples=300)
@given(programs, st.text(" \t", min_size=1, max_size=6))
def test_indented_fences_are_dedented(code: str, margin: str) -> None:
    lines = ["```python", *code.split("\n"), "```"]
    text = "\n".join(margin + line for line in lines)
    assert parse_reply(text) == Actions((Cell(code),))


@settings(max_examples=400)
@given(balanced, prose)
def test_balanced_finals_come_back_exactly(text: str, after: str) -> None:
    expected = text.strip()
    if not expected or expected[0] in "\"'":
        return
    actions = parse_reply(f"I am done.\n\nFINAL({text})\n{after}")
    assert actions.cells == ()
    assert actions.final is not None
    assert (actions.final.kind, actions.final.text) == ("value", expected)


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_quoted_finals_mean_their_value(text: str) -> None:
    assert parse_reply(f"Done:\nFINAL({text!r})").final == Final("value", text)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["a", "b c", "f(x)", "'q'"]), min_size=1, max_size=20), prose)
def test_the_last_final_wins(earlier: list[str], between: str) -> None:
    lines = [f"FINAL({text})\n{between}" for text in earlier]
    assert parse_reply("\n".join(["So:", *lines, "FINAL_VAR(last)"])).final == Final(
        "variable", "last"
    )


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["execute_python", "submit_answer", "other"]),
            st.dictionaries(
                st.sampled_from(["code", "answer", "variable_name"]),
                st.none() | st.integers() | replies | st.lists(st.floats()),
            ),
        ),
        max_size=4,
    )
)
def test_no_tool_call_makes_it_raise(calls: list[tuple[str, dict[str, Any]]]) -> None:
    actions = parse_tool_calls(tuple(ToolCall("id", name, args) for name, args in calls))
    assert len(actions.cells) >= sum(
        name == "execute_python"
        and isinstance(args.get("code"), str)
        and bool(args["code"].strip())
        for name, args in calls
    )


@settings(max_examples=200)
@given(st.lists(pieces, max_size=12).map("".join), st.integers(1, 40))
def test_parsing_work_is_linear_in_the_length_of_the_reply(text: str, times: int) -> None:
    sizes: list[int] = []

    def counting(source: str, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(source))
        return compile(source, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_source, "compile", counting, raising=False)
        parse_reply(text * times)
    fences = min((text * times).count("```") + (text * times).count("~~~"), cells.MAX_FENCE_LINES)
    assert len(sizes) <= 2 * fences * (cells.MAX_CLOSING_FENCES + 2) + 2
    assert sum(sizes) <= 2 * python_source.MAX_PARSED_CHARS
