"""Which replies to "answer now" are code for the REPL, and which are answers, even about code."""

import pytest

from rlm.engine.plain_replies import read_plain
from rlm.messages import Reply

VARIABLES = ("rows", "total", "names", "best", "helper")

CODE = [
    "FINAL('yes' if rows else 'no')",
    "FINAL([r for r in rows])",
    "FINAL((total, names))",
    "FINAL(total > 2)",
    "FINAL(answer=total)",
    "FINAL(json.dumps(rows))",
    "````markdown\n```repl\nprint(len(rows))\n```\n````",
    "\ufeff```repl\nprint(len(rows))\n```",
    "```python print(len(rows))```",
    "`print(len(rows))`",
    ">>> print(len(rows))",
    "Let me count them.\n\nfor r in rows:\n    print(r)",
    "Final Answer:\nfor r in rows:\n    print(r)",
    'I set it:\n\nanswer["content"] = str(len(rows))\nanswer["ready"] = True',
    "Let me look.\n```python\nimport os\nprint(os.listdir())\n```",
    "> ```repl\n> print(rows)\n> ```",
    'count = llm_query(f"How many',
    "<|python_tag|>print(len(rows))",
    '[TOOL_CALLS][{"name":"execute_python","arguments":{"code":"print(1)"}}]',
    '{"name":"execute_python","arguments":{"code":"print(1)"}}',
    '<function=execute_python>{"code":"print(1)"}</function>',
    "```repl\nrows.append(3)\n```\nFINAL_VAR(rows)",
    "```code\nprint(rows)\n```",
    "```python-repl\n>>> print(rows)\n```",
    "```python_repl\nprint(rows)\n```",
    "```jupyter\nprint(rows)\n```",
    "```language-python\nprint(rows)\n```",
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>e"
        'xecute_python\n```json\n{"code": "print(1)"}\n```<｜tool▁call▁en'
        "d｜><｜tool▁calls▁end｜>"
    ),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>execute_python<｜tool▁"
        'sep｜>{"code": "print(1)"}<｜tool▁call▁end｜>'
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.exe"
        'cute_python:0<|tool_call_argument_begin|>{"code": "print(1)"'
        "}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    (
        "<|start|>assistant<|channel|>commentary to=functions.execute"
        '_python <|constrain|>json<|message|>{"code":"print(1)"}<|cal'
        "l|>"
    ),
    "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
    "Action: execute_python\nAction Input: print(len(rows))",
    'Thought: look\nAction: execute_python\nAction Input: {"code": "print(1)"}',
    "Action: search\nAction Input: rows",
    (
        "<tool_call>\n<function=execute_python>\n<parameter=code>\nprint"
        "(1)\n</parameter>\n</function>\n</tool_call>"
    ),
    (
        "<tool_call>execute_python\n<arg_key>code</arg_key>\n<arg_value"
        ">print(1)</arg_value>\n</tool_call>"
    ),
    (
        '<function_calls><invoke name="execute_python"><parameter nam'
        'e="code">print(1)</parameter></invoke></function_calls>'
    ),
    '[TOOL_CALLS]execute_python[ARGS]{"code": "print(1)"}',
    'execute_python(code="print(1)")',
    '[execute_python(code="print(1)")]',
    '[{"name":"execute_python","parameters":{"code":"print(1)"}}]',
    '```json\n{"name":"execute_python","arguments":{"code":"print(1)"}}\n```',
    '{"tool":"python","input":"print(1)"}',
    "Let me count them:\nfor r in rows:\n    print(r)",
    "1. print(len(rows))",
    "print(rows[:k])",
    "import os\nprint(os.listdir())",
    "FINAL(len(rows))",
    "FINAL(rows[0])",
    "FINAL(f'{best}!')",
    "FINAL(*rows)",
    "FINAL(rows, total)",
    "FINAL('Count: ' + str(total))",
    "FINAL('%d' % total)",
    "FINAL(', '.join(names))",
    "FINAL({'a': total})",
    "FINAL(-total)",
    "FINAL(not rows)",
    "FINAL(rows or names)",
    "FINAL(x := 3)",
    "FINAL(np.mean(rows))",
    "FINAL(lambda: 1)",
    "len(rows)",
    "rows[0]",
    "f'{best}!'",
    "[r for r in rows]",
    "print(len(rows)",
    "for r in rows:",
    "results = []\nfor r in rows:\n    results.append(llm_query(",
    "rows.append(3)",
    "Let me run `print(len(rows))`.",
    "<code>print(len(rows))</code>",
    "<python>\nprint(len(rows))\n</python>",
    "Code: print(len(rows))",
    "In [3]: print(len(rows))",
    "~~~repl\nprint(1)\n~~~",
    "```repl\nprint(1)",
    "    print(len(rows))",
    "```\nprint(len(rows))\n```",
    "The code:\n\nwith open('x') as f:\n    print(llm_query(f.read()))\n\nI will run it.",
    "```python\nrows = [r for r in rows if r]\nprint(rows)\n```",
    "Sure.\n```py\nif rows:\n    rows = rows[1:]\n```",
    "x = SHOW_VARS()",
    "SHOW_VARS()",
    "print(context[:500])",
    (
        "chunks = [context[i:i+100] for i in range(0, len(context), 1"
        "00)]\nouts = llm_query_batched(chunks)"
    ),
    "FINAL(",
    "FINAL(len(rows",
    "I need to check.\n\nprint(context[:100])",
    "```repl\nrows.append(3)\n```\nFINAL(rows)",
    "```python\nadd_row()\n```\nFINAL_VAR(rows)",
    "```repl\nprint(rows.pop())\nFINAL(rows)\n```",
    "```repl\nrows = []\nrows.append(1)\nFINAL(rows)\n```",
    "```repl\nrows.sort()\n```\n```repl\nFINAL_VAR('rows')\n```",
    "**Final Answer:** len(rows)",
    "Final Answer: `print(len(rows))`",
    "```markdown\n```repl\nprint(rows)\n```\n```",
    "\ufeffprint(len(rows))",
    "```{.python}\nprint(rows)\n```",
    "count = len(rows)",
    "await llm_query('x')",
    "x = await llm_query('x')",
    "result = 5\nprint(result)",
    "FINAL(rows if rows else 'none')",
    "FINAL({r: 1 for r in rows})",
    "FINAL(sum(r for r in rows))",
    "FINAL(max(rows, key=lambda r: r))",
    "FINAL(str(total) + ' rows')",
    'FINAL(f"{total:,}")',
    "FINAL(rows[-1]['name'])",
    "FINAL(rows == names)",
    "FINAL(total in rows)",
    "FINAL(total and names)",
    "FINAL([total])",
    "FINAL({'n': total, 'm': len(rows)})",
    "FINAL(value=len(rows))",
    "FINAL(content=f'{total}')",
    "FINAL(answer=[r for r in rows])",
    "FINAL(os.path.basename(rows[0]))",
    "FINAL(Counter(rows).most_common(1))",
    "FINAL(\n  len(rows)\n)",
    "FINAL(\n    [r for r in rows\n     if r]\n)",
    "SUBMIT(len(rows))",
    "submit_answer(len(rows))",
    "FINAL(llm_query('x'))",
    "FINAL(helper(rows))",
    "FINAL(best.name)",
    "FINAL(~total)",
    "FINAL(await llm_query('x'))",
    "`FINAL(len(rows))`",
    "**FINAL(len(rows))**",
    "The answer: FINAL(len(rows))",
    "FINAL(len(rows))\n\nThat is it.",
    "I'm done.\n\nFINAL(len(rows))",
    "````\n```repl\nprint(rows)\n```\n````",
    "~~~~md\n~~~repl\nprint(rows)\n~~~\n~~~~",
    "````markdown\nSome text:\n\n```python\nprint(rows)\n```\n````",
    "\u200b```repl\nprint(1)\n```",
    "\ufeff\ufeffprint(rows)",
    "```python print(rows)\n```",
    "```repl print(rows)```",
    "``print(len(rows))``",
    "`print(len(rows))`.",
    ">>> for r in rows:\n...     print(r)",
    "> >>> print(rows)",
    "In [1]: rows\nIn [2]: print(rows)",
    "First, count:\n\n    for r in rows:\n        print(r)",
    "Sure! print(rows)",
    "Let me check `len(rows)`.",
    "Answer:\nprint(len(rows))",
    "Answer: print(len(rows))",
    "Final Answer: print(len(rows))",
    "**Final Answer:**\n```python\nprint(len(rows))\n```",
    "Final Answer: [r for r in rows]",
    "The final answer is:\n\nFINAL(len(rows))",
    "import re\nm = re.findall('a', context)\nprint(m)",
    "Let me compute.\n```python\nn = 5\nprint(n)\n```",
    "I need to see it first.\n\n```\nimport os\nprint(os.getcwd())\n```",
    "Let's see:\n\n```python3\nprint(1)\n```",
    "Now I will run:\n```py\nprint(1)\n```",
    (
        'I\'ll use the tool.\n<tool_call>{"name": "execute_python", "ar'
        'guments": {"code": "print(1)"}}</tool_call>'
    ),
    'for i, r in enumerate(rows):\n    out = llm_query(f"Classify {r',
    'results = [llm_query(f"x {r}") for r in ro',
    'print(f"Total: {tot',
    "total = sum(len(r) for r in rows",
    "```repl\nfor r in rows:\n    print(",
    'answer["content"] = f"There are {tot',
    'answer["content"] =',
    "def f(r):\n    return llm_query(r",
    "if rows:\n    print(",
    'x = llm_query("""text\nmore',
    '<|python_tag|>{"name": "execute_python", "parameters": {"code": "print(1)"}}',
    '[TOOL_CALLS] [{"name": "execute_python", "arguments": {"code": "print(1)"}}]',
    (
        '{"type": "function", "function": {"name": "execute_python", '
        '"arguments": "{\\"code\\": \\"print(1)\\"}"}}'
    ),
    '{"tool_calls": [{"function": {"name": "execute_python", "arguments": "{}"}}]}',
    '{"name": "execute_python", "arguments": {"code": "print(1)"}',
    '{"action": "execute_python", "action_input": "print(1)"}',
    '```tool_call\n{"name":"execute_python","arguments":{"code":"print(1)"}}\n```',
    "```tool_code\nprint(1)\n```",
    "<tool_calls><tool_call>execute_python</tool_call></tool_calls>",
    "<execute_python>print(rows)</execute_python>",
    "<execute_python>\nprint(1)\n</execute_python>",
    "<execute>print(1)</execute>",
    '<|tool_call|>[{"name":"execute_python","arguments":{}}]',
    '<|tool_call_start|>[execute_python(code="print(1)")]<|tool_call_end|>',
    (
        '<minimax:tool_call>\n<invoke name="execute_python">\n<paramete'
        'r name="code">print(1)</parameter>\n</invoke>\n</minimax:tool_'
        "call>"
    ),
    (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="execute_python">\n'
        '<｜DSML｜parameter name="code" string="true">print(1)</｜DSML｜p'
        "arameter>\n</｜DSML｜invoke>"
    ),
    'functions.execute_python:0{"code": "print(1)"}',
    'execute_python({"code": "print(1)"})',
    "execute_python: print(1)",
    "assistant<|channel|>commentary to=functions.execute_python code<|message|>print(1)",
    "to=functions.execute_python code print(1)",
    'commentary to=functions.execute_python json{"code":"print(1)"}',
    'Action: execute_python(code="print(1)")',
    ('Action:\n```json\n{"action": "execute_python", "action_input": {"code": "print(1)"}}\n```'),
    "Action: `execute_python`\nAction Input: print(1)",
    "**Action**: execute_python",
    "call: execute_python\ncode: print(1)",
    "Tool: execute_python\nInput: print(1)",
    '{"code": "print(len(rows))"}',
    "<think>x</think>```repl\nprint(1)\n```",
    '<function_call name="execute_python">print(1)</function_call>',
    '<function name="execute_python">{"code":"print(1)"}</function>',
    "[execute_python]\nprint(1)",
    "to=python code\nprint(1)",
    "```repl\nrows += [3]\n```\nFINAL_VAR(rows)",
    "```repl\nrows[0] = 3\n```\nFINAL_VAR(rows)",
    "```repl\nrows.sort()\n```\n\nFINAL(rows)",
    '```repl\ndel rows[0]\n```\nFINAL_VAR("rows")',
    "```repl\nfor r in names:\n    rows.append(r)\n```\nFINAL_VAR(rows)",
    "```repl\nhelper()\n```\nFINAL_VAR(rows)",
    "```repl\nexec('rows.append(1)')\n```\nFINAL_VAR(rows)",
    "```repl\ny = rows\ny.append(3)\n```\nFINAL_VAR(rows)",
    "```repl\nrows.append(\n```\nFINAL_VAR(rows)",
    "rows.append(3)\nFINAL_VAR(rows)",
    "rows.append(3)\nFINAL_VAR('rows')",
    "```repl\nrows.append(3)\nanswer['content'] = rows\nanswer['ready'] = True\n```",
    "```repl\nglobals()['rows'].append(3)\n```\nFINAL_VAR(rows)",
    "```repl\nz = helper()\n```\nFINAL_VAR(rows)",
    "```repl\nimport random; random.shuffle(rows)\n```\nFINAL_VAR: rows",
    "I add one:\n\nrows.append(3)\n\nFINAL_VAR(rows)",
]


