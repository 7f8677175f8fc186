"""Replies that had to be plain text: code among them is read, looked up or questioned once."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm import RLM, Limits, RunResult, ScriptedClient
from rlm.engine.plain_replies import PlainReply, read_plain, read_submission
from rlm.messages import Reply, Request, ToolCall, Usage
from rlm.prompts import nudges

FIRST = "```repl\nrows = [1, 2]\nbest = 'Ada'\nprint('raw output')\n```"


def fenced(code: str, language: str = "repl") -> str:
    return f"```{language}\n{code}\n```"


async def ended(*replies: str, **more: Any) -> tuple[RunResult, list[Request]]:
    """A run of one step, which then has to answer at once."""
    client = ScriptedClient([FIRST, *replies])
    limits = Limits(max_steps=1, **more)
    async with RLM(client, limits=limits) as one:
        result = await one.aask("Who?", "text")
    return result, client.requests[1:]


LITERALS = {
    "a fence": fenced("FINAL('ok')"),
    "another fence": fenced("FINAL('ok')", "python"),
    "a bare fence": fenced("FINAL('ok')", ""),
    "tildes": "~~~py\nFINAL('ok')\n~~~",
    "an open fence": "```repl\nFINAL('ok')",
    "no fence": "FINAL('ok')",
    "a label": "Final Answer: ok",
    "after thinking": f"<think>I may run code.</think>\n{fenced('FINAL(1)')}\nFINAL('ok')",
    "SUBMIT": fenced("SUBMIT(answer='ok')"),
    "submit_answer": fenced("submit_answer('ok')"),
    "answer": fenced("answer['content'] = 'ok'\nanswer['ready'] = True"),
    "update": fenced("answer.update(content='ok', ready=True)"),
    "an answer in one": fenced("answer = {'content': 'ok', 'ready': True}"),
    "after other code": fenced("x = len(context)\nFINAL('ok')"),
    "a variable bound to a literal": fenced("mine = 'ok'\nFINAL(mine)"),
    "an f-string without values": fenced("FINAL(f'ok')"),
    "a literal that changes later": fenced("mine = 'ok'\nFINAL(mine)\nmine = 'no'"),
    "the last of two": fenced("if rows:\n    FINAL('no')\nFINAL('ok')"),
    "the last cell": fenced("FINAL('no')") + "\n" + fenced("FINAL('ok')"),
    "beside prose": f"I am done.\n{fenced('FINAL(chr(1))')}\n{fenced('FINAL(' + repr('ok') + ')')}",
    "a tool call as text": '<tool_call>{"name": "submit_answer", "arguments": {"answer": "ok"}}'
    "</tool_call>",
    "a fence around text": "```\nok\n```",
}


@pytest.mark.parametrize("reply", LITERALS.values(), ids=LITERALS)
async def test_a_literal_final_is_the_answer(reply: str) -> None:
    result, requests = await ended(reply)
    assert (result.answer, result.answer_source) == ("ok", "asked")
    assert len(requests) == 1


VARIABLES = {
    "FINAL_VAR": "FINAL_VAR(best)",
    "FINAL_VAR in a fence": fenced("FINAL_VAR('best')"),
    "FINAL": "FINAL(best)",
    "FINAL in a fence": fenced("print(best)\nFINAL(best)"),
    "a change after it": fenced("FINAL(best)\nbest = 'Bob'"),
    "wide brackets": "FINAL_VAR\uff08best\uff09",
    "a label": "FINAL_VAR: best",
    "an f-string": fenced("FINAL(f'{best}')"),
    "submit_answer": fenced("submit_answer(variable_name='best')"),
    "answer": fenced("answer['content'] = best; answer['ready'] = True"),
}


@pytest.mark.parametrize("reply", VARIABLES.values(), ids=VARIABLES)
async def test_a_final_with_a_variable_is_looked_up(reply: str) -> None:
    result, requests = await ended(reply)
    assert (result.answer, result.answer_source) == ("Ada", "asked")
    assert len(requests) == 1


CODE = {
    "an expression": fenced("FINAL(len(rows))"),
    "an expression in prose": "FINAL(len(rows))",
    "an f-string": fenced("FINAL(f'{best}!')"),
    "an f-string in prose": "FINAL(f'{best}!')",
    "an unknown variable": "FINAL_VAR(nothing)",
    "HTML": '<pre><code class="language-python">rows = [best]\nprint(len(rows))\n</code></pre>',
    "spaces that do not break": "for row in rows:\n\u00a0\u00a0\u00a0\u00a0print(best)",
    "typographic quotes": "print(best.find(\u201cAda\u201d))",
    "wide brackets": "FINAL\uff08len(rows)\uff09",
    "an unknown name": "FINAL(no_such_name)",
    "a variable that the code would change": fenced("rows.append(3)\nFINAL(rows)"),
    "under a condition": fenced("if rows:\n    FINAL('ok')"),
    "under a condition after a literal": fenced("FINAL('no')\nif rows:\n    FINAL(rows[0])"),
    "in a loop after a literal": fenced(
        "answer['content'] = 'no'\nfor r in rows:\n    answer['content'] = r\n"
        "answer['ready'] = True"
    ),
    "a variable that a print changes": fenced("print(best := 'Bob')\nFINAL(best)"),
    "a variable that is imported": fenced("from names import best\nFINAL(best)"),
    "a variable that is a function": fenced("def best(): ...\nFINAL(best)"),
    "a literal that text changes": fenced("mine = 'no'\nexec('mine = 2')\nFINAL(mine)"),
    "a literal that a dict changes": fenced("mine = 'no'\nlocals().update(mine=2)\nFINAL(mine)"),
    "a list that changes before it is read": fenced(
        "answer['content'] = rows\nrows.append(3)\nanswer['ready'] = True"
    ),
    "a literal that changes before it is read": fenced(
        "mine = [1]\nanswer['content'] = mine\nmine.append(2)\nanswer['ready'] = True"
    ),
    "an answer that changes": fenced("answer['content'] = [1]\nanswer['content'].append(2)"),
    "no submission": fenced("print(rows)"),
    "indented": "    import re\n    rows = re.findall('A', context)\n    print(rows)",
    "quoted": "> import re\n> rows = re.findall('A', context)\n> print(rows)",
    "a submission cut off": "FINAL('\\n'.join(f'{r}' for r in rows",
    "another fence": fenced("print(rows)", "python"),
    "no fence": "print(rows)",
    "a broken string": "```repl\nFINAL('ok",
    "prose that leads to code": f"Let me look:\n{fenced('print(rows)')}",
    "prose beside code": f"It is Ada, I think.\n{fenced('print(rows)')}",
    "a tool call as text": '<tool_call>{"name": "execute_python", "arguments": {"code": "x()"}}',
    "a condition in prose": "FINAL('yes' if rows else 'no')",
    "a comprehension in prose": "FINAL([r for r in rows])",
    "a fence around a fence": f"````markdown\n{fenced('print(rows)')}\n````",
    "a quoted fence": "> ```repl\n> print(rows)\n> ```",
    "code after a lead-in, without a fence": "Let me count.\n\nfor r in rows:\n    print(r)",
    "code after a lead-in": f"Let me look.\n{fenced('import os; print(os.listdir())', 'python')}",
    "code cut off": 'count = llm_query(f"How many',
    "a tool call in other markup": '<function=execute_python>{"code": "print(1)"}</function>',
    "a change of the variable that it names": f"{fenced('rows.append(3)')}\nFINAL_VAR(rows)",
    "a function": fenced("def find():\n    return best", "python"),
    "a special token": "<|python_start|>print(rows)<|python_end|>",
    "a call with escapes": "<start_function_call>call:execute_python{code:<escape>print(rows)"
    "<escape>}<end_function_call>",
    "an unknown tag": "<tool>print(rows)</tool>",
    "a tag that is not closed": "<run_code>print(rows)",
    "an action": "Thought: I should look.\nAction: print(rows)",
    "JSON": '{"python": "print(rows)"}',
    "JSON with a thought": '{"thought": "I look.", "code": "print(rows)"}',
    "JSON with a tool": '{"tool": "python", "code": "print(rows[:5])"}',
    "JSON with a name": '{"name": "functions.python", "code": "print(rows[:5])"}',
    "JSON with a language": '{"language": "python", "code": "print(rows)"}',
    "the line of a lead-in": "Let me check: print(rows[0])",
    "several lines in bold": "**x = 1\nprint(rows)**",
    "two statements after words": "The call is: import os; print(rows)",
    "bold after a lead-in": "**Let me check: print(rows)**",
    "bold in the tag of a tool": "<tool>**print(rows)**</tool>",
    "an action below a thought": "Thought: The rows matter.\nAction: print(rows)",
    "a function of the REPL after words": "The answer is in: llm_query(best)",
    "a submission in bold": "**The end: FINAL(len(rows))**",
    "a full stop of another script": "print(rows)。",
    "a comprehension cut off": "rows = [r for r in",
    "a magic": "%time print(rows)",
    "announced in Chinese": f"让我看看数据。\n{fenced('import os; print(os.listdir())', 'python')}",
    "announced in German": f"Schauen wir nach:\n{fenced('print(open(1).read())', 'python')}",
    "announced in French": f"Je vais regarder.\n{fenced('print(open(1).read())', 'python')}",
    "announced in Spanish": f"Vamos a ver.\n{fenced('print(open(1).read())', 'python')}",
}


@pytest.mark.parametrize("reply", CODE.values(), ids=CODE)
async def test_other_code_prompts_for_a_plain_answer_once(reply: str) -> None:
    result, requests = await ended(reply, "It is Ada.")
    assert (result.answer, result.answer_source) == ("It is Ada.", "asked")
    assert len(requests) == 2
    assert requests[1].messages[-1].content == nudges.NO_CODE_NOW
    assert requests[1].messages[-2].content == reply


@pytest.mark.parametrize("reply", CODE.values(), ids=CODE)
async def test_code_is_never_shown_as_an_answer(reply: str) -> None:
    result, requests = await ended(reply, reply, reply)
    assert len(requests) == 2
    if "It is Ada" in reply:
        assert (result.answer, result.answer_source) == ("It is Ada, I think.", "asked")
    else:
        assert (result.answer, result.answer_source) == ("raw output", "last_output")


FORMULAS = {
    "complexity": "O(n)",
    "a plural": "word(s)",
    "a number in brackets": "total (2)",
    "a formula": "n*(n-1)/2",
    "a comparison": "n > 3",
    "a remainder": "n % 2",
    "an equation": "total = word * (n - s)",
    "words": "word and total",
    "a word that Python has": "not total",
    "a quote that compares": "> n + 1",
    "a range in brackets": "total (1-3)",
}
CUT_OFF = ["FINAL(total (n, s", "Final answer: word [total"]


@pytest.mark.parametrize("reply", CUT_OFF)
async def test_an_answer_that_is_cut_off_counts_if_nothing_is_better(reply: str) -> None:
    text = reply.removeprefix("FINAL(").removeprefix("Final answer: ")
    for replies, answer in (((reply, reply), text), ((reply, "Three."), "Three.")):
        client = ScriptedClient([fenced(f"{NAMES}\nprint('raw output')"), *replies])
        async with RLM(client, limits=Limits(max_steps=1)) as one:
            result = await one.aask("Who?", "text")
        assert (result.answer, result.answer_source) == (answer, "asked")


NAMES = "n = 3\ntotal = 3\nword = 'Ada'\ns = 4"


@pytest.mark.parametrize("reply", FORMULAS.values(), ids=FORMULAS)
async def test_a_formula_over_names_of_variables_counts_if_it_is_repeated(reply: str) -> None:
    for replies, answer in (((reply, reply), reply), ((reply, "Three."), "Three.")):
        client = ScriptedClient([fenced(f"{NAMES}\nprint('raw output')"), *replies])
        async with RLM(client, limits=Limits(max_steps=1)) as one:
            result = await one.aask("Who?", "text")
        assert (result.answer, result.answer_source) == (answer, "asked")
        assert len(client.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        "len(s)",
        "print (total)",
        "total + 1",
        "rows[0]",
        "word.upper()",
        "await total",
        "n if total else word",
    ],
)
async def test_an_expression_that_python_can_compute_does_not_count(reply: str) -> None:
    client = ScriptedClient([fenced(f"{NAMES}\nrows = [1]\nprint('raw output')"), reply, reply])
    async with RLM(client, limits=Limits(max_steps=1)) as one:
        result = await one.aask("Who?", "text")
    assert (result.answer, result.answer_source) == ("raw output", "last_output")


TOLD = {
    "a sentence": "The line that leaks the password is: print(text)",
    "a method": "The failing call is: json.loads(text)",
    "the number of a line": "Line 14: rows.append(line)",
    "a fix": "Fix: rows.sort(key=len)",
    "a word": "Use: df.mean()",
    "an assignment": "The vulnerable line: result = eval(text)",
    "German": "Die fehlerhafte Zeile ist: rows.append(line)",
    "bold": "**text.strip()**",
    "quotes": '"text.strip()"',
    "single quotes": "'print(rows)'",
    "typographic quotes": "\u201ctext.strip()\u201d",
    "bold in a tag": "<b>**print(rows)**</b>",
    "a question with its answer": "Question: what prints it? Answer: print(result)",
    "the tag of an answer": "<answer>rows.append(line)</answer>",
}


@pytest.mark.parametrize("reply", TOLD.values(), ids=TOLD)
async def test_words_about_a_line_of_code_count_if_nothing_better_follows(reply: str) -> None:
    """The context may be a program that has the same names as the variables of the run."""
    setup = "import json\ntext = line = result = ''\nrows = []\ndf = None\nprint('raw output')"
    code = fenced("print(rows)")
    for replies, answer in (
        ((reply, reply), reply),
        ((reply, code), reply),
        ((reply, ""), reply),
        ((code, reply), reply),
        ((reply, "It is Ada."), "It is Ada."),
    ):
        client = ScriptedClient([fenced(setup), *replies])
        async with RLM(client, limits=Limits(max_steps=1)) as one:
            result = await one.aask("Who?", "text")
        assert (result.answer, result.answer_source) == (answer, "asked")
        assert len(client.requests) == 3


ABOUT_CODE = {
    "source": '{"file": "app.py", "line": 12, "source": "rows.append(line)"}',
    "input": '{"input": "sorted(rows)", "output": "[1, 2, 3]"}',
    "script": '{"language": "Python", "script": "print(text)"}',
    "code": '{"cause": "division by zero", "code": "print(text)", "fix": "check it"}',
    "command": '{"command": "print(rows)", "line": 3}',
    "a function with the name of ours": '{"function": "ask", "args": ["text"], "line": 3}',
    "a process with the name of ours": '{"name": "python", "args": ["a.py"], "line": 3}',
}
STRINGS = '{"type": "object", "additionalProperties": {"type": ["string", "integer", "array"]}}'


@pytest.mark.parametrize("reply", ABOUT_CODE.values(), ids=ABOUT_CODE)
async def test_json_that_says_more_than_code_is_the_answer(reply: str) -> None:
    setup = fenced("rows, text, line = [], '', ''\nprint('raw output')")
    for written in (reply, fenced(reply, "json")):
        for model in (None, json.loads(STRINGS)):
            client = ScriptedClient([setup, written])
            async with RLM(client, limits=Limits(max_steps=1)) as one:
                result = await one.aask("Who?", "text", response_model=model)
            assert result.answer == (reply if model is None else json.loads(reply))
            assert (result.answer_source, len(client.requests)) == ("asked", 2)


@pytest.mark.parametrize("key", ["source", "code", "input"])
async def test_json_of_the_type_that_is_wanted_is_the_answer(key: str) -> None:
    """Without a type, or with another one, the same reply is code."""
    reply = json.dumps({key: "rows.append(1)"})
    for model, answer, requests in (
        (dict[str, str], {key: "rows.append(1)"}, 2),
        (dict[str, int], None, 3),
        (str, "raw output", 3),
        (None, "raw output", 3),
    ):
        client = ScriptedClient([FIRST, reply, reply])
        async with RLM(client, limits=Limits(max_steps=1)) as one:
            result = await one.aask("Who?", "text", response_model=model)
        assert (result.answer, len(client.requests)) == (answer, requests)


async def test_the_second_reply_may_have_the_type_that_is_wanted() -> None:
    client = ScriptedClient([FIRST, fenced("print(rows)"), '{"code": "print(rows)"}'])
    async with RLM(client, limits=Limits(max_steps=1)) as one:
        result = await one.aask("Who?", "text", response_model=dict[str, str])
    assert result.answer == {"code": "print(rows)"}


async def test_without_a_budget_no_second_answer_is_requested() -> None:
    """The final call is paid from what was held back at the start; a second one is not."""
    step = Reply(text=FIRST, usage=Usage(requests=1, input_tokens=500, output_tokens=8_000))
    code = fenced("print(rows)")
    last = Reply(text=code, usage=Usage(requests=1, input_tokens=1_300, output_tokens=800))
    client = ScriptedClient([step, last, "never"])
    async with RLM(client, limits=Limits(max_steps=1, max_tokens=13_000)) as one:
        result = await one.aask("Who?", "text")
    assert (result.answer, result.answer_source) == ("raw output", "last_output")
    assert len(client.requests) == 2


TEXTS = {
    "a lambda": "lambda x: 2*x",
    "a lead-in to prose": "The answer is: Paris (France)",
    "bold prose": "**Ada (the first)**",
    "tags": "<b>total (2)</b>",
    "German": "Ich sehe zwei Zeilen: Ada und Bob.",
    "Chinese": "让我回答：总数是三。",
    "JSON with a command": '{"command": "ls -l"}',
    "typography": "She\u2019s called \u201cAda\u201d\u00a0(born 1815)\uff08see best\uff09.",
    "prose": "It is Ada.",
    "an explanation with code": "Use a set:\n```python\ndef unique(names): return set(names)\n```",
    "talk about FINAL": "A run ends with `FINAL(value)`.",
    "an equation": "total = 42",
    "a list": "- Ada\n- Grace",
    "SQL": "Run this query.\n```sql\nSELECT 1\n```",
    "a place": "Paris (France)",
    "quoted names with a sign between": "“Thriller” / “Bad”",
    "quoted names with another": '"Red" & "Blue"',
    "two quoted names, added": "“1984” + “Animal Farm”",
    "a command in HTML": (
        '<h2>Install</h2><p>Run this:</p>\n<pre><code class="language-bash">pip install best'
        "</code></pre>\n<p>Then restart.</p>"
    ),
    "SQL in HTML": '<pre><code class="language-sql">SELECT best FROM rows;</code></pre>',
    "output in HTML": "<pre><code>best: 5 items\nrows: 7</code></pre>",
}


@pytest.mark.parametrize("reply", TEXTS.values(), ids=TEXTS)
async def test_plain_text_is_unchanged(reply: str) -> None:
    result, requests = await ended(reply)
    assert (result.answer, len(requests)) == (reply, 1)


async def test_a_literal_of_the_right_type_is_a_typed_answer() -> None:
    client = ScriptedClient([FIRST, fenced("FINAL({'n': 2, 'm': 3})")])
    async with RLM(client, limits=Limits(max_steps=1)) as one:
        result = await one.aask("Who?", "text", response_model=dict[str, int])
    assert result.answer == {"n": 2, "m": 3}


BESIDE = {
    "It is Ada.\n```python\nprint(rows)\n```": "It is Ada.",
    "It is Ada.\n\nprint(rows)": "It is Ada.",
    "It is Ada. Let me check.\n\nfor r in rows:\n    print(r)": "It is Ada. Let me check.",
    "Let me check.\n```repl\nprint(rows)\n```": "",
    "Okay. I'll count them:\n```repl\nprint(rows)\n```": "",
}


@pytest.mark.parametrize(("reply", "beside"), BESIDE.items())
def test_what_stands_beside_code_is_kept_unless_it_only_leads_to_it(
    reply: str, beside: str
) -> None:
    plain = read_plain(Reply(text=reply), ("rows", "best"))
    assert (plain.text, plain.is_code) == (beside, True)


def test_native_tool_calls_are_read_as_plain_replies_too() -> None:
    def said(name: str, **arguments: Any) -> PlainReply:
        return read_plain(Reply(text="", tool_calls=(ToolCall("1", name, arguments),)))

    assert said("submit_answer", answer="ok") == PlainReply("ok")
    assert said("submit_answer", variable_name="best").variable == "best"
    assert said("execute_python", code="FINAL(3)") == PlainReply("3", "3")
    assert said("execute_python", code="print(3)") == PlainReply(is_code=True)
    assert said("unknown") == PlainReply(is_code=True)


# -- where there is no REPL ------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["FINAL('ok')", fenced("FINAL('ok')"), fenced("SUBMIT('ok')")])
@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
async def test_a_literal_final_is_the_answer_without_a_repl_too(reply: str, strategy: Any) -> None:
    async with RLM(ScriptedClient(rules=[("", reply)]), strategy=strategy) as one:
        result = await one.aask("Who?", "Ada is there.")
    assert (result.answer, result.stop_reason) == ("ok", "answer")


@pytest.mark.parametrize("reply", ["FINAL_VAR(best)", fenced("FINAL(len(rows))")])
async def test_other_submissions_prompt_for_a_plain_answer_once(reply: str) -> None:
    client = ScriptedClient([reply, "It is Ada."])
    async with RLM(client, strategy="direct") as one:
        result = await one.aask("Who?", "Ada is there.")
    assert (result.answer, len(client.requests)) == ("It is Ada.", 2)
    client = ScriptedClient([reply, reply, "never"])
    async with RLM(client, strategy="direct") as one:
        result = await one.aask("Who?", "Ada is there.")
    assert (result.answer, result.stop_reason, len(client.requests)) == (None, "error", 2)


async def test_requested_code_is_the_answer_of_a_direct_call() -> None:
    for reply in (fenced("def unique(names): return set(names)", "python"), "print(1)"):
        async with RLM(ScriptedClient([reply]), strategy="direct") as one:
            assert (await one.aask("Write it.", "text")).answer == reply


pieces = st.sampled_from(
    [
        "```",
        "```repl\n",
        "\n",
        "FINAL(",
        "FINAL_VAR(",
        "x",
        "'",
        '"',
        ")",
        "answer",
        "['content']",
        " = ",
        "{",
        "}",
        "f'{x}'",
        "<tool_call>",
        "<think>",
        "</think>",
        "print(",
        "\\d",
        "é",
        "1",
    ]
)


@given(st.lists(pieces, max_size=12).map("".join))
@example("FINAL('\\d')")
@example("```repl\nFINAL('\\N{BAD}')\n```")
def test_no_reply_raises_and_code_is_never_returned_as_text(text: str) -> None:
    plain = read_plain(Reply(text=text), ("x",))
    assert plain == read_plain(Reply(text=text), ("x",))
    if text.startswith("```repl\n") and text.count("```") == 2 and text.endswith("```"):
        assert "```repl" not in plain.text
    read_submission(Reply(text=text))
