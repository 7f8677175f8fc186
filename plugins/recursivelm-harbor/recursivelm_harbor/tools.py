"""What cells can do in the container of a task: run commands, read files, write files."""

import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult

from rlm.errors import ToolError

__all__ = ["ContainerTools"]

MAX_CHARS = 20_000_000
"""Of one stream of a command, or of a file: both ends of a longer one."""
MAX_SECONDS = 3_600


class ContainerTools:
    """Tools over one environment. Paths are relative to `cwd`, or to where its shell starts."""

    def __init__(
        self, environment: BaseEnvironment, *, cwd: str | None = None, seconds: int = 120
    ) -> None:
        self._environment = environment
        self._cwd = cwd
        self._seconds = seconds
        self.commands = 0

    def functions(self) -> list[Callable[..., Any]]:
        """Return the tools for cells."""
        return [self.shell, self.read_file, self.write_file]

    async def shell(self, command: str, timeout_seconds: int | None = None) -> dict[str, Any]:
        """Run a bash command in the container of the task. Each call is a new shell.

        Returns {"stdout": text, "stderr": text, "exit_code": number}.
        """
        done = await self._execute(command, timeout_seconds)
        return {
            "stdout": _cut(done.stdout or ""),
            "stderr": _cut(done.stderr or ""),
            "exit_code": done.return_code,
        }

    async def read_file(self, path: str) -> str:
        """Return the text of a file in the container, however large; keep it in a variable."""
        with tempfile.TemporaryDirectory(prefix="rlm-harbor-") as folder:
            target = Path(folder) / "file"
            try:
                await self._environment.download_file(await self._absolute(path), target)
                data = target.read_bytes()
            except ToolError:
                raise
            except Exception as error:  # the plugin boundary: an environment of Harbor
                raise ToolError(f"{path} can't be read: {error}") from error
        return _cut(data.decode("utf-8", "replace"))

    async def write_file(self, path: str, content: str) -> None:
        """Write a text to a file in the container; its folder is made if necessary."""
        whole = await self._absolute(path)
        done = await self._execute(f"mkdir -p {quote(str(PurePosixPath(whole).parent))}")
        if done.return_code != 0:
            raise ToolError(f"the folder of {path} can't be made: {_cut(done.stderr or '')[:500]}")
        with tempfile.TemporaryDirectory(prefix="rlm-harbor-") as folder:
            source = Path(folder) / "file"
            source.write_bytes(content.encode("utf-8", "replace"))
            try:
                await self._environment.upload_file(source, whole)
            except Exception as error:  # the plugin boundary: an environment of Harbor
                raise ToolError(f"{path} can't be written: {error}") from error

    async def _absolute(self, path: str) -> str:
        if not isinstance(path, str) or not path or "\0" in path:
            raise ToolError("a path is a text, such as /app/notes.txt")
        if path.startswith("/"):
            return path
        if self._cwd is None:
            self._cwd = ((await self._execute("pwd")).stdout or "/").strip()
        return str(PurePosixPath(self._cwd) / path)

    async def _execute(self, command: str, seconds: int | None = None) -> ExecResult:
        seconds = self._seconds if seconds is None else seconds
        if not 1 <= seconds <= MAX_SECONDS:
            raise ToolError(f"timeout_seconds is 1 to {MAX_SECONDS:,}, not {seconds}")
        self.commands += 1
        try:
            return await self._environment.exec(command, cwd=self._cwd, timeout_sec=seconds)
        except Exception as error:  # the plugin boundary: an environment of Harbor
            raise ToolError(f"the command was not run, or took too long: {error}") from error


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half:,} characters are left out) …\n{text[-half:]}"
