"""The published names: context, calls, finals, tools, and what rebinding does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rlm.results import Submission
from rlm.worker.repl_names import REPL_NAMES

if TYPE_CHECKING:
    from tests.environments.conftest import Opener, Repl


async def test_every_published_name_is_there(repl: Repl) -> None:
    await repl.load([], "history")
    names = [entry.name for entry in REPL_NAMES]
    assert await repl.show(f"[n for n in {names!r} if n not in globals()]") == "[]"


async def test_common_modules_are_imported_but_do_not_count_as_user_variables(repl: Repl) -> None:
    assert await repl.show("Counter(re.findall('.', 'aab'))['a'], json.loads('[1]')") == "(2, [1])"
    assert await repl.show("math.pi > 3, defaultdict(list)['x']") == "(True, [])"
    assert await repl.show("SHOW_VARS()") == "(no variables yet)"
    assert list((await repl.run("re = 5\nfrom collections import Counter")).new_variables) == ["re"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "str"),
        (["a", {"b": 1}], "list"),
        ({"a": None}, "dict"),
        (b"\xff", "bytes"),
        (3, "int"),
    ],
)
async def test_the_context_has_its_python_type(repl: Repl, value: object, kind: str) -> None:
    await repl.load(value)
    assert await repl.show("type(context).__name__") == repr(kind)
    assert await repl.show("context") == repr(value)
    assert await repl.show("context is context_0 is P") == "True"


async def test_a_context_sent_in_chunks_arrives_complete(repl: Repl) -> None:
    text = "é😀x" * 3_000_000
    await repl.load(text)
    assert await repl.show("context == 'é😀x' * 3_000_000, lenP()") == "(True, 9000000)"


async def test_further_contexts_and_the_history_are_variables(repl: Repl) -> None:
    await repl.load("first")
    await repl.load("second", "context_1")
    await repl.load([{"role": "user"}], "history")
    assert (
        await repl.show("context, context_1, history") == "('first', 'second', [{'role': 'user'}])"
    )


async def test_peek_tail_and_ctx(repl: Repl) -> None:
    await repl.load("abc\ndef\n" * 1000)
    assert await repl.show("peek(3), tail(4), lenP(), len(peek()), len(tail()), tail(0)") == (
        "('abc', 'def\\n', 8000, 2000, 2000, '')"
    )
    assert await repl.show("ctx.slice(1, 3), ctx.find('def')[0], ctx.grep('d.f')[0]") == (
        "('bc', (4, 7, 'def'), '2: def')"
    )
    assert (
        await repl.show("ctx.chunk(5000)[1][:2], ctx.lines(1, 2)")
        == "((5000, 8000), ['abc', 'def'])"
    )


async def test_llm_query_and_its_aliases(repl: Repl) -> None:
    calls = ["'a'", "prompt='a'", "query='a'", "text='a'", "'a', 'small'", "'a', model='small'"]
    for arguments in calls:
        assert await repl.show(f"llm_query({arguments})") == "'re:a'"
    assert [asked[1]["model"] for asked in repl.host.asked] == [None] * 4 + ["small"] * 2
    assert repl.host.asked[0] == ("llm", {"model": None, "batched": False}, ["a"])
    assert (await repl.fail("llm_query('a', prompt='b')"))[0] == "TypeError"
    assert (await repl.fail("llm_query(text='a', query='b')"))[0] == "TypeError"
    assert (await repl.run("llm_query(5)")).calls == 1
    assert repl.host.prompts()[-1] == "5"


async def test_batches_keep_their_order_with_failures_in_place(repl: Repl) -> None:
    for spelling in ("llm_query_batched(['a', 'b'])", "llm_batch(queries=('a', 'b'))",
                     "llm_query_batched(texts=(x for x in 'ab'))"):  # fmt: skip
        assert await repl.show(spelling) == "['re:a', 're:b']"
    result = await repl.run(
        "r = llm_query_batched(['a', 'fail:no luck', 'a'])\nprint(r[1])\nr[1].reason"
    )
    assert result.stdout == "[call failed: no luck]\n'no luck'\n"
    assert result.calls == 3
    assert await repl.show(
        "[getattr(x, 'failed', False) for x in r], isinstance(r[1], FailedReply)"
    ) == ("([False, True, False], True)")


async def test_a_batch_of_a_thousand_is_sent_in_one_frame(repl: Repl) -> None:
    code = "ps = [f'p{i}' for i in range(1000)]\nllm_query_batched(ps) == ['re:' + p for p in ps]"
    result = await repl.run(code)
    assert result.stdout == "True\n"
    assert result.calls == 1000
    assert len(repl.host.asked) == 1


async def test_empty_batches_make_no_call_and_one_string_is_not_a_batch(repl: Repl) -> None:
    assert await repl.show("llm_query_batched([]), rlm_query_batched([]), map_query('q', [])") == (
        "([], [], [])"
    )
    assert (await repl.fail("llm_query_batched('abc')"))[0] == "TypeError"
    assert repl.host.asked == []


async def test_a_failed_or_refused_call_raises_in_the_cell(repl: Repl) -> None:
    assert await repl.fail("llm_query('fail:no luck')") == ("CallFailed", "no luck")
    assert await repl.fail("llm_query('refuse')") == ("CallFailed", "over the limit")
    assert await repl.fail("llm_query_batched(['refuse'])") == ("CallFailed", "over the limit")
    assert (
        await repl.show("try: llm_query('refuse')\nexcept CallFailed as e: print(e)")
        == "over the limit"
    )


async def test_a_prompt_too_large_for_a_frame_is_the_cells_error(repl: Repl) -> None:
    kind, message = await repl.fail("llm_query('x' * (65 << 20))")
    assert kind == "TooLarge"
    assert "are allowed" in message
    assert await repl.show("llm_query('a')") == "'re:a'"


async def test_rlm_query_sends_contexts_in_their_kind(repl: Repl) -> None:
    assert await repl.show("rlm_query('p')") == "'re:p'"
    assert await repl.show("rlm_query(query='p', chunk='c', model='m')") == "'re:p'"
    code = "rlm_query_batched(['p', 'q', 'fail:x'], contexts=['t', None, {'a': [1]}])"
    assert await repl.show(f"print(*{code})") == "re:p re:q [call failed: x]"
    one = {"model": None, "batched": False, "contexts": [None]}
    assert repl.host.asked == [
        ("rlm", one, ["p"]),
        ("rlm", {"model": "m", "batched": False, "contexts": [{"kind": "text"}]}, ["p", "c"]),
        (
            "rlm",
            {
                "model": None,
                "batched": True,
                "contexts": [{"kind": "text"}, None, {"kind": "json"}],
            },
            ["p", "q", "fail:x", "t", '{"a": [1]}'],
        ),
    ]
    assert (await repl.fail("rlm_query_batched(['p'], ['a', 'b'])"))[0] == "ValueError"
    assert (await repl.fail("rlm_query('p', context={1, 2})"))[0] == "TypeError"


async def test_llm_query_json_asks_at_most_twice(repl: Repl) -> None:
    replies = iter(["no json", 'Sure: {"a": 1}', "no", "no"])
    repl.host.reply = lambda prompt: next(replies)
    assert await repl.show("llm_query_json('q')") == "{'a': 1}"
    assert (await repl.fail("llm_query_json('q')"))[0] == "ValueError"
    assert len(repl.host.asked) == 4


async def test_map_query_asks_about_each_chunk(repl: Repl) -> None:
    await repl.load("abcdef")
    repl.host.reply = lambda prompt: prompt[-3:]
    assert await repl.show("map_query('What?', ctx.chunk(3))") == "['abc', 'def']"
    assert await repl.show("map_query(question='What?', chunks=['xyz'])") == "['xyz']"
    assert all(prompt.startswith("What?") for prompt in repl.host.prompts())


async def test_vote_and_budget(repl: Repl) -> None:
    assert await repl.show("vote(['a', 'b', 'B '])") == "'b'"
    assert await repl.show("budget()") == "{'calls': 7}"


async def test_tools_by_name_and_by_call_tool(repl: Repl) -> None:
    expected = "{'name': 'lookup', 'arguments': {'name': 'é', 'n': 1}}"
    for call in (
        "lookup(name='é', n=1)",
        "lookup({'name': 'é', 'n': 1})",
        "await lookup(name='é', n=1)",
        "call_tool('lookup', name='é', n=1)",
    ):
        assert await repl.show(call) == expected
    assert await repl.show("lookup.__name__, lookup.__doc__") == "('lookup', 'does lookup')"
    assert await repl.fail("broken()") == ("ToolFailed", "the tool is broken")
    assert await repl.show("lookup('a', 2, n=3)['arguments']") == "{'*': ['a', 2], 'n': 3}"
    assert await repl.show("lookup({'two words': 1})['arguments']") == "{'*': [{'two words': 1}]}"
    assert (await repl.fail("lookup(x=object())"))[0] == "TypeError"
    assert (await repl.run("lookup(x=1)")).calls == 0


FINALS = [
    ("FINAL('text')", "text", "FINAL", '"text"'),
    ("FINAL([1, 'é'])", "[1, 'é']", "FINAL", '[1, "é"]'),
    ("FINAL({1, 1})", "{1}", "FINAL", "[1]"),
    ("FINAL(1j)", "1j", "FINAL", None),
    ("FINAL(float('nan'))", "nan", "FINAL", None),
    ("FINAL(None)", "None", "FINAL", "null"),
    ("FINAL(1); FINAL(2)", "2", "FINAL", "2"),
    ("x = 5; FINAL_VAR('x')", "5", "FINAL_VAR", "5"),
    ("x = 5; FINAL_VAR(' \"x\" ')", "5", "FINAL_VAR", "5"),
    ("x = 5; FINAL_VAR(x)", "5", "FINAL_VAR", "5"),
    ("x = 'Paris'; FINAL_VAR(x)", "Paris", "FINAL_VAR", '"Paris"'),
    ("x = 'two words'; FINAL_VAR(x)", "two words", "FINAL_VAR", '"two words"'),
    ("answer = 'mine'; FINAL_VAR(answer)", "mine", "FINAL_VAR", '"mine"'),
    ("answer = 42; FINAL_VAR('answer')", "42", "FINAL_VAR", "42"),
    ("answer['content'] = 'c'; FINAL_VAR('answer')", "c", "FINAL_VAR", '"c"'),
    ("SUBMIT('s')", "s", "SUBMIT", '"s"'),
    ("SUBMIT(answer='s')", "s", "SUBMIT", '"s"'),
    ("v = 1; SUBMIT(variable_name='v')", "1", "SUBMIT", "1"),
    ("submit_answer('s')", "s", "submit_answer", '"s"'),
    ("v = 'w'; submit_answer(variable_name='v')", "w", "submit_answer", '"w"'),
    ("v = 'w'; submit_answer(answer=None, variable_name='v')", "w", "submit_answer", '"w"'),
    ("answer['content'] = 'c'; answer['ready'] = True", "c", "answer", '"c"'),
    ("answer['ready'] = True; answer['content'] = 3", "3", "answer", "3"),
    ("answer.update(content='c', ready=1)", "c", "answer", '"c"'),
    ("answer |= {'content': 'c', 'ready': True}", "c", "answer", '"c"'),
    ("answer = {'content': 'c', 'ready': True}", "c", "answer", '"c"'),
    ("answer.update(content='c', ready=1); FINAL('f')", "f", "FINAL", '"f"'),
]


async def test_every_way_to_submit_an_answer(repl: Repl) -> None:
    for code, text, how, json in FINALS:
        await repl.run("answer = {'content': '', 'ready': False}; after = None")
        result = await repl.run(code + "\nafter = 1")
        assert result.error is None, result.error.traceback
        assert result.submission == Submission(text, how, json), code
        assert "after" in result.changed_variables


async def test_assignments_that_do_not_submit_an_answer(repl: Repl) -> None:
    for code in (
        "answer['ready'] = True",
        "answer.update(content='x', ready=False)",
        "answer = 'value'",
    ):
        result = await repl.run(code)
        assert result.submission is None
    assert "answer" in result.new_variables
    assert (await repl.run("FINAL('x')")).submission is not None
    assert (await repl.run("pass")).submission is None


async def test_answer_content_is_reported(repl: Repl) -> None:
    assert (await repl.run("pass")).answer_content is None
    assert (await repl.run("answer['content'] = 'draft \\ud800'")).answer_content == "draft \ud800"


async def test_submitting_the_answer_dict_submits_its_content(repl: Repl) -> None:
    kind, message = await repl.fail("FINAL_VAR('answer')")
    assert (kind, "no content yet" in message) == ("ValueError", True)
    assert await repl.session.fetch("answer") is None
    result = await repl.run("answer['content'] = 'x'\nFINAL_VAR(answer)")
    assert result.submission is not None
    assert result.submission.text == await repl.session.fetch("answer") == "x"
    await repl.run("answer = {'a': 1}")
    assert await repl.session.fetch("answer") == "{'a': 1}"


async def test_an_unknown_variable_is_reported_with_the_known_ones(repl: Repl) -> None:
    await repl.run("total = 1; rows = []")
    kind, message = await repl.fail("FINAL_VAR('totl')")
    assert kind == "NameError"
    assert "total, rows" in message


async def test_wrong_final_arguments_are_type_errors(repl: Repl) -> None:
    for call in ("SUBMIT()", "submit_answer('a', answer='b')", "FINAL()"):
        assert (await repl.fail(call))[0] == "TypeError"


async def test_an_oversized_answer_is_an_error_in_the_cell(open_repl: Opener) -> None:
    repl = await open_repl(max_submission_chars=100)
    for code in ("FINAL('x' * 101)", "answer.update(content='x' * 101, ready=True)"):
        result = await repl.run(code)
        assert result.error is not None
        assert result.error.type == "ValueError"
        assert result.submission is None


async def test_the_largest_allowed_answer_can_be_sent(repl: Repl) -> None:
    result = await repl.run("a = '\\U0001f600' * 10**7\nanswer['content'] = a\nFINAL(a)")
    assert result.error is None
    assert result.submission is not None
    assert len(result.submission.text) == 10**7


async def test_a_submission_before_an_error_is_kept(repl: Repl) -> None:
    result = await repl.run("FINAL('x')\n1/0")
    assert result.error is not None
    assert result.submission is not None


async def test_an_answer_without_a_text_form_is_an_error_in_the_cell(repl: Repl) -> None:
    code = "class B:\n    def __str__(self): 1/0\nanswer['content'] = B(); answer['ready'] = True"
    assert (await repl.fail(code))[0] == "ZeroDivisionError"


async def test_call_functions_finals_and_tools_are_restored(repl: Repl) -> None:
    await repl.load("original")
    names = [entry.name for entry in REPL_NAMES if entry.restored] + ["lookup"]
    await repl.run("\n".join(f"{name} = 'rebound'" for name in names) + "\nprint(llm_query)")
    assert await repl.show(f"[n for n in {names!r} if globals()[n] == 'rebound']") == "[]"
    await repl.run("del llm_query, FINAL")
    assert await repl.show("context_0, llm_query('a')") == "('original', 're:a')"


async def test_a_cell_cannot_break_builtins_for_the_next(repl: Repl) -> None:
    for code in ("__builtins__ = None", "del __builtins__", "globals().clear()", "__name__ = 1"):
        await repl.run(code)
        assert await repl.show("len('abc'), __name__") == "(3, '__main__')"


async def test_other_rebound_names_keep_the_users_value(repl: Repl) -> None:
    await repl.load("original")
    names = ["context", "answer", "P", "ctx", "peek", "tail", "budget", "vote", "history"]
    result = await repl.run("\n".join(f"{name} = 'rebound'" for name in names))
    assert set(result.new_variables) == set(names)
    assert await repl.show(f"[n for n in {names!r} if globals()[n] != 'rebound']") == "[]"
    assert await repl.show("context_0") == "'original'"
