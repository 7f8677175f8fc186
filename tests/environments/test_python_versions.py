"""The same worker on every Python it may meet in a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlm.environments import _clock
from rlm.environments.local import LocalEnvironment

if TYPE_CHECKING:
    from tests.environments.conftest import Repl

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]


def find_python(version: str) -> str | None:
    """An interpreter of that version that really runs, from pyenv or the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python{version}")))
    candidates += [found] if (found := shutil.which(f"python{version}")) else []
    for candidate in candidates:
        # A pyenv shim is on the PATH for every version there is, and fails for most.
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"there is no Python {request.param} here")
    return found


@pytest.fixture
def open_on(python: str, open_repl: Callable[..., Any]) -> Callable[..., Any]:
    """Opens REPLs on that Python through the usual fixture's spelling."""

    async def open_one() -> Repl:
        repl: Repl = await open_repl()
        session = await LocalEnvironment(python=python).open(repl.host, {})
        await repl.session.close()
        repl.session = session
        return repl

    return open_one


@pytest.mark.heavy
async def test_the_worker_runs_on_other_versions(python: str, open_on: Callable[..., Any]) -> None:
    repl = await open_on()
    version = await repl.show("import sys\nprint('%d.%d' % sys.version_info[:2])")
    assert python.endswith(version)
    await repl.load({"a": ["é"]})
    assert await repl.show("context, ctx.describe()") == "({'a': ['é']}, 'dict with 1 key (a)')"
    assert await repl.show("llm_query_batched(['a', 'fail:x'])") == "['re:a', '[call failed: x]']"
    repl.host.hold_until = 20
    gather = "await asyncio.gather(*[llm_query(str(i)) for i in range(20)])"
    assert await repl.show(f"import asyncio\nlen({gather})") == "20"
    repl.host.hold_until = 0
    await repl.run("from concurrent.futures import ThreadPoolExecutor")
    threads = "with ThreadPoolExecutor(8) as pool: r = list(pool.map(llm_query, 'abc'))"
    assert await repl.show(f"{threads}\nr") == "['re:a', 're:b', 're:c']"
    result = await repl.run("def f(x):\n    return 1 / x\nFINAL('kept')\nf(0)")
    assert "return 1 / x" in result.error.traceback
    assert result.submission.text == "kept"
    assert (await repl.run("while True: x = 1", timeout_seconds=0.2)).interrupted
    assert (await repl.fail("a\x00b"))[0] == "SyntaxError"
    assert await repl.show("x") == "1"
    await repl.session.close()


@pytest.mark.heavy
async def test_the_second_interrupt_persists_where_python_allows_it(
    python: str, open_on: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.3)
    repl = await open_on()
    if await repl.show("import sys\nhasattr(sys, 'monitoring')") == "False":
        await repl.session.close()
        pytest.skip("sys.monitoring came with Python 3.12")
    stubborn = (
        "def f():\n    while True:\n"
        "        try: len('x'); len('y')\n        except BaseException: pass\n"
        "while True:\n    try: f()\n    except BaseException: pass"
    )
    result = await repl.run("kept = 1\n" + stubborn, timeout_seconds=0.2)
    assert result.interrupted
    assert await repl.show("llm_query('a'), kept") == "('re:a', 1)"
    await repl.session.close()
