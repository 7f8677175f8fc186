"""`environment="e2b"`: E2B sandboxes, which are small virtual machines."""

import shlex
from collections.abc import Sequence
from typing import Any

from rlm.environments._cloud_streams import Inbox, ended_with
from rlm.environments._clouds import Cloud
from rlm.environments.pipes import Pipe

__all__ = ["E2BEnvironment"]


class E2BEnvironment(Cloud):
    """Opens each session in an E2B sandbox. Options have the names that E2B uses.

    `template`: a name or id, by default E2B's own with Python; it determines cores and memory.
    `timeout`: E2B ends a sandbox after this many seconds, whatever happens here.
    `network_access`: whether cells have a network. `metadata`: labels to find it by.
    `hardened`: add the layers of `local` inside. `python`: its interpreter.
    """

    name = "e2b"
    carries = "lines"  # Its input is bytes, its output text.
    package = "e2b"
    key_names = ("E2B_API_KEY",)
    key_help = "set E2B_API_KEY to a key from E2B's dashboard"
    refusals = frozenset({"AuthenticationException"})

    def __init__(
        self,
        *,
        api_key: str | None = None,
        template: str | None = None,
        timeout: int = 3_600,
        network_access: bool = False,
        metadata: dict[str, str] | None = None,
        python: str = "python3",
        hardened: bool = False,
    ) -> None:
        super().__init__(api_key=api_key, python=python, hardened=hardened)
        self._choices: dict[str, Any] = {
            "template": template,
            "timeout": timeout,
            "allow_internet_access": network_access,
            "metadata": {"made_by": "rlm", **(metadata or {})},
            "lifecycle": {"on_timeout": "kill"},  # "pause" would keep the sandbox.
        }

    async def make(self, sdk: Any) -> Any:
        """Make a sandbox, in a fraction of a second."""
        key = {"api_key": self.api_key} if self.api_key else {}
        return await sdk.AsyncSandbox.create(**self._choices, **key)

    async def run(self, sdk: Any, sandbox: Any, command: Sequence[str]) -> Pipe:
        """Run the command line in a shell, which the worker replaces."""
        inbox = Inbox()
        handle = await sandbox.commands.run(
            f"exec {shlex.join(command)}",
            background=True,
            stdin=True,
            on_stdout=inbox.take,
            timeout=0,
            retain_output=False,
        )
        inbox.until(handle.wait())

        async def how() -> str:
            if inbox.outcome is None:
                return ended_with(0)
            status = getattr(inbox.outcome, "exit_code", None)
            if status is not None:
                return ended_with(status)
            return f"was lost or ended by E2B: {self.words_of(inbox.outcome)}"

        return self.pipe(sandbox, write=handle.send_stdin, output=inbox, how=how)

    async def end(self, sandbox: Any) -> None:
        """End the sandbox; `kill` returns False if it is already gone."""
        await sandbox.kill()

    def id_of(self, sandbox: Any) -> str:
        """Return the sandbox id."""
        return str(sandbox.sandbox_id)
