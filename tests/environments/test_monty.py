"""`environment="monty"`: cells in monty, and the move to full Python, with the real package."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_monty", reason="run by a target of its own, with the package")

from rlm.environments.attacks import attack
from rlm.environments.conformance import CHECKS, check
from rlm.environments.monty import MontyEnvironment
from rlm.environments.monty.lacking import LACKS, LACKS_WITH_LOCAL
from rlm.environments.monty.session import MontySession
from rlm.errors import ConfigError, ProtocolViolation, SessionDied, SessionError
from rlm.protocols import Host
from tests.environments.conftest import FakeHost, Repl

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
NO_FOLDER = {"tempfile", "files, pathlib, glob and shutil", "sqlite3 in a file", "mmap and tarfile"}


@pytest.fixture
async def environment() -> AsyncIterator[MontyEnvironment]:
    made = MontyEnvironment()
    yield made
    await made.close()


@pytest.fixture
async def repl(environment: MontyEnvironment) -> Repl:
    host = FakeHost()
    return Repl(await environment.open(host, {"tools": []}), host)


@pytest.fixture
async def alone() -> AsyncIterator[Repl]:
    """A session that may not move."""
    environment = MontyEnvironment(promote=False)
    host = FakeHost()
    yield Repl(await environment.open(host, {"cell_memory_bytes": 100 << 20}), host)
    await environment.close()


def place(repl: Repl) -> str:
    assert isinstance(repl.session, MontySession)
    return repl.session.runs_in


# -- the suite -------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
async def test_it_conforms_and_lacks_only_what_does_no_harm(
    environment: MontyEnvironment, group: str
) -> None:
    report = await check(environment, only=f"{group}: ")
    assert not report.bad, [(row.name, row.detail) for row in report.bad]
    lacking = {row.name for row in report.rows if row.verdict == "not offered"}
    expected = {
        each.name
        for each in CHECKS
        if each.group == group and any(key in each.name for key in LACKS_WITH_LOCAL)
    }
    assert lacking == expected


@pytest.mark.heavy
async def test_without_promotion_exactly_what_it_says_is_lacking() -> None:
    environment = MontyEnvironment(promote=False)
    report = await check(environment)
    await environment.close()
    assert not report.bad, [(row.name, row.detail) for row in report.bad]
    lacking = {f"{row.group}: {row.name}" for row in report.rows if row.verdict == "not offered"}
    unused = [key for key in LACKS if not any(key in name for name in lacking)]
    assert not unused
    unexpected = {name for name in lacking if not any(key in name for key in LACKS)}
    assert unexpected == {f"snippets: {name}" for name in NO_FOLDER}


@pytest.mark.heavy
async def test_no_attack_succeeds(environment: MontyEnvironment) -> None:
    report = await attack(environment)
    assert not report.bad, [(row.name, row.detail) for row in report.bad]


# -- cells that stay in monty ----------------------------------------------------------------------


async def test_a_small_program_runs_in_monty_alone(repl: Repl) -> None:
    await repl.load("apple 3\nplum 5\nfig x")
    for code, shown in {
        "import json, re\nrows = [line.split() for line in context.split('\\n')]\nrows[0]": (
            "['apple', '3']"
        ),
        "def total(rows):\n    return sum(int(n) for _, n in rows if n.isdigit())": "",
        "total(rows)": "8",
        "replies = llm_query_batched([r[0] for r in rows])\nreplies": (
            "['re:apple', 're:plum', 're:fig']"
        ),
        "[m.group() for m in re.finditer('p+', context)]": "['pp', 'p']",
        "from collections import Counter\nCounter(context).most_common(1)": "[('p', 3)]",
        "json.loads(json.dumps({'a': [1, None]}))": "{'a': [1, None]}",
        "ctx.grep('plum'), peek(5), tail(1), lenP()": "(['2: plum 5'], 'apple', 'x', 20)",
        "vote(['a', 'A', 'b']), budget()": "('a', {'calls': 7})",
        "print(SHOW_VARS())": "rows: list[3]\ntotal: function\nreplies: list[3]\nCounter: type",
    }.items():
        assert await repl.show(code) == shown
    assert place(repl) == "monty"
    result = await repl.run("FINAL_VAR('rows')")
    assert result.submission is not None
    assert (result.submission.how, place(repl)) == ("FINAL_VAR", "monty")


async def test_gathered_calls_are_in_flight_together_and_the_loop_is_free(repl: Repl) -> None:
    repl.host.hold_until = 20
    code = (
        "import asyncio\nr = await asyncio.gather(*[llm_query(str(i)) for i in range(20)])\nr[19]"
    )
    assert await repl.show(code) == "'re:19'"
    assert repl.host.most_in_flight == 20
    assert place(repl) == "monty"


async def test_a_failed_item_is_a_failed_reply_in_monty_too(repl: Repl) -> None:
    await repl.run("r = llm_query_batched(['a', 'fail:no luck'])")
    assert await repl.show("r[1].failed, r[1].reason, 'luck' in r[1]") == "(True, 'no luck', True)"
    assert await repl.fail("llm_query('fail:no')") == ("CallFailed", "no")
    assert place(repl) == "monty"


async def test_an_error_of_the_user_is_told_and_nothing_moves(repl: Repl) -> None:
    for code, kind in {
        "1 / 0": "ZeroDivisionError",
        "nowhere": "NameError",
        "int('x')": "ValueError",
        "len(5)": "TypeError",
        "'a'.nothing()": "AttributeError",
        "import nowhere_at_all": "ModuleNotFoundError",
        "x = (": "SyntaxError",
    }.items():
        assert (await repl.fail(code))[0] == kind
    assert place(repl) == "monty"


async def test_a_cell_that_is_killed_leaves_the_variables_as_they_were(repl: Repl) -> None:
    await repl.run("rows = [1]")
    result = await repl.run("rows.append(2)\nprint('before')\nwhile True: pass", 0.2)
    assert result.error is not None
    assert (result.interrupted, result.error.type, result.stdout) == (
        *(True, "TimeoutError"),
        "before\n",
    )
    assert "while True: pass" in result.error.traceback
    assert await repl.show("rows") == "[1]"
    assert place(repl) == "monty"


# -- moving to full Python -------------------------------------------------------------------------


async def test_a_cell_that_needs_full_python_moves_the_session_with_all_it_has(repl: Repl) -> None:
    await repl.load("the text")
    await repl.run("import json\nfrom collections import Counter\ncounts = Counter('aab')")
    await repl.run("rows = [1, (2.5, None), {'a': {b'x'}}]; same = rows\nlimit = 10\nbig = 10**40")
    await repl.run("def twice(x):\n    return json.dumps(x * 2)\nanswer['content'] = 'draft'")
    await repl.run("r = llm_query_batched(['a', 'fail:no'])\npattern = iter([1])")
    result = await repl.run("import threading\nthreading.active_count() > 0")
    assert (result.stdout, result.error, place(repl)) == ("True\n", None, "local")
    assert result.stderr == (
        "[monty] this cell needed the module threading: the session goes on in `local`; "
        "lost: pattern\n"
    )
    assert await repl.show("rows, same is rows, limit, big == 10**40") == (
        "([1, (2.5, None), {'a': {b'x'}}], True, 10, True)"
    )
    assert await repl.show("counts.most_common(1), twice('a'), context, context_0, peek(3)") == (
        "([('a', 2)], '\"aa\"', 'the text', 'the text', 'the')"
    )
    assert await repl.show("isinstance(r[1], FailedReply), r[1].reason") == "(True, 'no')"
    assert await repl.show("answer['content']") == "'draft'"
    kind, message = await repl.fail("pattern.x")
    assert kind == "NameError"
    assert message.startswith("pattern was lost when this session moved to full Python: a value")
    names = {"rows", "same", "limit", "big", "twice", "counts", "r"}
    assert names <= set(repl.session.variables)
    assert not [name for name in repl.session.variables if "rlm" in name.lower()]


async def test_a_cell_that_fails_in_monty_runs_again_from_the_state_before_it(repl: Repl) -> None:
    await repl.run("rows = [1]")
    result = await repl.run("rows.append(2)\nprint('once')\nexec('x = (5).bit_length()')\nrows, x")
    assert (result.error, result.stdout, place(repl)) == (None, "once\n([1, 2], 3)\n", "local")
    assert result.stderr == (
        "[monty] this cell needed full Python: the session goes on in `local`\n"
    )


async def test_a_cell_that_made_calls_is_not_run_again(repl: Repl) -> None:
    await repl.run("kept = [1]")
    cell = "kept.append(llm_query('a'))\nexec('(5).bit_length()')"
    assert (await repl.fail(cell))[0] == "AttributeError"
    assert place(repl) == "local"
    assert repl.host.prompts() == ["a"]
    assert await repl.show("kept") == "[1, 're:a']"


async def test_carrying_runs_definitions_again_and_nothing_beside_them(repl: Repl) -> None:
    await repl.run("import json; rows = [llm_query('once')]\ndef f(): return len(rows)")
    assert await repl.show("import threading\njson.dumps(rows), f()") == "('[\"re:once\"]', 1)"
    assert (repl.host.prompts(), place(repl)) == (["once"], "local")


async def test_a_large_context_goes_to_local_at_once(environment: MontyEnvironment) -> None:
    host = FakeHost()
    repl = Repl(await environment.open(host, {}), host)
    await repl.load("x" * (5 << 20))
    assert (place(repl), await repl.show("len(context)")) == ("local", str(5 << 20))


async def test_where_local_can_not_isolate_nothing_runs_unprotected(repl: Repl) -> None:
    class Refusing:
        name = "local"

        async def open(self, host: Host, options: dict[str, Any]) -> Any:
            raise ConfigError("no layer here")

        async def close(self) -> None: ...

    assert isinstance(repl.session, MontySession)
    repl.session._mover._local = Refusing()
    await repl.run("kept = 1")
    kind, message = await repl.fail("import threading")
    assert (kind, message) == (
        *("NotImplementedError",),
        "monty lacks the module threading. no layer here",
    )
    assert await repl.show("kept") == "1"
    assert (await repl.fail("exec('(5).bit_length()')"))[0] == "AttributeError"
    assert place(repl) == "monty"


async def test_without_promotion_an_error_says_what_is_missing_and_where_it_is(alone: Repl) -> None:
    kind, message = await alone.fail("import threading")
    assert kind == "NotImplementedError"
    assert "the module threading" in message
    assert "environment='local'" in message
    with pytest.raises(SessionError, match="surrogates"):
        await alone.load("\ud800")
    assert await alone.show("1 + 1") == "2"


# -- hostile cells ---------------------------------------------------------------------------------

HOSTILE = {
    "a huge number": "x = 10**10**8",
    "its digits": "str(1 << 40_000_000)",
    "a huge text": "x = 'x' * 10**12",
    "a huge list": "x = [0] * 10**12",
    "a hoard": "x = []\nwhile True: x.append('x' * 10**6 + str(len(x)))",
    "deep recursion": "def f(n): return f(n + 1)\nf(0)",
    "deep data": "x = []\nfor i in range(10**6): x = [x]\nrepr(x)",
    "deep data for the host": "x = []\nfor i in range(10**5): x = [x]\nllm_query(x)",
    "deep source": "x = " + "-" * 50_000 + "1",
    "many arguments for the host": "llm_query_batched(['x'] * 10**6)",
    "much text for the host": "llm_query('x' * 80_000_000)",
    "a flood of prints": "while True: print('x' * 10**5)",
    "a bad pattern": "import re\nre.findall('(a|aa)+$', 'a' * 5_000 + 'b')",
    "a wide format": "'{:>1000000000}'.format(1)",
    "a long join": "','.join(['x' * 10**6] * 10**6)",
    "a sort that is told lies": "sorted(range(10**6), key=lambda x: -x * 10**300)",
    "exec in exec": "c = 'pass'\nfor i in range(200): c = 'exec(' + repr(c) + ')'\nexec(c)",
    "a shadowed report": "_rlm_report = 5",
    "a forged report": "def _rlm_report(*a): return [[['x', 'int', 'y', 1]], None]",
    "a forged submission": "_rlm_ask('hand in', [1, 2, 3], {})",
    "an unknown question": "_rlm_ask('nothing', [], {})",
    "no question at all": "_rlm_ask(1, 2)",
    "names of the host": "_rlm_ask('__class__', [], {})",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_cell_ends_and_harms_nobody(name: str, alone: Repl) -> None:
    other = MontyEnvironment(promote=False)
    bystander = await other.open(FakeHost(), {})
    await alone.run("kept = [1]")
    with contextlib.suppress(SessionDied, ProtocolViolation):
        await alone.run(HOSTILE[name], 1.0)
        assert await alone.show("kept") == "[1]"
    assert (await bystander.execute("1 + 1", timeout_seconds=30)).stdout == "2\n"
    await other.close()


async def test_closing_ends_the_worker_and_may_be_done_twice(
    environment: MontyEnvironment,
) -> None:
    session = await environment.open(FakeHost(), {})
    pid = session._repl.here.interpreter._process._pid
    cell = asyncio.create_task(session.execute("while True: pass", timeout_seconds=60))
    await asyncio.sleep(0.2)
    await asyncio.gather(session.close(), session.close())
    with pytest.raises(SessionDied, match="closed"):
        await cell
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and ") Z " not in state.read_text("utf-8")


_SPINNING = """
import asyncio, sys
from rlm.environments.monty import MontyEnvironment
async def main():
    session = await MontyEnvironment(promote=False).open(None, {})
    print(session._repl.here.interpreter._process._pid, flush=True)
    await session.execute("while True: pass", timeout_seconds=600)
