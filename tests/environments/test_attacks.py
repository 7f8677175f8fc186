"""The attack list: what can work does work on the unprotected control, or it proves nothing."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlm.environments.local import LocalEnvironment
from rlm.errors import CallRefused
from rlm.protocols import Environment, Host, Session
from rlm.results import CellResult
from rlm.testing.attacks import ATTACKS, attack, attempt, judges
from rlm.testing.attacks.attempt import Attack, Outcome
from rlm.testing.attacks.world import World
from rlm.testing.conformance import Report, Row
from rlm.testing.conformance.vault import Vault
from tests.environments.plain import PlainEnvironment
from tests.environments.test_conformance import BrokenEnvironment, Wrapped, without

GROUPS = list(dict.fromkeys(each.group for each in ATTACKS))
LONG = {"endless", "protocol", "resources"}
"""These take many seconds; `make test-all` has them."""

HELD_BY_THE_HOST = {"endless", "deaths", "protocol", "proxies"}
"""Groups that the host's side of a session stops, whatever the environment."""

HELD = {
    "find other sessions' contexts in inherited memory and files",
    "learn where things are in another session's memory",
    "talk to another session through the flags of stdin",
    "forge an answer through the worker's own objects",
    "make the host's cleanup follow a link",
    "read another session's context in its open files",
    "read inherited files",
    "read keys in /proc/self/environ",
    "read keys in os.environ",
    "search its own memory for others' secrets",
    "search its own Python objects for others' secrets",
    "take memory with shared mappings",
    "take memory on the heap",
    "walk the worker's frames and change their contents",
    "write to the host's own terminal or files as stdin, stdout or stderr",
    *(each.name for each in ATTACKS if each.raises),
}
"""What even the control is too careful, or too simple, for. That these are noticed where they work
is shown below, on environments that are careless in one way each."""

UNREAD = "ask for a lot and never read the answers"
"""Works wherever the host answers faster than it is listened to, and does not wait."""

NEEDS_ROOT = {
    "become another user",
    "change the mode of the host's /dev/null through stdin, stdout or stderr",
    "change the mode of the host's /dev/null, opened by name",
    "change the owner of an inherited file (fchown)",
    "change the root folder (chroot)",
    "change the times of the host's /dev/null (futimens)",
    "copy a mount tree (open_tree)",
    "enter the namespace of another process (setns)",
    "hold capabilities (capset)",
    "join another group",
    "create a device and open it (mknod)",
    "create a bpf map",
    "create a network namespace",
    "mount with the new calls (fsopen)",
    "mount something",
    "open a device of the machine",
    "open a packet socket",
    "open a raw socket",
    "open a kernel setting for writing",
    "read it through a file handle (open_by_handle_at)",
    "read the kernel's log",
    "rename the machine",
    "restart the machine",
    "set the clock",
    "swap the root folder (pivot_root)",
    "take a lease on a file, to be notified when it is opened",
    "take kernel memory with large pipes (F_SETPIPE_SZ)",
}

DEPENDS = {
    "become root",
    "find the host's virtual environment in Python's own settings",
    "get a handle on the host (SO_PEERPIDFD)",
    "take 50,000 of the user's epoll watches",
    "take kernel memory with thousands of sockets",
    "take the user's keys (add_key)",
    "take the user's locked memory (mlock)",
    "take the user's message queues (mq_open)",
    "catch page faults (userfaultfd)",
    "leave a folder that no one can enter",
    "load a module into the kernel",
    "load another kernel",
    "create a user namespace and mount in it",
    "make an io_uring",
    "raise its own hard limits",
    "raise its own limits, then take memory",
    "read it through the root of process 1",
    "talk to the machine's host over vsock",
    "use the kernel's ciphers (AF_ALG)",
    "use the kernel's keyrings (keyctl)",
    "watch processor events (perf)",
}
"""What depends on the kernel, its settings, the limits we were started with, who process 1 is,
or on the worker, which the control shares with every other environment."""


