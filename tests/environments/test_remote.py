"""Sessions in remote sandboxes: the worker is sent through the pipe, as is everything else."""

import asyncio
import importlib.util
import json
import marshal
import zlib
from pathlib import Path
from typing import Any

import pytest

from rlm.environments import _relay
from rlm.environments._shipping import archive, bootstrap_command
from rlm.errors import ConfigError, ProtocolViolation, SessionDied
from rlm.testing.conformance import CHECKS, check
from rlm.worker import bootstrap, multiplex
from tests.environments.conftest import FakeHost, StoredContext
from tests.environments.remote_sandbox import RemoteBytes, RemoteLines

KINDS = [RemoteBytes, RemoteLines]
GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
QUICK = {"calls"}
NOT_OFFERED = {
    "a full disk is an OSError, and the session goes on",
    "too many processes are an OSError, and the session goes on",
}
KNOWN = {"a context does not count against a cell's memory"}
OPTIONS: dict[str, Any] = {"seed": 0, "tools": []}


async def conforms(kind: type[Any], group: str) -> None:
    environment = kind()
    try:
        report = await check(environment, only=f"{group}: ")
    finally:
        await environment.close()
    bad = [f"{row.name}: {row.detail}" for row in report.bad if row.name not in KNOWN]
    assert report.rows
    assert not bad
    assert {row.name for row in report.rows if row.verdict == "not offered"} <= NOT_OFFERED
    assert all(each.process.returncode is not None for each in environment.programs)


@pytest.mark.parametrize("group", sorted(QUICK & set(GROUPS)))
@pytest.mark.parametrize("kind", KINDS[:1])
async def test_the_remote_environment_conforms(kind: type[Any], group: str) -> None:
    await conforms(kind, group)


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
async def test_all_groups_conform_remotely(kind: type[Any], group: str) -> None:
    await conforms(kind, group)


# -- what only happens remotely --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_remote_sandbox_can_be_hardened_too(kind: type[Any]) -> None:
    environment = kind(hardened=True)
    session = await environment.open(FakeHost(), OPTIONS)
    result = await session.execute("import os\nos.system('true')", timeout_seconds=30)
    assert (await environment.describe())["seccomp"]
    await environment.close()
    assert result.error is not None or "0" not in result.stdout


async def test_cells_do_not_see_the_providers_variables() -> None:
    environment = RemoteBytes()
    session = await environment.open(FakeHost(), OPTIONS)
    code = (
        "import os\n"
        "print('a-key-of' in repr(os.environ) + open('/proc/self/environ').read())\n"
        "print(hash('a'))"
    )
    first = await session.execute(code, timeout_seconds=30)
    second = await (await environment.open(FakeHost(), OPTIONS)).execute(code, timeout_seconds=30)
    await environment.close()
    assert first.stdout.splitlines()[0] == "False"
    assert first.stdout == second.stdout  # The hash seed is fixed.


async def test_packages_installed_in_the_remote_sandbox_can_be_imported() -> None:
    environment = RemoteBytes()
    session = await environment.open(FakeHost(), OPTIONS)
    result = await session.execute("import pytest\npytest.__name__", timeout_seconds=30)
    await environment.close()
    assert result.stdout == "'pytest'\n"


async def test_a_sandbox_that_ends_in_a_cell_is_reported_in_the_providers_words() -> None:
    environment = RemoteBytes()
    session = await environment.open(FakeHost(), OPTIONS)
    cell = asyncio.create_task(session.execute("import time; time.sleep(60)", timeout_seconds=100))
    await asyncio.sleep(0.1)
    environment.programs[0].process.kill()
    with pytest.raises(SessionDied, match="the sandbox ended with status -9"):
        await cell
    await environment.close()


async def test_a_missing_program_is_reported() -> None:
    environment = RemoteBytes(python="/bin/false")
    with pytest.raises(SessionDied, match="the sandbox ended with status 1"):
        await environment.open(FakeHost(), OPTIONS)
    assert all(each.process.returncode is not None for each in environment.programs)
    await environment.close()


async def test_a_large_context_and_large_answers_arrive_in_both_directions() -> None:
    environment = RemoteBytes()
    host = FakeHost()
    session = await environment.open(host, OPTIONS)
    text = "0123456789é" * 500_000
    await session.load("context", StoredContext("text", text.encode()))
    result = await session.execute(
        "len(context), llm_query(context[:2_000_000]) == 're:' + context[:2_000_000]",
        timeout_seconds=60,
    )
    await environment.close()
    assert result.stdout == f"({len(text)}, True)\n"


