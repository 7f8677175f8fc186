"""`environment="daytona"`: Daytona sandboxes."""

import math
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlm.environments._cloud_streams import FirstTries, Inbox, ended_with
from rlm.environments._clouds import Cloud
from rlm.environments.pipes import Pipe

__all__ = ["DaytonaEnvironment"]

_CREATE_SECONDS = 150
_SESSION = "rlm"
_TOO_EARLY = "open input pipe"


class _Sandbox(NamedTuple):
    client: Any
    sandbox: Any


class DaytonaEnvironment(Cloud):
    """Opens each session in a Daytona sandbox. Options have the names that Daytona uses.

    `api_key`: by default the one in DAYTONA_API_KEY. `snapshot`: one of yours or Daytona's; or
    `image`, the name of one in a registry or a `daytona.Image`, with `cpu` (cores), `memory` and
    `disk` (GiB). It needs Python 3.9. `timeout`: Daytona ends a sandbox after this many seconds,
    rounded to minutes, whatever happens here; `auto_stop_interval`: after this many minutes without
    activity, 0 for never. `network_access`: whether cells have a network. `name`: a prefix for
    names. `target`: the region. `hardened`: add the layers of `local` inside. `python`: its
    interpreter.
    """

    name = "daytona"
    carries = "lines"
    package = "daytona"
    key_names = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
    key_help = "set DAYTONA_API_KEY to a key from Daytona's dashboard"
    refusals = frozenset({"DaytonaAuthenticationError", "DaytonaForbiddenError"})
    endings = frozenset({"DaytonaNotFoundError"})

    def __init__(
        self,
        *,
        api_key: str | None = None,
        name: str = "rlm-sandbox",
        snapshot: str | None = None,
        image: Any = None,
        cpu: int | None = None,
        memory: int | None = None,
        disk: int | None = None,
        timeout: float = 3_600,
        auto_stop_interval: int = 30,
        network_access: bool = False,
        target: str | None = None,
        python: str = "python3",
        hardened: bool = False,
    ) -> None:
        super().__init__(api_key=api_key, python=python, hardened=hardened)
        self._begins = name
        self._snapshot = snapshot
        self._image = image
        self._size = {"cpu": cpu, "memory": memory, "disk": disk}
        self._choices: dict[str, Any] = {
            "ttl_minutes": max(1, math.ceil(timeout / 60)),
            "auto_stop_interval": auto_stop_interval,
            "ephemeral": True,  # It is deleted when it stops.
            "network_block_all": not network_access,
            "labels": {"made_by": "rlm"},
        }
        self._target = target

    @classmethod
    def has_key(cls) -> bool:
        """Return whether a key is set; the SDK also reads two files in this folder."""
        files = [path for path in (Path(".env.local"), Path(".env")) if path.is_file()]
        text = "\n".join(path.read_text("utf-8", "replace") for path in files)
        return super().has_key() or any(name in text for name in cls.key_names)

    async def make(self, sdk: Any) -> _Sandbox:
        """Make a sandbox; a size can only be chosen together with an image."""
        choices = {**self._choices, "name": f"{self._begins}-{secrets.token_hex(4)}"}
        if self._target is not None:
            choices["target"] = self._target
        if self._image is None:
            if any(self._size.values()):
                raise ValueError("cpu, memory and disk require an image; a snapshot has its own")
            params = sdk.CreateSandboxFromSnapshotParams(snapshot=self._snapshot, **choices)
        else:
            size = sdk.Resources(**self._size)
            params = sdk.CreateSandboxFromImageParams(image=self._image, resources=size, **choices)
        known = [sdk.DaytonaConfig(api_key=self.api_key)] if self.api_key else []
        client = sdk.AsyncDaytona(*known)
        try:
            return _Sandbox(client, await client.create(params, timeout=_CREATE_SECONDS))
        except BaseException as error:
            if number := getattr(error, "sandbox_id", None):  # Too slow, but it is being made.
                await self.surely_end(_Sandbox(client, await client.get(number)))
            await client.close()
            raise

    async def run(self, sdk: Any, sandbox: _Sandbox, command: Sequence[str]) -> Pipe:
        """Run the command in a shell session: terminals drop output that is read too slowly."""
        process = sandbox.sandbox.process
        await process.create_session(_SESSION)
        wish = sdk.SessionExecuteRequest(
            command=shlex.join(command), run_async=True, suppress_input_echo=True
        )
        number = (await process.execute_session_command(_SESSION, wish)).cmd_id
        inbox = Inbox()

        async def take(text: str) -> None:
            await inbox.take(text.replace("\0", ""))  # Some versions pad with these.

        async def pass_over(_: str) -> None:
            """Ignore stderr, to which the worker writes nothing."""

        inbox.until(process.get_session_command_logs_async(_SESSION, number, take, pass_over))

        async def write(data: bytes) -> None:
            await process.send_session_command_input(_SESSION, number, data.decode("ascii"))

        async def how() -> str:
            status = (await process.get_session_command(_SESSION, number)).exit_code
            if status is not None:
                return ended_with(status)
            reason = "no reason given" if inbox.outcome is None else self.words_of(inbox.outcome)
            return f"was lost or ended by Daytona: {reason}"

        return self.pipe(sandbox, write=FirstTries(write, _TOO_EARLY).send, output=inbox, how=how)

    async def end(self, sandbox: _Sandbox) -> None:
        """Delete the sandbox and everything that runs in it."""
        await sandbox.sandbox.delete()

    async def let_go(self, sandbox: _Sandbox) -> None:
        """Close the client of the sandbox; each sandbox has one, since event loops may differ."""
        await sandbox.client.close()

    def id_of(self, sandbox: _Sandbox) -> str:
        """Return the sandbox id."""
        return str(sandbox.sandbox.id)
