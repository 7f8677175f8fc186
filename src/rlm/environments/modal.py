"""`environment="modal"`: Modal sandboxes, which are containers under gVisor."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm.environments._cloud_streams import ended_with
from rlm.environments._clouds import Cloud
from rlm.environments.pipes import Pipe

__all__ = ["ModalEnvironment"]

_IMAGE = "python:3.13-slim"


class ModalEnvironment(Cloud):
    """Opens each session in a Modal sandbox. Options have the names that Modal uses.

    `image`: the name of one in a registry, or a `modal.Image`; it needs Python 3.9.
    `app_name`: the app they belong to, created if missing. `timeout`: Modal ends a sandbox after
    this many seconds, whatever happens here. `network_access`: whether cells have a network.
    `cpu`: cores, `memory`: MiB; a pair is a reservation and a limit. `region`, `cloud`: where it
    runs. `hardened`: add the layers of `local` inside. `python`: its interpreter.
    """

    name = "modal"
    carries = "bytes"
    package = "modal"
    key_names = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_OAUTH_REFRESH_TOKEN")
    key_help = "run `modal setup`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
    refusals = frozenset({"AuthError", "PermissionDeniedError"})
    endings = frozenset({"NotFoundError"})

    def __init__(
        self,
        *,
        app_name: str = "rlm-sandbox",
        image: Any = _IMAGE,
        timeout: int = 3_600,
        network_access: bool = False,
        cpu: float | tuple[float, float] | None = None,
        memory: int | tuple[int, int] | None = None,
        region: str | Sequence[str] | None = None,
        cloud: str | None = None,
        python: str = "python3",
        hardened: bool = False,
    ) -> None:
        super().__init__(python=python, hardened=hardened)
        self._app_name = app_name
        self._image = image
        self._choices: dict[str, Any] = {
            "timeout": timeout,
            "block_network": not network_access,
            "cpu": cpu,
            "memory": memory,
            "region": region,
            "cloud": cloud,
        }

    @classmethod
    def has_key(cls) -> bool:
        """Return whether a key is set, in a variable or in the file of `modal setup`."""
        file = os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml"
        return super().has_key() or Path(file).expanduser().is_file()

    async def make(self, sdk: Any) -> Any:
        """Make a sandbox without a command; it waits for later commands."""
        app = await sdk.App.lookup.aio(self._app_name, create_if_missing=True)
        image = self._image
        if isinstance(image, str):
            image = sdk.Image.from_registry(image)
        return await sdk.Sandbox.create.aio(app=app, image=image, **self._choices)

    async def run(self, sdk: Any, sandbox: Any, command: Sequence[str]) -> Pipe:
        """Run the command; its standard streams carry bytes."""
        process = await sandbox.exec.aio(*command, text=False)

        async def write(data: bytes) -> None:
            process.stdin.write(data)
            await process.stdin.drain.aio()

        async def how() -> str:
            status = await sandbox.poll.aio()
            if status is not None:
                return f"was ended by Modal, with status {status}"
            return ended_with(await process.wait.aio())

        return self.pipe(sandbox, write=write, output=aiter(process.stdout), how=how)

    async def end(self, sandbox: Any) -> None:
        """End the sandbox; may be called again after it has ended."""
        await sandbox.terminate.aio()

    async def let_go(self, sandbox: Any) -> None:
        """Close the connection that carried its streams."""
        await sandbox.detach.aio()

    def id_of(self, sandbox: Any) -> str:
        """Return the sandbox id, such as `sb-Xq3…`."""
        return str(sandbox.object_id)