VISIBLE = {
    "see how full a disk of the host is (statfs)",
    "see that a path exists (stat)",
    "see the size and time of a file (stat)",
    "see where a link points (readlink)",
}
"""What Landlock does not rule over."""

TOO_DEEP = "leave a folder that is nested too deeply to remove"


def may_do_everything() -> bool:
    """Whether this process has the capabilities that a root without a container has."""
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:\t")[2].split()[0], 16)
    return all(held >> bit & 1 for bit in (2, 12, 13, 18, 21, 22, 25, 27))


def expected(row: Row) -> set[str]:
    if row.name in VISIBLE:
        return {"visible"}
    if row.name in DEPENDS or (row.name in NEEDS_ROOT and not may_do_everything()):
        return {"SUCCEEDED", "stopped", "not applicable"}
    if row.name == UNREAD:
        return {"SUCCEEDED", "stopped"}
    if row.name == TOO_DEEP and sys.version_info >= (3, 13):  # its rmtree does not recurse
        return {"stopped"}
    held = row.group in HELD_BY_THE_HOST or row.name in HELD
    return {"stopped"} if held else {"SUCCEEDED"}


async def attacked(environment: Environment, only: str) -> Report:
    try:
        return await attack(environment, only=only)
    finally:
        with contextlib.suppress(RecursionError):  # of a folder nested too deep, which succeeds
            await environment.close()


def told(rows: Sequence[Row]) -> str:
    return "\n".join(f"{row.verdict} {row.group}: {row.name} ({row.detail})" for row in rows)


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
async def test_attacks_succeed_on_the_unprotected_control(group: str) -> None:
    report = await attacked(PlainEnvironment(), f"{group}: ")
    assert len(report.rows) == sum(each.group == group for each in ATTACKS)
    wrong = [row for row in report.rows if row.verdict not in expected(row)]
    assert not wrong, told(wrong)


if hasattr(LocalEnvironment, "describe"):  # the hardened form, which says what its layers are

    @pytest.mark.parametrize(
        "group",
        [pytest.param(group, marks=pytest.mark.heavy if group in LONG else ()) for group in GROUPS],
    )
    async def test_attacks_on_local_are_stopped(group: str) -> None:
        report = await attacked(LocalEnvironment(), f"{group}: ")
        assert report.ok, told(report.bad)


def test_attack_names_are_unique_and_the_lists_name_existing_attacks() -> None:
    names = [each.name for each in ATTACKS]
    assert len(set(names)) == len(names) >= 200
    assert {*HELD, *NEEDS_ROOT, *DEPENDS, *VISIBLE, UNREAD} <= set(names)


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_attack_suite_leaves_nothing_behind() -> None:
    async with World.around(PlainEnvironment()):
        pass  # What the first one opens stays open: the event loop's own.
    handler = signal.getsignal(signal.SIGURG)
    fds = open_fds()
    async with World.around(PlainEnvironment()) as world:
        folder, victim = world.folder, world.victim
        assert folder.exists()
        assert victim.is_alive
        assert "RLM_CHECK_API_KEY" in os.environ
        (folder / "deep" / "er").mkdir(parents=True)
    assert not folder.exists()
    assert not victim.is_alive
    assert "RLM_CHECK_API_KEY" not in os.environ
    assert signal.getsignal(signal.SIGURG) is handler
    assert open_fds() <= fds, "what earlier tests opened may be closed at any time"


# -- a host that is careless with its objects ------------------------------------------------------

CARELESS_ROWS = {
    "use unexposed members of an object by name",
    "forge the names of members in frames",
    "add members to a proxy",
    "set a fixed argument",
    "change a method's default, or its returned value",
}


