"""Properties of reading replies that should be plain text, whatever a model writes."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlm._util import python_source
from rlm.engine.plain_replies import read_plain, read_submission
from rlm.messages import Reply

VARIABLES = ("rows", "total", "names", "best", "x")

pieces = st.sampled_from(
    [
        *("```", "````", "~~~", "```repl\n", "```python ", "\n", "\n\n", " ", "    ", "> "),
        *("FINAL(", "FINAL_VAR(", "Final Answer: ", "x", "rows", "'", '"', '"""', ")", "("),
        *("answer", "['content']", " = ", "{", "}", "f'{x}'", "print(", "for r in rows:", "if "),
        *("<tool_call>", "[TOOL_CALLS]", "<function=", "execute_python", '{"code": "x"}', "to="),
        *("<｜tool▁call▁begin｜>", "<|channel|>", "<|message|>", "<|python_tag|>", "Action: "),
        *("<parameter=code>", "<code>", "</code>", "Code: ", "`", "Let me ", ". ", "- "),
        *("<think>", "</think>", "\\d", "é", "1", "\ufeff", "\u200b", "\r\n", "\t", "lambda "),
        *("\0", "[", "]", ":", ">>> ", "In [1]: "),
    ]
)


@settings(max_examples=400)
@given(st.lists(pieces, max_size=20).map("".join) | st.text(max_size=60))
@example("FINAL(\0)")
@example('{"name": ["execute_python"], "arguments": 1}')
@example('[{"function": {"name": 1, "arguments": []}}]')
def test_no_reply_makes_it_raise(text: str) -> None:
    plain = read_plain(Reply(text=text), VARIABLES)
    assert plain == read_plain(Reply(text=text), VARIABLES)
    read_submission(Reply(text=text))


WORDS = ["Ada", "Grace", "and", "the", "of", "three", "42", "Paris,", "is.", "was."]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS), min_size=1))
def test_prose_is_never_code(words: list[str]) -> None:
    assert not read_plain(Reply(text=" ".join(words)), VARIABLES).is_code


@settings(max_examples=100)
@given(st.lists(pieces, max_size=12).map("".join), st.integers(1, 200))
def test_work_is_linear_in_the_reply(text: str, times: int) -> None:
    sizes: list[int] = []

    def counting(source: str, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(source))
        return compile(source, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_source, "compile", counting, raising=False)
        read_plain(Reply(text=text * times), VARIABLES)
    assert sum(sizes) <= 8 * python_source.MAX_PARSED_CHARS
    assert len(sizes) <= 6_000 + len(text * times)