asyncio.run(main())
"""


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_worker_that_spins_does_not_outlive_a_killed_host() -> None:
    host = subprocess.Popen([sys.executable, "-c", _SPINNING], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    time.sleep(1)
    host.kill()
    host.wait()
    host.stdout.close()
    for _ in range(600):
        if not _is_alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, 9)
    raise AssertionError("the worker is still there")


_SHORT = """
import asyncio
from rlm.environments.monty import MontyEnvironment
async def main():
    environment = MontyEnvironment(promote=False)
    session = await environment.open(None, {})
    print((await session.execute("1 + 1", timeout_seconds=60)).stdout)
    if CLOSE: await environment.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("close", [True, False])
def test_a_program_that_used_monty_ends_in_peace(close: bool) -> None:
    for _ in range(3):
        code = _SHORT.replace("CLOSE", str(close))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "2\n\n"), done.stderr


def test_without_the_package_the_problem_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MontyEnvironment.problem() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "rlm-engine[monty]" in (MontyEnvironment.problem() or "")


async def test_it_is_honest_about_its_isolation(environment: MontyEnvironment) -> None:
    facts = await environment.describe()
    assert "no system-call filter" in facts["isolation"]
    assert any("bug" in line for line in facts["missing"])
    assert facts["promotes_to"] == "local"
