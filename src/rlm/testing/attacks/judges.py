"""Decides whether an attack worked, by evidence from outside the sandbox if possible."""

import asyncio
import contextlib
import importlib.util
import os
import signal
from pathlib import Path

from rlm.testing.attacks import machine
from rlm.testing.attacks.attempt import Judge, Outcome
from rlm.testing.attacks.world import World

__all__ = [
    "any_of",
    "arrived",
    "bystander_says",
    "claims",
    "hands_over_a_file",
    "is_hosts_file",
    "is_locked",
    "leaks",
    "litters",
    "no_more_than",
    "only_its_own_session",
    "outlives_its_session",
    "queues_signals",
    "shares_layout",
    "shares_standard_streams",
    "shows",
    "shows_hosts_environment",
    "shows_status_of",
    "signalled",
    "touched",
    "victims_limits_changed",
]


async def leaks(world: World, outcome: Outcome) -> str | None:
    """It showed a secret that its code does not contain."""
    found = world.leaked(outcome.output)
    return f"it read the secret in {', '.join(found)}" if found else None


async def claims(world: World, outcome: Outcome) -> str | None:
    """Its code reports success, which can't be seen from outside."""
    said = outcome.lines("got")
    return said[0][:200] if said else None


async def shows_hosts_environment(world: World, outcome: Outcome) -> str | None:
    """It showed a variable with which the checker itself was started."""
    entries = await asyncio.to_thread(machine.first_environment)
    shown = [entry for entry in entries if len(entry) > 20 and entry in outcome.output]
    return f"it read {len(shown)} of the host's variables" if shown else None


async def only_its_own_session(world: World, outcome: Outcome) -> str | None:
    """It may only harm its own session; harm to others is always checked."""
    return None


def any_of(*judges: Judge) -> Judge:
    """Return the first evidence that one of these judges finds."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        for each in judges:
            if (evidence := await each(world, outcome)) is not None:
                return evidence
        return None

    return judge


async def arrived(world: World, outcome: Outcome) -> str | None:
    """Something arrived at a socket of the checker."""
    for _ in range(5):
        if world.received:
            return f"it reached the {' and '.join(world.received)} socket of the host"
        await asyncio.sleep(0.02)
    return None


def is_hosts_file(path: str | None = None) -> Judge:
    """It reached the very file or folder that the checker sees under that path."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        meant = Path(path) if path is not None else machine.home()
        for line in outcome.lines("inode"):
            device, inode = map(int, line.split())
            if machine.is_same_file(meant, device, inode):
                return f"it reached the host's own {meant}"
        return None

    return judge


async def touched(world: World, outcome: Outcome) -> str | None:
    """A file of the checker was made, changed or removed; it is restored."""
    folder, evidence = world.folder, None
    precious = folder / "precious" / "file.txt"
    made = [*(folder / "open").iterdir(), *machine.shared_files(world.addresses["shared_name"])]
    if made:
        evidence = f"it created {made[0].name} outside"
        for path in made:
            path.unlink()
    elif not precious.exists() or precious.read_text() != "untouched":
        evidence = "it changed or removed a file of the host"
        precious.parent.mkdir(exist_ok=True)
        precious.write_text("untouched")
        precious.chmod(0o666)
    elif machine.shared_segment_exists(world.addresses["shared_key"]):
        evidence = "it created a shared memory segment that the host sees"
        machine.remove_shared("", world.addresses["shared_key"])
    return evidence


async def shares_standard_streams(world: World, outcome: Outcome) -> str | None:
    """Its stdin, stdout or stderr is the checker's own, and not just /dev/null."""
    for line in outcome.lines("inode"):
        device, inode = map(int, line.split())
        if machine.is_same_file(Path(os.devnull), device, inode):
            continue
        for number in (0, 1, 2):
            with contextlib.suppress(OSError):
                ours = os.fstat(number)
                if (ours.st_dev, ours.st_ino) == (device, inode):
                    return f"it has the host's stream {number}"
    return None