@pytest.mark.parametrize("reply", CODE)
def test_code_for_the_repl_is_not_an_answer(reply: str) -> None:
    plain = read_plain(Reply(text=reply), VARIABLES)
    assert plain.is_code
    assert not plain.text


TEXTS = [
    "It is Ada.",
    "```python\ndef foo(a):\n    return a\n```",
    "def foo(a):\n    return a",
    "ls -la | wc -l",
    "git status",
    '{"a": 1}',
    '{"name": "Ada", "age": 3}',
    '{"name": "run", "arguments": {"x": 1}}',
    "[1, 2]",
    "Use `print(x)` to see it.",
    "`print(x)` shows it, as does `len(rows)`.",
    "Use a set:\n```python\ndef unique(names): return set(names)\n```",
    "## How\n\n> quoted\n\n```python\nfoo = bar(1)\n```\n\nThis calls bar.",
    "SELECT * FROM rows WHERE total > 2",
    "x = 5",
    "total = 42",
    "Paris (France)",
    "- Ada\n- Grace",
    "compute_total(data)",
    "```python\nwith open(path) as f:\n    rows = f.read()\n```\nThis reads the file.",
    "The function `total(rows)` sums them.",
    "llm_query(prompt) makes one call.",
    "Run this query.\n```sql\nSELECT 1\n```",
    "rows.csv",
    "A run ends with `FINAL(value)`.",
    "E = m * c ** 2",
    "area = width * height",
    "The formula is:\n\narea = width * height\n\nwhere width is known.",
    "Use this script:\n```python\nimport os\nprint(os.listdir())\n```",
    "Here is the function:\n\ndef total(rows):\n    return sum(rows)",
    "The model emits `<|python_tag|>` before code.",
    "for example, Paris: a city",
    "while this is true: yes",
    "if so: the total is 3",
    "import taxes rose in 2020.",
    "class: mammal",
    "with 3 rows: total 5",
    "Total: 3",
    "context: the case of Ada",
    "answer: 42",
    "rows: 3",
    "> It was the best of times.\n\nsaid Dickens",
    "Let me explain: it is Ada.",
    "I need to say it is Ada",
    "names = Ada, Grace",
    "$x^2$",
    "f(x) = x + 1",
    "2024-05-01",
    "a-b",
    "well-known",
    "<code>x = 5</code>",
    "Action: none was taken.",
    "Tool: hammer",
    "def total(rows): return sum(rows)",
    "```python\nclass A:\n    pass\n```",
    "```python\nfrom x import y\n```",
    "The rows are:\n1. Ada (3)\n2. Grace (4)",
    "best: Ada",
    "No.",
    "3",
    "True",
    "None",
    "yes",
    "x",
    "names",
    "```python\ndef f(n):\n    return n\n\nprint(f(3))\n```",
    "In 2020: print(ers) rose",
    "print(ed) matter",
    "```python\n>>> 1 + 1\n2\n```\nPython adds.",
    "grep -c foo bar.txt",
    "curl -X POST https://x.y/z",
    "SELECT COUNT(*) FROM rows;",
    "Use `rows.append(x)` to add.",
    "You can use the following:\n\n```python\nimport json\nprint(json.dumps(data))\n```",
    (
        "Here is the script:\n```python\nimport os\nfor f in os.listdir("
        "):\n    print(f)\n```\nIt lists files."
    ),
    "```python\ndef main():\n    print('x')\n\nif __name__ == '__main__':\n    main()\n```",
    "The snippet is:\n\n    app.run(port=80)\n\nIt starts the server.",
    "def foo():\n    ...",
    "class Foo(Bar):\n    def baz(self): return 1",
    "foo(bar, baz=1)",
    "os.listdir(path)",
    "kubectl get pods -n kube-system",
    "pip install rlm",
    "SELECT a, b FROM t WHERE x = 'y'",
    '{"rows": [1, 2]}',
    '[{"name": "Ada"}]',
    '{"code": "DE"}',
    '{"name": "python", "version": "3.12"}',
    '{"name": "execute_python"}',
    "The total is 5 (see rows).",
    "total (all rows): 5",
    "Names: Ada, Grace",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "1. Ada\n2. Grace",
    "In [2020] it rose.",
    "<b>Ada</b>",
    "Ada <ada@x.org>",
    "The answer is\n\n> To be or not to be",
    (
        "The function is `total(rows)`, defined as:\n\n```python\ndef to"
        "tal(rows):\n    return len(rows)\n```"
    ),
    'It fails at `answer["content"] = x`.',
    "First the rows, then the total.",
    "x = 3, y = 4",
    "a = b",
    "best = Ada",
    "The loop `for r in rows:` runs.",
    "Call print(total).",
    "import of goods: 3",
    "assert dominance",
    "from here import there",
    "return to sender",
    "names[0]: Ada",
    "best(er) things",
    "while (true) do",
    "print is a verb",
    "let me in",
    "I'll be back.",
    "We should go.",
    "Let me be clear: the answer is `len(rows)` = 3",
    "$ ls\n$ cd x",
    "Dear Sir,\n\nI will write.\n\nYours",
    "print",
    "FINAL",
    "llm_query",
    "The function is llm_query.",
    "`llm_query`",
    "It calls `llm_query(prompt)` for each row.",
    "The tag `<tool_call>` opens a call.",
    "def add(a, b): return a + b\nprint(add(1, 2))",
    "context = 'a'",
    "Context: it is Ada",
    "rank: 1",
    "merge(a, b)",
    "where (country) = x",
]


