"""Cells: full Python, state from cell to cell, echo, errors a model can repair, output."""

import asyncio

from rlm.testing.conformance.bench import Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("cells")

_ECHOES = {
    "1 + 1": "2",
    "None": "",
    "'text'": "'text'",
    "x = 1": "",
    "print('a')\n'b'": "a\n'b'",
    "for i in range(2): i": "",
    "": "",
    "# only a comment": "",
    "print(1)\\": "1",
    "a = 1\r\nprint(a)\r\n": "1",
    'x = """a"""\nx': "'a'",
}

_ENDINGS = {
    'x = "a"': "'a'",
    "x = 'a'": "'a'",
    "x = '''a'''": "'a'",
    'x = """a"\n"""': "'a\"\\n'",
    'x = "\\""': "'\"'",
    "x = r'\\'": None,
    "x = 'a\\\\'": "'a\\\\'",
    "x = f'{1}\"'": "'1\"'",
    "x = 'a' \\": "'a'",
    "x = 'a'  # it's": "'a'",
    'x = \'a\'  # """': "'a'",
    "x = 'a'  # \\": "'a'",
    "x = {'a': \"b\"}": "{'a': 'b'}",
}
"""Cells that end in quotes or backslashes, and the value of `x` afterwards; None if the cell is not
valid Python."""

_ERRORS = {
    "x = (": "SyntaxError",
    "a\x00b": "SyntaxError",
    "return 1": "SyntaxError",
    "1 / 0": "ZeroDivisionError",
    "def f(): return f()\nf()": "RecursionError",
    "import sys\nsys.exit(3)": "SystemExit",
    "exit()": "SystemExit",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "import nowhere_at_all": "ModuleNotFoundError",
    "(" * 1000 + ")" * 1000: "SyntaxError",
    "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()": "E",
}


@checks("state lives from cell to cell")
async def state(repl: Repl) -> None:
    await repl.shows("x = 1", "")
    await repl.shows("def f(): return later\nx += 1", "")
    await repl.shows("later = x * 10\nf()", "20")


@checks("a last bare expression is echoed, as in a notebook")
async def echo(repl: Repl) -> None:
    for code, shown in _ECHOES.items():
        await repl.shows(code, shown)


@checks("a cell may end in a quote, a backslash, a bracket or a comment")
async def endings(repl: Repl) -> None:
    for code, value in _ENDINGS.items():
        if value is None:
            await repl.fails(code, "SyntaxError")
        else:
            await repl.shows(code, "")
            await repl.shows("x", value)


@checks("a long echo is cut")
async def long_echo(repl: Repl) -> None:
    for code in ("'x' * 10**6", "list(range(10**5))"):
        length = len(await repl.show(code))
        if not 100 < length < 100_000:
            raise Unmet(f"{code}: {length:,} characters were echoed")


@checks("await works at top level, and a plain cell has no event loop")
async def top_level_await(repl: Repl) -> None:
    await repl.shows("import asyncio\nawait asyncio.sleep(0, 'waited')", "'waited'")
    await repl.shows("async def f(): return 5\nasyncio.run(f())", "5")
    await repl.shows("await f()", "5")


@checks("whatever a cell raises is a result, and the session continues")
async def errors(repl: Repl) -> None:
    for code, kind in _ERRORS.items():
        await repl.fails(code, kind)
    await repl.shows("'alive'", "'alive'")


@checks("a cell that raises keeps the variables set before", fresh=True)
async def variables_before_an_error(repl: Repl) -> None:
    result = await repl.run("before = 1\n1 / 0\nafter = 1")
    expect(dict(result.new_variables), {"before": "int"}, "new variables of a failed cell")
    await repl.shows("before, 'after' in globals()", "(1, False)")


@checks("tracebacks show the offending lines and are short")
async def tracebacks(repl: Repl) -> None:
    await repl.run("def inner(x):\n    return 1 / x")
    result = await repl.run("y = 0\ninner(y)  # the caller")
    text = result.error.traceback if result.error is not None else ""
    for line in ("inner(y)  # the caller", "return 1 / x", "ZeroDivisionError"):
        if line not in text:
            raise Unmet(f"{line!r} is not in the traceback {text[-300:]!r}")
    long = await repl.run("raise ValueError('x' * 10**6)")
    size = len(long.error.traceback) if long.error is not None else 0
    if not 0 < size < 50_000:
        raise Unmet(f"a traceback has {size:,} characters")


@checks("input() fails at once instead of waiting for somebody")
async def no_input(repl: Repl) -> None:
    await repl.fails("input('?')", "EOFError")


@checks("stdout and stderr come back separately and are counted")
async def two_outputs(repl: Repl) -> None:
    result = await repl.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    expect((result.stdout, result.stderr), ("out\n", "err\n"), "the two outputs")
    expect((result.stdout_chars, result.stderr_chars), (4, 4), "the counts")


@checks("output keeps its order, and none is lost")
async def output_order(repl: Repl) -> None:
    shown = await repl.show("for i in range(5_000): print(i)")
    expect(shown.split("\n"), [str(i) for i in range(5_000)], "5,000 printed lines")


@checks("the next cell undoes redirected output")
async def redirected(repl: Repl) -> None:
    await repl.run("import contextlib, io, sys\nb = io.StringIO()")
    await repl.shows("with contextlib.redirect_stdout(b): print('in')\nb.getvalue()", "'in\\n'")
    await repl.run("sys.stdout = b; sys.stderr = None")
    await repl.shows("print('back')", "back")


@checks("hashes and random numbers are the same in every session with the same seed")
async def repeatable(repl: Repl) -> None:
    code = "import random\nhash('a'), random.random()"
    shown = []
    for seed in (1, 1, 2):
        async with repl.bench.opened(seed=seed) as other:
            shown.append(await other.show(code))
    expect(shown[0] == shown[1], True, "two sessions of the same seed agree")
    expect(shown[0] == shown[2], False, "two sessions of different seeds agree")


@checks("cells requested at the same time run one after another")
async def one_at_a_time(repl: Repl) -> None:
    results = await asyncio.gather(*(repl.run(f"n = {n}\nn") for n in range(5)))
    expect([each.stdout for each in results], [f"{n}\n" for n in range(5)], "the five outputs")
