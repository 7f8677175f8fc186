"""Cells: full CPython, echo, errors, output, variables, text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.environments.conftest import FakeHost, Repl
from tests.environments.plain import PlainEnvironment

if TYPE_CHECKING:
    from tests.environments.conftest import Opener


async def test_state_lives_from_cell_to_cell(repl: Repl) -> None:
    assert await repl.show("x = 1") == ""
    assert await repl.show("def f(): return later\nx += 1") == ""
    assert await repl.show("later = x * 10\nf()") == "20"


ECHOES = [
    ("1 + 1", "2"),
    ("None", ""),
    ("'text'", "'text'"),
    ("x = 1", ""),
    ("1;", "1"),
    ("print('a')\n'b'", "a\n'b'"),
    ("for i in range(2): i", ""),
    ('"""doc"""', "'doc'"),
    ("", ""),
    ("# only a comment \\", ""),
    ('x = """a"""', ""),
    ("print(1)\\", "1"),
    ("x = 'a\\\\'\nx", "'a\\\\'"),
    ("a = 1\r\nprint(a)\r\n", "1"),
    ("import sys; sys.argv", "['']"),
    ("__name__", "'__main__'"),
    (
        "from __future__ import annotations\ndef f(x: nope): pass\nf.__annotations__",
        "{'x': 'nope'}",
    ),
    ("def f(x: int): pass\nf.__annotations__", "{'x': <class 'int'>}"),
]


async def test_the_last_bare_expression_is_echoed(repl: Repl) -> None:
    for code, shown in ECHOES:
        assert (code, await repl.show(code)) == (code, shown)


async def test_a_long_echo_is_cut(repl: Repl) -> None:
    assert len(await repl.show("'x' * 10**6")) < 21_000
    assert len(await repl.show("list(range(10**5))")) < 21_000


ERRORS = [
    ("x = (", "SyntaxError"),
    ("a\x00b", "SyntaxError"),
    ("'\ud800'", "SyntaxError"),
    ("return 1", "SyntaxError"),
    ("def f(): return f()\nf()", "RecursionError"),
    ("import sys\nsys.exit(3)", "SystemExit"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("input('?')", "EOFError"),
    ("import sys\nsys.stdin.read(1)[0]", "IndexError"),
    ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E()", "E"),
    ("class R:\n    def __repr__(self): return 1 / 0\nR()", "ZeroDivisionError"),
    ("raise ExceptionGroup('many', [ValueError('a'), KeyError('b')])", "ExceptionGroup"),
    ("(" * 1000 + ")" * 1000, "SyntaxError"),
    ("exit()", "SystemExit"),
    ("import nowhere", "ModuleNotFoundError"),
    ("import rlm", "ModuleNotFoundError"),
    (
        (
            "class M(type):\n    def __getattribute__(s, n): 1/0\n"
            "class E(Exception, metaclass=M): pass\nraise E"
        ),
        "E",
    ),
]


async def test_an_exception_in_a_cell_is_part_of_its_result(repl: Repl) -> None:
    for code, expected in ERRORS:
        assert (code, (await repl.fail(code))[0]) == (code, expected)
    assert await repl.show("'alive'") == "'alive'"


async def test_a_failing_cell_keeps_the_variables_set_before(repl: Repl) -> None:
    result = await repl.run("a = [1, 2]\n1/0\nb = 2")
    assert result.error is not None
    assert result.new_variables == {"a": "list[2]"}
    assert await repl.show("a") == "[1, 2]"


async def test_the_traceback_shows_the_line_and_none_of_our_frames(repl: Repl) -> None:
    await repl.run("def inner(x):\n    return 1 / x")
    result = await repl.run("y = 0\ninner(y)  # the caller")
    assert result.error is not None
    assert "inner(y)  # the caller" in result.error.traceback
    assert "return 1 / x" in result.error.traceback
    assert "worker" not in result.error.traceback
    refused = await repl.run("llm_query('refuse')")
    assert refused.error is not None
    assert "llm_query('refuse')" in refused.error.traceback
    assert "worker" not in refused.error.traceback


async def test_tracebacks_are_short(repl: Repl) -> None:
    result = await repl.run("def f(n):\n    return g(n)\ndef g(n):\n    return f(n + 1)\nf(0)")
    assert result.error is not None
    assert result.error.traceback.count("  File ") <= 12
    long = await repl.run("raise ValueError('x' * 10**6)")
    assert long.error is not None
    assert len(long.error.traceback) < 8_100
    assert "raise ValueError" in long.error.traceback


async def test_classes_can_be_pickled_and_inspected(repl: Repl) -> None:
    code = "import pickle, inspect\nclass A: pass\ndef f():\n    return 42\n"
    assert await repl.show(code + "type(pickle.loads(pickle.dumps(A()))) is A") == "True"
    assert await repl.show("print(inspect.getsource(f))") == "def f():\n    return 42\n".rstrip(
        "\n"
    )


async def test_stdout_and_stderr_are_apart(repl: Repl) -> None:
    result = await repl.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.stdout_chars, result.stderr_chars) == (4, 4)


async def test_huge_output_keeps_head_and_tail(open_repl: Opener) -> None:
    repl = await open_repl(kept_output_chars=1_000)
    result = await repl.run("print('start')\nfor _ in range(300): print('y' * 10**5)\nprint('end')")
    assert result.stdout.startswith("start\n")
    assert result.stdout.endswith("end\n")
    assert "characters cut" in result.stdout
    assert len(result.stdout) < 1_100
    assert result.stdout_chars == 300 * (10**5 + 1) + len("start\nend\n")


async def test_bytes_can_be_written_and_raw_descriptors_do_no_harm(repl: Repl) -> None:
    await repl.show("import sys, os")
    assert await repl.show("n = sys.stdout.buffer.write('é'.encode())") == "é"
    assert await repl.show("os.write(1, b'raw'), os.write(2, b'raw')") == "(3, 3)"
    assert await repl.show("os.system('echo shell'); os.read(0, 1)") == "b''"


async def test_redirected_output_is_restored_for_the_next_cell(repl: Repl) -> None:
    await repl.run("import io, sys, contextlib\nb = io.StringIO()")
    code = "with contextlib.redirect_stdout(b): print('in')\nb.getvalue()"
    assert await repl.show(code) == "'in\\n'"
    await repl.run("sys.stdout = b; sys.stderr = None; print('lost')")
    assert await repl.show("print('back')") == "back"
    await repl.run("sys.stdout.close()")
    assert await repl.show("sys.stdout = sys.__stdout__; print('again')") == "again"


async def test_log_handlers_outlive_their_cell(repl: Repl) -> None:
    await repl.run("import logging\nlogging.basicConfig()")
    result = await repl.run("logging.warning('later')")
    assert result.stderr == "WARNING:root:later\n"


async def test_new_and_changed_variables_are_reported(repl: Repl) -> None:
    first = await repl.run(
        "import os\nrows = [1]; s = 'abc'; n = 1; _private = 1\n"
        "def f(): pass\nclass C: pass\nc = C()"
    )
    assert first.new_variables == {
        "rows": "list[1]", "s": "str[3]", "n": "int", "f": "function", "C": "type", "c": "C",
    }  # fmt: skip
    second = await repl.run("rows.append(2); n = 2; s = s; t = ()")
    assert second.new_variables == {"t": "tuple[0]"}
    assert second.changed_variables == {"rows": "list[2]", "n": "int"}
    assert repl.session.variables == ("rows", "s", "n", "f", "C", "c", "t")
    await repl.run("del rows")
    assert "rows" not in repl.session.variables


async def test_show_vars_reads_the_same_echoed_and_printed(repl: Repl) -> None:
    assert await repl.show("SHOW_VARS()") == "(no variables yet)"
    await repl.run("rows = [1, 2]; name = 'x'")
    assert await repl.show("SHOW_VARS()") == "rows: list[2]\nname: str[1]"
    assert await repl.show("print(SHOW_VARS())") == "rows: list[2]\nname: str[1]"


async def test_odd_values_and_names_do_not_disturb_the_report(repl: Repl) -> None:
    result = await repl.run(
        "class L(list):\n    def __len__(self): raise ValueError\n"
        "class P:\n    @property\n    def __class__(self): raise ValueError\n"
        "a, b = L(), P()\nglobals()[1] = 2\nglobals()['not a name'] = 3"
    )
    assert result.error is None
    assert result.new_variables == {"L": "type", "P": "type", "a": "L[0]", "b": "P"}


async def test_fetch_returns_the_text_of_a_variable(repl: Repl) -> None:
    await repl.run(
        "s = 'a\\ud800\\x00\\r\\n'; n = [1]\nclass B:\n    def __str__(self): 1/0\nb = B()"
    )
    assert await repl.session.fetch("s") == "a\ud800\x00\r\n"
    assert await repl.session.fetch("n") == "[1]"
    assert await repl.session.fetch("missing") is None
    assert await repl.session.fetch("b") is None


async def test_hashes_and_random_numbers_are_repeatable(open_repl: Opener) -> None:
    code = "import random\nhash('a'), random.random()"
    first, again, other = [await (await open_repl(seed=seed)).show(code) for seed in (1, 1, 2)]
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "\ud83d\ude00 pair", "nul\x00", "a\r\nb", "😀é", ""]
)
async def test_text_is_exact_both_ways(repl: Repl, text: str) -> None:
    await repl.load(text)
    repl.host.reply = lambda prompt: prompt
    code = (
        "r = llm_query(context)\nassert r == context == P == context_0\nprint(r, end='')\nFINAL(r)"
    )
    result = await repl.run(code)
    assert result.error is None
    assert result.stdout == text
    assert result.submission is not None
    assert result.submission.text == text
    assert repl.host.prompts() == [text]


async def test_cells_see_a_minimal_environment_and_folder(
    repl: Repl, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = await repl.show("import os\nprint(*sorted(os.environ))")
    assert set(shown.split()) <= {
        *("PYTHONHASHSEED", "MALLOC_ARENA_MAX", "TMPDIR", "HOME", "LC_CTYPE")
    }
    assert await repl.show("os.getcwd() == os.environ['TMPDIR'], os.listdir('.')") == "(True, [])"
    assert "site-packages" not in await repl.show("import sys\nsys.path")


async def test_running_out_of_memory_is_a_memory_error(open_repl: Opener) -> None:
    repl = await open_repl(cell_memory_bytes=200 << 20)
    await repl.load("x" * (50 << 20))
    result = await repl.run(
        "kept = 5\nhoard = []\nwhile True: hoard.append('x' * 10**6 + str(len(hoard)))"
    )
    assert result.error is not None
    assert result.error.type == "MemoryError"
    assert (
        await repl.show("count = len(hoard)\ndel hoard\nprint(kept, 100 < count < 260)") == "5 True"
    )
    assert await repl.show("len('x' * 10**8)") == "100000000"


async def test_standard_modules_work(repl: Repl) -> None:
    assert await repl.show(
        "import tempfile, sqlite3, threading, decimal, csv, collections, zoneinfo, statistics\n"
        "import multiprocessing, subprocess\n"
        "with tempfile.NamedTemporaryFile('w+') as f: f.write('x')\n"
        "sqlite3.connect(':memory:').execute('select 1').fetchall()"
    ) == "[(1,)]"  # fmt: skip


async def test_a_forked_child_cannot_act_as_the_worker() -> None:
    """Where code can fork at all: not in the local sandbox."""
    environment, host = PlainEnvironment(), FakeHost()
    repl = Repl(await environment.open(host, {}), host)
    code = """
import os
pid = os.fork()
if pid == 0:
    try:
        llm_query('from the child')
    except RuntimeError:
        pass
else:
    os.waitpid(pid, 0)
pid > 0
"""
    assert await repl.show(code) == "True"
    assert repl.host.asked == []
    assert await repl.show("llm_query('a')") == "'re:a'"
    await environment.close()
