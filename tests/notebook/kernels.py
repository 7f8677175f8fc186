"""A Jupyter kernel in its own process, and the messages it sends while a cell runs.

Types of jupyter_client are `Any` here: the checkers of this project run where it is not installed.
"""

import importlib
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.shape.tree import ROOT

__all__ = ["Cell", "Kernel", "Output", "kernel"]

SECONDS = 60


class Output(NamedTuple):
    """One message of a cell: `kind` is display_data, execute_result, stream or error."""

    kind: str
    data: dict[str, str]
    display_id: str | None = None

    @property
    def html(self) -> str:
        return self.data.get("text/html", "")

    @property
    def text(self) -> str:
        return self.data.get("text/plain", "")


class Cell(NamedTuple):
    """All that a cell sent, in order."""

    outputs: list[Output]

    def of(self, kind: str) -> list[Output]:
        return [each for each in self.outputs if each.kind == kind]

    @property
    def printed(self) -> str:
        return "".join(each.text for each in self.of("stream"))

    def shown(self) -> list[Output]:
        """What a notebook holds afterwards: updates replace what they update."""
        left: list[Output] = []
        for each in self.outputs:
            places = [n for n, old in enumerate(left) if old.display_id == each.display_id]
            if each.kind == "update_display_data":
                for place in places:
                    left[place] = left[place]._replace(data=each.data)
            else:
                left.append(each)
        return left


class Kernel:
    """Runs cells one after another."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    def run(self, code: str, while_running: Callable[[Output], None] | None = None) -> Cell:
        """Execute code; `while_running` hears of each message as it comes."""
        asked = self._client.execute(code)
        outputs: list[Output] = []
        while True:
            message = self._client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != asked:
                outputs += _strays(message)
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return Cell(outputs)
            if (output := _output(message)) is not None:
                outputs.append(output)
                if while_running is not None:
                    while_running(output)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()


def _strays(message: Any) -> list[Output]:
    """Output that claims to belong to another cell: no test expects one."""
    output = _output(message)
    return [] if output is None else [output._replace(kind=f"stray {output.kind}")]


def _output(message: Any) -> Output | None:
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        return Output(kind, {"text/plain": content["text"]})
    if kind == "error":
        return Output(kind, {"text/plain": f"{content['ename']}: {content['evalue']}"})
    if kind not in {"display_data", "update_display_data", "execute_result"}:
        return None
    return Output(kind, content["data"], content.get("transient", {}).get("display_id"))


@contextmanager
def kernel() -> Generator[Kernel, None, None]:
    """Start a kernel of this Python in the root of the repository."""
    manager = importlib.import_module("jupyter_client.manager").KernelManager()
    spec = importlib.import_module("jupyter_client.kernelspec").KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="rlm tests",
        language="python",
    )
    manager._kernel_spec = spec
    manager.start_kernel(cwd=str(ROOT), env={**os.environ, "PYTHONPATH": str(ROOT)})
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
