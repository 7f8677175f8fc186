"""A session that lost its worker continues from its checkpoint, again and again."""

from __future__ import annotations

import pytest

from rlm.environments import _clock
from rlm.environments.local import LocalEnvironment
from rlm.errors import SessionRestored
from tests.environments.conftest import FakeHost, Repl, checkpointed, out_of_time

WITHOUT = {
    "everything": (),
    "no namespaces": ("namespaces",),
    "sealed": ("namespaces", "landlock"),
}
LOSSES = {
    "os._exit(3)": "exited with status 3",
    "import ctypes; ctypes.string_at(1)": "was killed by SIGSEGV",
    "sum(range(10**12))": "ignored 3 interrupts",
}


@pytest.mark.parametrize("without", WITHOUT.values(), ids=WITHOUT)
async def test_a_session_continues_after_every_kind_of_loss(
    without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    environment = LocalEnvironment(without=without)
    host = FakeHost()
    repl = Repl(await environment.open(host, {}), host)
    await repl.run("import os\nkept = []")
    for count, (code, how) in enumerate(LOSSES.items(), 1):
        await repl.run(f"kept.append({count})")
        await checkpointed(repl)
        with pytest.raises(SessionRestored, match=how):
            await out_of_time(repl, code)
        assert await repl.show("kept, llm_query('a')") == str((list(range(1, count + 1)), "re:a"))
        assert (await repl.run("while True: pass", timeout_seconds=0.1)).interrupted
    await environment.close()