async def test_the_suite_detects_a_host_that_looks_up_members_by_any_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a host must not do: follow the name in the frame, and pass on what a cell sends."""

    class Careless:
        def __init__(self, vault: Vault) -> None:
            self.vault = vault

        async def answer(self, kind: str, arguments: dict[str, Any], parts: Any) -> Any:
            found: Any = self.vault
            try:
                for name in arguments["name"].split(".")[1:]:
                    found = getattr(found, "_reveal" if name == "reveal" else name)
                given = dict(arguments["arguments"])
                positional = given.pop("*", [])
                result = found(*positional, **given) if callable(found) else found
                if arguments["name"] == "vault.put":
                    found.__func__.__defaults__[0].append(1)
            except (TypeError, AttributeError, ValueError) as error:
                raise CallRefused(str(error), limit="tools") from None
            return {"json": json.dumps(result, default=str)}, ()

    monkeypatch.setattr("rlm.testing.conformance.bench.bridge_to", Careless)
    report = await attacked(PlainEnvironment(), "proxies: ")
    worked = {row.name for row in report.rows if row.verdict == "SUCCEEDED"}
    assert worked >= CARELESS_ROWS, told(report.rows)


# -- environments that are careless in one way each ------------------------------------------------


@pytest.mark.parametrize(
    ("careless", "row"),
    [
        ("variables", "read keys in os.environ"),
        ("variables", "read keys in /proc/self/environ"),
        ("files", "read inherited files"),
        ("streams", "write to the host's own terminal"),
    ],
)
async def test_the_suite_detects_an_environment_that_starts_carelessly(
    monkeypatch: pytest.MonkeyPatch, careless: str, row: str
) -> None:
    class Careless(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            if "cwd" not in named:  # the victim
                pass
            elif careless == "variables":
                named["env"] = {**os.environ, **named["env"]}
            elif careless == "streams":
                named.update(stdout=None, stderr=None)
            elif named.pop("pass_fds", None):
                os.set_inheritable(int(arguments[0][-2]), True)
                named["close_fds"] = False
            super().__init__(*arguments, **named)

    monkeypatch.setattr("tests.environments.plain.subprocess.Popen", Careless)
    report = await attacked(PlainEnvironment(), row)
    assert [each.verdict for each in report.rows] == ["SUCCEEDED"], report.rows


class Unpickles:
    def __init__(self, host: Host) -> None:
        self.host = host

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        if kind == "llm":
            with contextlib.suppress(pickle.UnpicklingError, UnicodeEncodeError, EOFError):
                pickle.loads(parts[0].encode("latin-1")).close()
        return await self.host.answer(kind, arguments, parts)


class CleansThroughLinks(Wrapped):
    async def close(self) -> None:
        follow(Path(getattr(self.inner, "_worker")._folder))  # noqa: B009 - of the control only
        await super().close()


def follow(folder: Path) -> None:
    for entry in folder.iterdir() if folder.exists() else []:
        if entry.is_symlink() and entry.resolve().is_file():
            entry.resolve().unlink()


class NeverStops(Wrapped):
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        return await super().execute(code, timeout_seconds=1_000)


CARELESS: list[tuple[Callable[[], BrokenEnvironment], str]] = [
    (lambda: BrokenEnvironment(CleansThroughLinks), "cleanup follow a link"),
    (lambda: BrokenEnvironment(choose=without("kept_output_chars")), "flood the output with print"),
    (lambda: BrokenEnvironment(choose=without("cell_memory_bytes")), "take memory on the heap"),
    (lambda: BrokenEnvironment(choose=without("cell_memory_bytes")), "with shared mappings"),
    (lambda: BrokenEnvironment(NeverStops), "endless: spin in C"),
    (lambda: BrokenEnvironment(NeverStops), "half a frame and go silent"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("made", "row"), CARELESS, ids=[row for _, row in CARELESS])
async def test_the_suite_detects_careless_environments(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[], BrokenEnvironment], row: str
) -> None:
    monkeypatch.setattr(attempt, "_OVERTIME_SECONDS", 2.0)
    report = await attacked(made(), row)
    assert [each.verdict for each in report.rows] == ["SUCCEEDED"], report.rows


async def test_the_suite_detects_a_host_that_unpickles() -> None:
    """The raw frame in front of it would end the session before the host is asked."""
    name = "send the host a pickle that opens a file"
    (found,) = [each for each in ATTACKS if each.name == name]
    code = "\n".join(line for line in found.code.splitlines() if not line.startswith("send("))
    async with World.around(BrokenEnvironment(host=Unpickles)) as world:
        spared = Attack(name="pickle", group="test", code=code, judge=judges.touched)
        assert (await spared.task(world).find())[0] == "SUCCEEDED"
        await world.bench.environment.close()


async def test_the_suite_detects_a_file_held_by_the_host(tmp_path: Path) -> None:
    path = tmp_path / "handed"
    path.write_text("x")
    status = path.stat()
    outcome = Outcome(result=CellResult(stdout=f"inode: {status.st_dev} {status.st_ino}\n"))
    world: Any = None
    assert await judges.hands_over_a_file(world, outcome) is None
    with path.open():
        assert await judges.hands_over_a_file(world, outcome) is not None
    assert await judges.shares_standard_streams(world, outcome) is None


# -- attacks that say nothing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "verdict", "words"),
    [
        ("undefined_name", "failed", "the attack itself is broken: NameError"),
        ("got(", "failed", "SyntaxError"),
        ("raise PermissionError('no')", "stopped", "PermissionError: no"),
        ("os.no_such_call()", "stopped", "module 'os' has no attribute"),
        ("syscall('no_such_call')", "not applicable", "no_such_call"),
        ("denied('not today')", "stopped", "not today"),
        ("os._exit(5)", "stopped", "status 5"),
        ("got('it')", "SUCCEEDED", "it"),
    ],
)
async def test_each_outcome_of_an_attack_gets_its_verdict(
    code: str, verdict: str, words: str
) -> None:
    async with World.around(PlainEnvironment()) as world:
        made = Attack(name="a", group="b", code=code, judge=judges.claims)
        found, detail = await made.task(world).find()
        await world.bench.environment.close()
    assert (found, words in detail) == (verdict, True), detail


async def test_a_slow_environment_gets_more_time_for_each_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit around a cell was shorter than its own, where the environment asks for patience."""
    monkeypatch.setattr(attempt, "_OVERTIME_SECONDS", 0.0)
    environment: Any = PlainEnvironment()
    environment.patience = 300.0
    async with World.around(environment) as world:
        code = "import time\ntime.sleep(0.5)\ndenied('in the end')"
        made = Attack(name="a", group="b", code=code, judge=judges.claims, timeout_seconds=0.1)
        assert await made.task(world).find() == ("stopped", "in the end")
        await environment.close()


async def test_a_shared_session_that_died_is_not_used_again() -> None:
    async with World.around(PlainEnvironment()) as world:
        for code, verdict in (("os._exit(5)", "stopped"), ("got(1)", "SUCCEEDED")):
            made = Attack(name="a", group="b", code=code, judge=judges.claims, shares=True)
            assert (await made.task(world).find())[0] == verdict
        first = world.kept_session()
        assert first is not None
        world.keep_session(first)
        assert (await made.task(world).find())[0] == "SUCCEEDED"
        assert world.kept_session() is first
        await world.bench.close(first)


async def test_an_environment_that_cannot_open_fails_every_attack() -> None:
    class Closed(BrokenEnvironment):
        opened = 0

        async def open(self, host: Host, options: dict[str, Any]) -> Session:
            self.opened += 1
            if self.opened > 1:
                raise RuntimeError("nobody is here")
            return await super().open(host, options)

    report = await attacked(Closed(), "network: ")
    assert report.counts == {"failed": sum(each.group == "network" for each in ATTACKS)}
