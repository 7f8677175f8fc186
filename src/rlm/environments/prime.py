"""`environment="prime"`: Prime Intellect sandboxes, which are virtual machines."""

import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlm.environments._cloud_streams import ended_with
from rlm.environments._clouds import Cloud
from rlm.environments.pipes import Pipe

__all__ = ["PrimeEnvironment"]


class _Sandbox(NamedTuple):
    client: Any
    id: str


class PrimeEnvironment(Cloud):
    """Opens each session in a Prime sandbox. Options have the names that Prime uses.

    `docker_image`: any with Python 3.9 and bash. `timeout_minutes`: Prime ends a sandbox after
    this time, whatever happens here. `network_access`: whether cells have a network. `name`: a
    prefix for names; `labels`: labels to find it by. `cpu_cores`, `memory_gb`, `disk_size_gb`: its
    size. `region`, `team_id`: where it runs, and for whom. `hardened`: add the layers of `local`
    inside. `python`: its interpreter.
    """

    name = "prime"
    start_seconds = 600.0  # On first use, a machine is built from the image.
    carries = "bytes"
    package = "prime_sandboxes"
    key_names = ("PRIME_API_KEY",)
    key_help = "run `prime login`, or set PRIME_API_KEY"
    refusals = frozenset({"PaymentRequiredError", "UnauthorizedError"})
    endings = frozenset({"SandboxNotRunningError"})

    def __init__(
        self,
        *,
        api_key: str | None = None,
        name: str = "rlm-sandbox",
        docker_image: str = "python:3.11-slim",
        timeout_minutes: int = 60,
        network_access: bool = False,
        labels: Sequence[str] = ("rlm",),
        cpu_cores: float = 1.0,
        memory_gb: float = 2.0,
        disk_size_gb: float = 5.0,
        region: str | None = None,
        team_id: str | None = None,
        python: str = "python3",
        hardened: bool = False,
    ) -> None:
        super().__init__(api_key=api_key, python=python, hardened=hardened)
        self._begins = name
        self._choices: dict[str, Any] = {
            "docker_image": docker_image,
            "timeout_minutes": timeout_minutes,
            "network_allowlist": None if network_access else [],  # An empty list allows nothing.
            "labels": list(labels),
            "cpu_cores": cpu_cores,
            "memory_gb": memory_gb,
            "disk_size_gb": disk_size_gb,
            "region": region,
            "team_id": team_id,
        }

    @classmethod
    def has_key(cls) -> bool:
        """Return whether a key is set, in a variable or in the file of `prime login`."""
        file = Path("~/.prime/config.json").expanduser()
        return super().has_key() or ("PRIME_API_KEY" not in os.environ and file.is_file())

    async def make(self, sdk: Any) -> _Sandbox:
        """Make a sandbox and wait until it runs."""
        wish = sdk.CreateSandboxRequest(
            name=f"{self._begins}-{secrets.token_hex(4)}", **self._choices
        )
        client = sdk.AsyncSandboxClient(*([self.api_key] if self.api_key else []))
        try:
            sandbox = _Sandbox(client, (await client.create(wish)).id)
        except BaseException:
            await client.aclose()
            raise
        try:
            await client.wait_for_creation(sandbox.id)
        except BaseException:
            await self.surely_end(sandbox)
            raise
        return sandbox

    async def run(self, sdk: Any, sandbox: _Sandbox, command: Sequence[str]) -> Pipe:
        """Run the command line in a shell, which the worker replaces."""
        client = sandbox.client
        process = await client.open_process(sandbox.id, f"exec {shlex.join(command)}")

        async def how() -> str:
            now = await client.get(sandbox.id)
            if now.status != "RUNNING":
                why = now.termination_reason or now.error_message or "no reason given"
                return f"was ended by Prime: {now.status}, {why}"
            return ended_with(await process.wait())

        return self.pipe(sandbox, write=process.write_stdin, output=aiter(process.stdout), how=how)

    async def end(self, sandbox: _Sandbox) -> None:
        """Delete the sandbox and everything that runs in it."""
        await sandbox.client.delete(sandbox.id)

    async def let_go(self, sandbox: _Sandbox) -> None:
        """Close the client of the sandbox; each sandbox has one, since event loops may differ."""
        await sandbox.client.aclose()

    def id_of(self, sandbox: _Sandbox) -> str:
        """Return the sandbox id."""
        return sandbox.id
