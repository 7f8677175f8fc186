"""The targets of the attacks: files, sockets, a victim, another session, and the checker itself.

Everything is made for one report and removed after it. A context called `target` tells attacks
where things are; they have to find the secrets on their own.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import rlm.environments
from rlm.errors import RLMError
from rlm.protocols import Environment
from rlm.testing.attacks import machine
from rlm.testing.attacks.syscalls import NUMBERS
from rlm.testing.attacks.victim import Victim, new_secret
from rlm.testing.conformance.bench import Bench, Repl

__all__ = ["World"]

_VARIABLE = "RLM_CHECK_API_KEY"
_MAX_GROWTH_BYTES = 250 << 20
_MIN_TELLING_ID = 300
_BYSTANDER = """
import os
kept = 'here'
try:
    with open('notes.txt', 'w') as notes: notes.write(context)
except OSError: pass
print(os.getpid(), os.getcwd())
"""


class World:
    """The targets; use `World.around(environment)`, and call `begin()` before each attack."""

    def __init__(self, environment: Environment) -> None:
        self.bench = Bench(environment)
        self.folder = Path(tempfile.mkdtemp(prefix="rlm-check-")).resolve()
        self.victim = Victim()
        kinds = ("file", "module", "socket", "inherited file", "environment", "context", "link")
        self.secrets = {kind: new_secret(kind.replace(" ", "-")) for kind in kinds}
        self.received: set[str] = set()
        self.signals: list[int] = []
        self.stack = contextlib.AsyncExitStack()
        self.bystander: Repl | None = None
        self._kept: Repl | None = None
        self._meeting = asyncio.Lock()
        self.bystander_facts: dict[str, Any] = {}
        self.addresses: dict[str, Any] = {}
        self.signals_before = 0
        self._before = (0, 0)
        self._at_once = 0
        self._highest = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def around(cls, environment: Environment) -> AsyncGenerator["World", None]:
        """Make a world to attack, and remove it afterwards."""
        world = cls(environment)
        async with world.stack:
            world.stack.callback(machine.remove_tree, world.folder)
            world.stack.callback(lambda: world.victim.end())
            world._put_files()
            world._put_variable()
            world._watch_signals()
            await world._listen()
            world.stack.push_async_callback(world._close_bystander)
            world.stack.push_async_callback(world._close_kept)
            await world.meet_bystander()
            yield world

    # -- making it -------------------------------------------------------------------------------

    def _put_files(self) -> None:
        """Make files that every user may access, so that only the environment protects them."""
        self.folder.chmod(0o755)
        for name, mode in (("open", 0o777), ("precious", 0o777)):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(mode)
        texts = {
            "secret.txt": self.secrets["file"],
            "rlm_check_neighbour.py": f"KEY = {self.secrets['module']!r}",
            "precious/file.txt": "untouched",
            "inherited.txt": self.secrets["inherited file"],
        }
        for name, text in texts.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o666)
        (self.folder / "link").symlink_to(self.secrets["link"])
        fd = os.open(self.folder / "inherited.txt", os.O_RDONLY)
        os.set_inheritable(fd, True)
        self.stack.callback(os.close, fd)
        name = f"rlm-check-{secrets.token_hex(6)}"
        self.addresses.update(
            shared_name=name,
            shared_key=secrets.randbelow(1 << 30) + 1,
            process_name=f"rlm{secrets.token_hex(6)}",
        )
        self.stack.callback(machine.remove_shared, name, self.addresses["shared_key"])

    def _put_variable(self) -> None:
        os.environ[_VARIABLE] = self.secrets["environment"]
        self.stack.callback(os.environ.pop, _VARIABLE, None)

    def _watch_signals(self) -> None:
        """Record signals to the checker itself, where Python allows it."""
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGURG, lambda number, _: self.signals.append(number))
            self.stack.callback(signal.signal, signal.SIGURG, before)

    async def _listen(self) -> None:
        path, abstract = str(self.folder / "socket"), f"\0rlm-check-{secrets.token_hex(6)}"
        tcp = await asyncio.start_server(self._greeter("TCP"), "127.0.0.1", 0)
        self._keep(tcp)
        self._keep(await asyncio.start_unix_server(self._greeter("unix"), path))
        os.chmod(path, 0o777)  # noqa: PTH101, S103 - anybody may, so that only the sandbox forbids
        if machine.IS_LINUX:
            self._keep(await asyncio.start_unix_server(self._greeter("abstract"), abstract))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self.received), ("127.0.0.1", 0)
        )
        self.stack.callback(transport.close)
        self.addresses.update(
            tcp_port=tcp.sockets[0].getsockname()[1],
            udp_port=transport.get_extra_info("sockname")[1],
            socket_path=path,
            abstract_name=abstract[1:],
        )

    def _keep(self, server: asyncio.Server) -> None:
        self.stack.push_async_callback(server.wait_closed)
        self.stack.callback(server.close)

    def _greeter(self, kind: str) -> Any:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.received.add(kind)
            writer.write(self.secrets["socket"].encode())
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        return greet

    # -- the other session -----------------------------------------------------------------------

    async def meet_bystander(self) -> None:
        """Open the other session, with a secret context and a file."""
        self.bystander = bystander = await self.bench.open()
        await bystander.load(self.secrets["context"])
        pid, _, folder = (await bystander.show(_BYSTANDER)).partition(" ")
        self.bystander_facts = {"bystander_pid": int(pid), "bystander_folder": folder}

    async def _close_bystander(self) -> None:
        if self.bystander is not None:
            await self.bench.close(self.bystander)

    # -- a session that harmless attacks share ---------------------------------------------------

    def kept_session(self) -> Repl | None:
        """Return the session that the last attack left, if any; the caller owns it."""
        kept, self._kept = self._kept, None
        return kept

    def keep_session(self, repl: Repl) -> None:
        """Keep a session for the next attack."""
        self._kept = repl

    async def _close_kept(self) -> None:
        if (kept := self.kept_session()) is not None:
            await self.bench.close(kept)

    # -- one attack ------------------------------------------------------------------------------

    def target(self) -> dict[str, Any]:
        """Return what an attack may know."""
        return {
            **self.addresses,
            **self.bystander_facts,
            "secret_file": str(self.folder / "secret.txt"),
            "secret_handle": machine.file_handle(self.folder / "secret.txt"),
            "host_folder": str(self.folder),
            "rlm_folder": str(Path(rlm.environments.__file__).parents[2]),
            "home": str(machine.home()),
            "checker_pid": os.getpid(),
            "victim": self.victim.facts,
            "syscalls": NUMBERS,
        }

    @property
    def facts_of_host(self) -> dict[str, str]:
        """Return a fact about the host that a cell should not learn, or ""."""
        environment = sys.executable if sys.prefix != sys.base_prefix else ""
        # The first processes of a container have small ids, which occur in any text.
        telling = os.getpid() > _MIN_TELLING_ID
        return {
            "the host's process id": str(os.getpid()) if telling else "",
            "where the host's virtual environment is": environment,
            "where rlm is installed": str(Path(rlm.environments.__file__).parents[1] / "worker"),
        }

    def begin(self) -> None:
        """Forget what happened before this attack."""
        if not self.victim.is_alive:
            self.victim.end()
            self.victim = Victim()
        self.victim.signals()
        self.signals.clear()
        self.signals_before = machine.queued_signals()
        self.received.clear()
        self._weigh()

    @contextlib.contextmanager
    def side_by_side(self) -> Generator[None, None, None]:
        """Use this around each of several concurrent attacks; the first records memory in use."""
        if not self._at_once:
            self._weigh()
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1

    def _weigh(self) -> None:
        self._before = (machine.resident_bytes(), _peak_bytes())
        self._highest = 0

    def sample(self) -> None:
        """Sample the checker's own memory; called often while an attack runs."""
        self._highest = max(self._highest, machine.resident_bytes())

    def leaked(self, text: str) -> list[str]:
        """Return which secrets a text contains."""
        everything = {**self.secrets, **self.victim.secrets}
        return [name for name, secret in everything.items() if secret in text]

    async def harm(self) -> str | None:
        """Return what happened outside the sandbox, whatever the target was."""
        if not self.victim.is_alive:
            return "the victim died"
        self.sample()
        resident, peak = self._before
        highest = _peak_bytes() if _peak_bytes() > peak else self._highest
        if highest - resident > _MAX_GROWTH_BYTES:
            return f"the host's memory grew by {(highest - resident) >> 20:,} MB"
        return await self._harm_to_bystander()

    async def _harm_to_bystander(self) -> str | None:
        async with self._meeting:
            harm = await self._ask_bystander()
            if harm is not None:
                await self._close_bystander()
                await self.meet_bystander()
        return harm

    async def _ask_bystander(self) -> str | None:
        assert self.bystander is not None
        try:
            async with asyncio.timeout(10):
                result = await self.bystander.run("kept, context", timeout_seconds=5)
        except (RLMError, TimeoutError) as error:
            return f"another session was harmed: {error or 'it did not respond'}"
        if result.error or result.stdout != f"{('here', self.secrets['context'])!r}\n":
            return f"another session was changed: it shows {result.stdout[:80]!r}"
        return None


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, received: set[str]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._received.add("DNS" if len(data) > 12 else "UDP")


def _peak_bytes() -> int:
    import resource  # Windows has none; there, only the conformance suite can run.

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if machine.IS_LINUX else 1)