async def hands_over_a_file(world: World, outcome: Outcome) -> str | None:
    """A file that it opened is now open in the checker too."""
    held = machine.open_files()
    for line in outcome.lines("inode"):
        device, inode = map(int, line.split())
        if (device, inode) in held:
            return "the host keeps a file that it received"
    return None


async def signalled(world: World, outcome: Outcome) -> str | None:
    """The victim or the checker got a signal."""
    for _ in range(5):
        if signals := world.victim.signals():
            return f"the victim got signal {signals[0]}"
        if world.signals:
            return f"the checker itself got signal {world.signals[0]}"
        if not world.victim.is_alive:
            return "the victim died"
        await asyncio.sleep(0.02)
    return None


async def victims_limits_changed(world: World, outcome: Outcome) -> str | None:
    """A limit or the priority of the victim is not what it was."""
    pid = world.victim.facts["pid"]
    if os.getpriority(os.PRIO_PROCESS, pid) != os.getpriority(os.PRIO_PROCESS, 0):
        world.victim.end()  # We may not be allowed to raise it again.
        return "the victim's priority was changed"
    import resource

    ours, theirs = (resource.prlimit(each, resource.RLIMIT_CORE) for each in (0, pid))
    if ours != theirs:
        world.victim.end()
        return f"a limit of the victim was changed to {theirs}"
    return None


async def outlives_its_session(world: World, outcome: Outcome) -> str | None:
    """A process with the given name is still alive after the session was closed."""
    for _ in range(20):
        if not (pids := machine.processes_named(world.addresses["process_name"])):
            return None
        await asyncio.sleep(0.05)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return f"{len(pids)} of its processes survived the session"


async def litters(world: World, outcome: Outcome) -> str | None:
    """The folder with the given name still exists after the session was closed."""
    left = machine.temporary_folders(world.addresses["shared_name"])
    for folder in left:
        machine.remove_tree(folder)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    if outcome.close_error is not None:
        return outcome.close_error
    return f"{left[0].parent} was left behind" if left else None


def no_more_than(chars: int) -> Judge:
    """More output or a longer answer reached the host than is allowed."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        size = len(outcome.output)
        return f"{size:,} characters reached the host" if size > chars else None

    return judge


def shows(fact: str) -> Judge:
    """It showed a fact of the host, as one of its words; see `World.facts_of_host`."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        value = world.facts_of_host[fact]
        return f"it knows {fact}" if value and value in outcome.output.split() else None

    return judge


async def shows_status_of(world: World, outcome: Outcome) -> str | None:
    """It reported size and time of a file that it can't read."""
    status = (world.folder / "secret.txt").stat()
    seen = f"{status.st_size} {status.st_mtime_ns}" in outcome.lines("status")
    return "it revealed the size and the time of a file of the host" if seen else None


def is_locked(module: str) -> Judge:
    """The host finds the file of a module of the standard library locked."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        found = importlib.util.find_spec(module)
        path = Path(found.origin) if found is not None and found.origin is not None else None
        for line in outcome.lines("inode"):
            device, inode = map(int, line.split())
            if path is None or not machine.is_same_file(path, device, inode):
                continue
            if machine.is_locked(path):
                return f"the host finds {path.name} locked"
        return None

    return judge


def bystander_says(code: str) -> Judge:
    """Another session sees what this one did, and prints SEEN."""

    async def judge(world: World, outcome: Outcome) -> str | None:
        assert world.bystander is not None
        result = await world.bystander.run(code)
        return "another session sees it" if "SEEN" in result.stdout else None

    return judge


async def shares_layout(world: World, outcome: Outcome) -> str | None:
    """Its memory is laid out like that of another session."""
    assert world.bystander is not None
    shown = await world.bystander.run("import ctypes\nprint(id(ctypes), id(Ellipsis))")
    layouts = outcome.lines("layout")
    return (
        "another session has the same" if layouts and layouts[0] == shown.stdout.strip() else None
    )


async def queues_signals(world: World, outcome: Outcome) -> str | None:
    """Thousands of the signals that may be queued for the checker's user are used up."""
    taken = machine.queued_signals() - world.signals_before
    return f"{taken:,} signals of the host's user are queued" if taken > 5_000 else None
