"""IPython's shell in the local sandbox: its own features, and every promise of the plain one."""

import importlib.util
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("IPython", reason="IPython is an extra: pip install 'recursivelm[ipython]'")

from rlm.environments.ipython import IPythonEnvironment
from rlm.environments.local import LocalEnvironment
from rlm.errors import ConfigError, SessionRestored
from rlm.testing.attacks import attack
from rlm.testing.conformance import CHECKS, check
from tests.environments.conftest import FakeHost, Opener, Repl, checkpointed, out_of_time

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))


@pytest.fixture
async def open_repl() -> AsyncIterator[Opener]:
    environment = IPythonEnvironment()

    async def open_one(**options: Any) -> Repl:
        host = FakeHost()
        return Repl(await environment.open(host, options), host)

    yield open_one
    await environment.close()


@pytest.mark.parametrize("group", GROUPS)
async def test_ipython_passes_the_conformance_suite(group: str) -> None:
    environment = IPythonEnvironment()
    report = await check(environment, only=f"{group}: ")
    await environment.close()
    assert {row.group for row in report.rows} == {group}
    assert [row for row in report.rows if row.verdict != "passed"] == []


LAYOUT = "learn where things are in another session's memory"
"""Forked workers share it, which is documented."""


@pytest.mark.heavy
async def test_no_attack_succeeds() -> None:
    environment = IPythonEnvironment()
    report = await attack(environment)
    await environment.close()
    assert len(report.rows) > 150
    assert [row.name for row in report.rows if row.verdict != "stopped"] == [LAYOUT]


# -- IPython's own --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (("40", "_ + 2"), "42"),
        (("1", "2", "_, __, _1, Out[2]"), "(2, 1, 1, 2)"),
        (("x = 1", "In[1], In[-1]"), "('x = 1', 'In[1], In[-1]')"),
        (("5;",), ""),
        (("%%capture out\nprint('hidden')", "out.stdout"), "'hidden\\n'"),
        (("%%time\n6 * 7",), "42"),
        (("%timeit -n1 -r1 pass",), "1 loop"),
        (("x = 1\ny = 'a'", "%who"), "x\t y"),
        (("def f(a):\n    'Says so.'", "f?"), "Says so."),
        (("%pwd",), "'/"),
        (("%%writefile a.py\nn = 7", "%run a.py", "n"), "7"),
        (("who = 3", "who"), "3"),
        (("display(1, 'b')",), "1\n'b'"),
        (("from IPython.display import HTML\ndisplay(HTML('<b>x</b>'))",), "<b>x</b>"),
        (("from IPython.display import Image\nImage(b'\\x89PNG')",), "<Image: 4 bytes, not shown>"),
        (("class A:\n    def _repr_pretty_(self, p, cycle): p.text('pretty')\n[A()]",), "[pretty]"),
        (("class A:\n    def _repr_html_(self): return '<b>'\nA()",), "object at 0x"),
        (("get_ipython().run_cell('z = 7').success, z",), "(True, 7)"),
        (("get_ipython().ast_node_interactivity = 'all'", "1\n2\nx = 3"), "1\n2"),
        (("%%capture\nreply = await llm_query('a')", "reply"), "'re:a'"),
        (("exit",), "Use exit()"),
    ],
)
async def test_ipython_features_work_in_cells(
    cells: tuple[str, ...], shown: str, open_repl: Opener
) -> None:
    repl = await open_repl()
    for code in cells[:-1]:
        await repl.show(code)
    text = await repl.show(cells[-1])
    assert shown in text if shown else text == ""
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("!ls", "PermissionError", "programs can't be started here, so 'ls'"),
        ("files = !ls", "PermissionError", "programs can"),
        ("%%bash\nls", "PermissionError", "programs can"),
        ("%pip install x", "PermissionError", "programs can"),
        ("%nosuch", "UsageError", "`%nosuch` not found"),
        ("%%time\n1 / 0", "ZeroDivisionError", "division"),
        ("%%capture\n1 / 0", "ZeroDivisionError", "division"),
        ("get_ipython().run_cell('1 / 0')", "ZeroDivisionError", "division"),
        ("class A:\n    def __repr__(self): return 1 / 0\nA()", "ZeroDivisionError", "division"),
        ("exit()", "SystemExit", ""),
        ("get_ipython().run_cell('exit()')", "SystemExit", ""),
    ],
)
async def test_errors_that_ipython_would_only_print_are_errors_of_the_cell(
    code: str, kind: str, words: str, open_repl: Opener
) -> None:
    repl = await open_repl()
    result = await repl.run(code)
    assert result.error is not None
    assert result.error.type == kind
    assert words in result.error.message
    assert "\x1b" not in result.error.traceback
    assert "IPython/core" not in result.error.traceback
    assert await repl.show("'alive'") == "'alive'"


async def test_a_reset_keeps_the_names_of_the_repl(open_repl: Opener) -> None:
    repl = await open_repl()
    await repl.load("payload")
    await repl.run("mine = 1")
    await repl.run("%reset -f")
    assert await repl.show("'mine' in globals(), context, peek(3)") == "(False, 'payload', 'pay')"
    assert await repl.show("llm_query('a'), get_ipython() is not None") == "('re:a', True)"


async def test_ipython_writes_no_files_and_starts_no_threads(open_repl: Opener) -> None:
    repl = await open_repl()
    await repl.run("%history\nlen?")
    await repl.run("import os, threading")
    code = "threading.active_count(), os.listdir('.'), os.listdir(os.environ['HOME'])"
    assert await repl.show(code) == "(1, [], [])"


@pytest.mark.parametrize(
    "hang",
    [
        "%%time\nwhile True: pass",
        "%timeit while True: pass",
        "%%capture\nwhile True: pass",
        "%%capture\nimport asyncio\nawait asyncio.sleep(1000)",
        "while True: get_ipython().run_cell('import time; time.sleep(1000)')",
    ],
)
async def test_cells_run_by_magics_are_stopped_too(hang: str, open_repl: Opener) -> None:
    repl = await open_repl()
    await repl.run("kept = [1]")
    result = await repl.run(hang, timeout_seconds=0.3)
    assert result.interrupted
    assert result.error is not None
    assert result.error.type == "TimeoutError"
    assert await repl.show("kept, llm_query('a')") == "([1], 're:a')"


async def test_variables_and_history_are_restored_after_a_kill(open_repl: Opener) -> None:
    repl = await open_repl()
    await repl.run("kept = 1")
    await repl.run("kept + 1")
    await checkpointed(repl)
    with pytest.raises(SessionRestored):
        await out_of_time(repl, "get_ipython().run_cell('%%time\\nsum(range(10**12))')")
    assert await repl.show("kept, _, In[1]") == "(1, 2, 'kept = 1')"


async def test_output_of_cells_run_by_magics_is_cut(open_repl: Opener) -> None:
    repl = await open_repl(kept_output_chars=1_000)
    code = "for i in range(300): print('y' * 10**5)"
    result = await repl.run(f"get_ipython().run_cell({code!r});")
    assert len(result.stdout) < 2_000
    assert result.stdout_chars == 300 * (10**5 + 1)
    kept = "sum(len(v) for v in get_ipython().history_manager.outputs.values())"
    assert await repl.show(kept) == "0"


# -- the environment ------------------------------------------------------------------------------


def test_its_options_are_those_of_the_local_sandbox() -> None:
    assert inspect.signature(IPythonEnvironment) == inspect.signature(LocalEnvironment)


async def test_without_ipython_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    environment = IPythonEnvironment()
    for asked in (environment.open(FakeHost(), {}), environment.describe()):
        with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[ipython\]'"):
            await asked