@pytest.mark.parametrize("reply", TEXTS)
def test_an_answer_about_code_stays_as_it_is(reply: str) -> None:
    plain = read_plain(Reply(text=reply), VARIABLES)
    assert (plain.text, plain.is_code) == (reply, False)


READ = {
    "```bash\nls -la\n```": "ls -la",
    "```sql\nSELECT 1\n```": "SELECT 1",
    "FINAL('len(rows)')": "len(rows)",
    "FINAL(data.json)": "data.json",
    "FINAL(Paris, France)": "Paris, France",
    "Final Answer: Paris (France)": "Paris (France)",
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|c"
        "hannel|>final<|message|>Paris<|return|>"
    ): "Paris",
    "```html\n<code>x</code>\n```": "<code>x</code>",
    "FINAL(42)": "42",
    "FINAL('It is Ada.')": "It is Ada.",
    "Final Answer: rows of trees": "rows of trees",
    '```json\n{"a": 1}\n```': '{"a": 1}',
    "```\nAda\nGrace\n```": "Ada\nGrace",
    "```js\nconsole.log(rows)\n```": "console.log(rows)",
    "```diff\n- a\n+ b\n```": "- a\n+ b",
    "    indented text": "indented text",
    "\ufeffParis": "Paris",
    "FINAL(answer=42)": "42",
    "FINAL(value='ok')": "ok",
    'Done.\n\nanswer["content"] = "ok"\nanswer["ready"] = True': "ok",
    '<function=submit_answer>{"answer": "ok"}</function>': "ok",
    '[TOOL_CALLS][{"name": "submit_answer", "arguments": {"answer": "ok"}}]': "ok",
    '{"name": "submit_answer", "arguments": "{\\"answer\\": \\"ok\\"}"}': "ok",
    'Action: submit_answer\nAction Input: {"answer": "ok"}': "ok",
    "> ```repl\n> FINAL('ok')\n> ```": "ok",
    "```python FINAL('ok')```": "ok",
    ">>> FINAL('ok')": "ok",
    "````markdown\n```repl\nFINAL('ok')\n```\n````": "ok",
    "<|python_tag|>FINAL('ok')": "ok",
}


@pytest.mark.parametrize(("reply", "answer"), READ.items())
def test_a_literal_is_read_wherever_it_is_written(reply: str, answer: str) -> None:
    plain = read_plain(Reply(text=reply), VARIABLES)
    assert (plain.text, plain.is_code) == (answer, False)


LOOKED_UP = {
    "FINAL(answer=total)": "total",
    "FINAL(variable_name='total')": "total",
    "```repl\nprint(len(rows))\n```\nFINAL_VAR(rows)": "rows",
    "```repl\nkept = max(names)\n```\nFINAL_VAR(rows)": "rows",
    "> ```repl\n> FINAL_VAR('rows')\n> ```": "rows",
    "I am done.\n\nFINAL_VAR(rows)": "rows",
    "Done.\n\nanswer['content'] = best\nanswer['ready'] = True": "best",
}


@pytest.mark.parametrize(("reply", "variable"), LOOKED_UP.items())
def test_a_variable_is_looked_up_wherever_it_is_named(reply: str, variable: str) -> None:
    assert read_plain(Reply(text=reply), VARIABLES).variable == variable
