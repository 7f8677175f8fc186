"""A cloud on this machine: its sandboxes are folders, and what runs in them are real processes.

The doubles of the SDKs (`sdk_*.py` beside this file) stand on it. It notes every call made to them
and every attribute read, by the names that these have in the real SDK; `test_signatures.py` holds
that list against the real thing.
"""

import asyncio
import contextlib
import functools
import importlib.machinery
import inspect
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

__all__ = [
    "Answer",
    "Machine",
    "Model",
    "Program",
    "SandboxOnDisk",
    "Watched",
    "bound_to",
    "fake_module",
    "installed",
    "sdk_call",
]

_READ_BYTES = 1 << 16
_CLEAN = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


class Machine:
    """One provider. `faults` maps the name of a call to the errors that it raises, in turn.

    `hold`: calls that wait for an event; `reached` tells when they do. `cuts_anywhere`: output
    comes in pieces of random sizes, most of them small.
    """

    def __init__(self) -> None:
        self.prefix = f"rlm-cloud-{secrets.token_hex(4)}-"
        self.sandboxes: dict[str, SandboxOnDisk] = {}
        self.made: list[dict[str, Any]] = []
        self.ended: list[str] = []
        self.calls: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self.reads: set[tuple[str, str]] = set()
        self.faults: dict[str, list[BaseException]] = {}
        self.cuts_anywhere = False
        self.open_clients = 0
        self.hold: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}

    def new_sandbox(self, **wishes: Any) -> "SandboxOnDisk":
        """Make one; what was asked for is kept in `made`."""
        sandbox = SandboxOnDisk(self, f"sb{len(self.made):04d}")
        self.made.append(wishes)
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    def note(self, path: str, double: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """A call arrived: remember it, and fail it if the test wishes."""
        self.calls.append((path, double, args, kwargs))
        if self.faults.get(name := path.rpartition(":")[2]):
            raise self.faults[name].pop(0)

    async def hold_up(self, path: str) -> None:
        """Let a call wait until the test lets it continue."""
        if (name := path.rpartition(":")[2]) in self.hold:
            self.reached.setdefault(name, asyncio.Event()).set()
            await self.hold[name].wait()

    def count(self, name: str) -> int:
        """How often a call was made."""
        return sum(path.endswith(f":{name}") for path, *_ in self.calls)

    def processes_left(self) -> list[int]:
        """Return processes whose working folder is that of a sandbox, dead or alive."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.prefix in str((entry / "cwd").readlink()):
                    found.append(int(entry.name))
        return found


class SandboxOnDisk:
    """A folder, and the programs that were started in it."""

    def __init__(self, machine: Machine, number: str) -> None:
        self.machine = machine
        self.id = number
        self.folder = tempfile.mkdtemp(prefix=machine.prefix)
        self.programs: list[Program] = []
        self.is_running = True

    async def run(self, words: Sequence[str]) -> "Program":
        """Start a program with pipes at all its ends, and nothing of ours in its environment."""
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.folder,
            env={**_CLEAN, "HOME": self.folder, "PROVIDERS_SECRET": "hidden"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 22,
            start_new_session=True,
        )
        program = Program(process, self.machine.cuts_anywhere)
        self.programs.append(program)
        return program

    async def end(self) -> None:
        """Kill all of it and remove the folder."""
        if self.is_running:
            self.is_running = False
            self.machine.ended.append(self.id)
            self.machine.sandboxes.pop(self.id, None)
            for program in self.programs:
                await program.kill()
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


class Program:
    """A process, and its output cut as networks cut it."""

    def __init__(self, process: asyncio.subprocess.Process, cuts_anywhere: bool) -> None:
        self.process = process
        self._cuts_anywhere = cuts_anywhere
        self._dice = random.Random(1)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def output(self) -> AsyncIterator[bytes]:
        """What it writes, until it ends."""
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(_READ_BYTES):
            if not self._cuts_anywhere:
                yield data
                continue
            while data:
                size = self._dice.choice((1, 2, 3, 50, 1_000, 20_000))
                yield data[:size]
                data = data[size:]
                await asyncio.sleep(0)

    async def status(self) -> int:
        """As a shell has it: 128 and the signal, if it was one."""
        status = await self.process.wait()
        return status if status >= 0 else 128 - status

    async def kill(self) -> None:
        """The whole group: a shell may have stayed between it and the worker."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        transport: Any = getattr(self.process, "_transport")  # noqa: B009
        transport.close()


# -- what doubles are made of ----------------------------------------------------------------------


class Watched:
    """A class of an SDK. `sdk_path` is `module:Class` there; reads of its attributes are noted."""

    sdk_path: ClassVar[str] = ""
    machine: ClassVar[Machine]

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in {"machine", "sdk_path"}:
            kind = type(self)
            if kind.sdk_path:
                kind.machine.reads.add((kind.sdk_path, name))
        return super().__getattribute__(name)


def sdk_call(path: str) -> Callable[[Callable[..., Any]], Any]:
    """Marks what stands for a function of the SDK, `module:Class.method`; most are coroutines.

    The first parameter, `self` or `cls`, is not part of what is noted.
    """

    def wrap(double: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(double)
        async def noted(owner: Any, *args: Any, **kwargs: Any) -> Any:
            inspect.signature(double).bind(owner, *args, **kwargs)
            await owner.machine.hold_up(path)
            owner.machine.note(path, double, args, kwargs)
            return await double(owner, *args, **kwargs)

        @functools.wraps(double)
        def noted_at_once(owner: Any, *args: Any, **kwargs: Any) -> Any:
            inspect.signature(double).bind(owner, *args, **kwargs)
            owner.machine.note(path, double, args, kwargs)
            return double(owner, *args, **kwargs)

        return noted if inspect.iscoroutinefunction(double) else noted_at_once

    return wrap


class Answer(Watched):
    """A value that the SDK gives us."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._fields.get(name)


class Model(Answer):
    """A value that we give the SDK, made of keywords; the real one is made of them, too, later."""

    def __init__(self, **fields: Any) -> None:
        self.machine.note(self.sdk_path, type(self), (), fields)
        super().__init__(**fields)


def bound_to(machine: Machine, *kinds: type) -> list[Any]:
    """Subclasses that belong to a machine, so that two tests never share one."""
    return [type(kind.__name__, (kind,), {"machine": machine}) for kind in kinds]


def fake_module(name: str, **contents: Any) -> ModuleType:
    """A module as `import` would have left it."""
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(contents)
    return module


@contextlib.contextmanager
def installed(modules: dict[str, ModuleType]) -> Generator[None]:
    """Have these modules imported instead of the real ones."""
    roots = {name.partition(".")[0] for name in modules}
    real = [name for name in sys.modules if name.partition(".")[0] in roots]
    hidden = {name: sys.modules.pop(name) for name in real}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