async def test_an_interrupt_overtakes_unread_answers() -> None:
    """The monitor must not wait for the stream."""
    environment = RemoteBytes()
    host = FakeHost()
    host.reply = lambda prompt: "x" * 3_000_000
    session = await environment.open(host, OPTIONS)
    code = (
        "import threading\n"
        "def ask(): llm_query('a')\n"
        "threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]\n"
        "for each in threads: each.start()\n"
        "while True: pass"
    )
    result = await session.execute(code, timeout_seconds=1)
    assert result.interrupted
    after = await session.execute("len(threads)", timeout_seconds=30)
    await environment.close()
    assert after.stdout == "4\n"


# -- hostile sandboxes -----------------------------------------------------------------------------


class Scripted:
    """A sandbox with scripted output."""

    def __init__(self, *says: bytes) -> None:
        self.says = list(says)
        self.was_closed = False

    async def send(self, data: bytes) -> None:
        return None

    async def receive(self) -> bytes:
        return self.says.pop(0) if self.says else b""

    async def close(self) -> None:
        self.was_closed = True

    async def ending(self) -> str:
        return "went away"


def packed(channel: int, data: bytes) -> bytes:
    return multiplex.Multiplexer().packed(channel, data)


HELLO = packed(multiplex.CONTROL, b"")


@pytest.mark.parametrize(
    ("says", "error", "words"),
    [
        ([], SessionDied, "went away"),
        ([b"\xff" * 10], SessionDied, "broke the protocol"),
        ([HELLO, packed(multiplex.STREAM, b"early")], SessionDied, "before there was"),
        ([HELLO, packed(multiplex.CONTROL, b"\xff\xff\xff\xff")], ProtocolViolation, "report"),
        ([HELLO, packed(multiplex.CONTROL, b"\x02\0\0\0[]")], ProtocolViolation, "malformed"),
        ([HELLO, packed(multiplex.CONTROL, b"\x01\0\0\0[")], ProtocolViolation, "malformed"),
        (
            [HELLO, packed(multiplex.CONTROL, b'\x0f\0\0\0{"error": "no"}')],
            ConfigError,
            "no",
        ),
    ],
)
async def test_messages_from_a_sandbox_are_validated(
    says: list[bytes], error: type[Exception], words: str
) -> None:
    pipe = Scripted(*says)
    relay = _relay.Relay(pipe)
    with pytest.raises(error, match=words):
        await relay.set_up(b"", "{}")
    await relay.close()
    assert pipe.was_closed


# -- shipping --------------------------------------------------------------------------------------


def test_the_worker_is_sent_compiled_only_to_the_same_python_version() -> None:
    assert archive(importlib.util.MAGIC_NUMBER)[:1] == b"C"
    assert archive(b"\0\0\r\n") == archive(None)
    assert len(archive()) < 200_000  # It goes along with every session.


def test_the_bootstrap_program_fits_into_one_argument_of_a_command_line() -> None:
    words = bootstrap_command("python3", "bytes")
    assert all(len(word) < 32_000 for word in words)


async def test_a_traceback_shows_nothing_of_the_worker() -> None:
    environment = RemoteBytes()
    session = await environment.open(FakeHost(), OPTIONS)
    result = await session.execute("1/0", timeout_seconds=30)
    await environment.close()
    assert result.error is not None
    assert "rlm_worker" not in result.error.traceback


def test_library_modules_are_sent_compiled_for_identical_sources() -> None:
    """A process that was reached by a socket, as a container is, loads what it was sent."""
    data = archive(importlib.util.MAGIC_NUMBER)
    worker, library = marshal.loads(data[1:])
    assert {"rlm_worker", "rlm_worker.sandbox.zygote"} <= worker.keys()
    assert {"json", "socket", "re", "asyncio", "asyncio.base_events"} <= library.keys()
    is_package, size, checksum, code = library["json"]
    source = Path(json.__file__).read_bytes()
    assert (is_package, size, checksum) == (True, len(source), zlib.crc32(source))
    assert marshal.loads(code).co_name == "<module>"


@pytest.mark.parametrize("changed", [False, True])
def test_a_library_module_with_a_different_source_is_not_replaced(
    tmp_path: Path, changed: bool
) -> None:
    text = b"value = 1\n"
    (tmp_path / "rlm_sample.py").write_bytes(text + b"#" * changed)
    code = marshal.dumps(compile("value = 'ours'", "elsewhere.py", "exec"))
    finder = bootstrap.Library({"rlm_sample": (False, len(text), zlib.crc32(text), code)})
    finder._folder = str(tmp_path)
    spec = finder.find_spec("rlm_sample")
    assert (spec is None) == changed
    assert finder.find_spec("json") is None
    if spec is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.value == "ours"
        assert module.__file__ == str(tmp_path / "rlm_sample.py")
