"""What cells can do in the container of a task: run commands, read files, write files."""

import asyncio
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult

from rlm.errors import ToolError

__all__ = ["ContainerTools"]

MAX_CHARS = 20_000_000
"""Of one stream of a command: both ends of a longer one."""
MAX_BYTES = 20_000_000
"""Of a file: both ends of a longer one."""
MAX_SECONDS = 3_600

_COPY = """
umask 077
[ -e {path} ] || {{ echo no such file >&2; exit 1; }}
[ -f {path} ] || {{ echo it is not a file >&2; exit 1; }}
size=$(wc -c < {path}) || exit 1
if [ "$size" -le {most} ]; then
    cat < {path}
else
    head -c {half} < {path}
    printf '\\n… (%s bytes are left out) …\\n' $((size - 2 * {half}))
    tail -c {half} < {path}
fi > {copy}
"""


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
        if not isinstance(command, str):
            raise ToolError(f"a command must be a string, not {type(command).__name__}")
        self.commands += 1
        done = await self._execute(command, timeout_seconds)
        return {
            "stdout": _cut(done.stdout or ""),
            "stderr": _cut(done.stderr or ""),
            "exit_code": done.return_code,
        }

    async def read_file(self, path: str) -> str:
        """Return the text of a file in the container; keep it in a variable.

        Of more than 20 MB, both ends are returned.
        """
        whole = await self._absolute(path)
        async with self._copy() as copy:
            # Links are followed, and types checked, in the container: what is downloaded is a copy.
            command = _COPY.format(
                path=quote(whole), copy=copy, most=MAX_BYTES, half=MAX_BYTES // 2
            )
            await self._must(command, f"{path} can't be read")
            with tempfile.TemporaryDirectory(prefix="rlm-harbor-") as folder:
                target = Path(folder) / "file"
                async with self._boundary(f"{path} can't be read"):
                    await self._environment.download_file(copy, target)
                data = _plain_bytes(target, path)
        return data.decode("utf-8", "replace")

    async def write_file(self, path: str, content: str) -> None:
        """Write a text to a file in the container; its folder is made if necessary."""
        if not isinstance(content, str):
            raise ToolError(f"content must be a string, not {type(content).__name__}")
        whole = await self._absolute(path)
        parent = quote(str(PurePosixPath(whole).parent))
        async with self._copy() as copy:
            with tempfile.TemporaryDirectory(prefix="rlm-harbor-") as folder:
                source = Path(folder) / "file"
                source.write_bytes(content.encode("utf-8", "replace"))
                async with self._boundary(f"{path} can't be written"):
                    await self._environment.upload_file(source, copy)
            # Written there, the file keeps its mode, and a folder is not written into.
            command = f"mkdir -p -- {parent} && cat < {copy} > {quote(whole)}"
            await self._must(command, f"{path} can't be written")

    @asynccontextmanager
    async def _copy(self) -> AsyncGenerator[str]:
        """Give the name of a file in the container, which is removed at the end."""
        path = f"/tmp/.rlm-{secrets.token_hex(8)}"  # noqa: S108 - in the container
        try:
            yield path
        finally:
            with suppress(ToolError):
                if (await self._execute(f"rm -f {path}")).return_code != 0:
                    await self._execute(f"rm -f {path}", user="root")  # An upload may be root's.

    @asynccontextmanager
    async def _boundary(self, problem: str) -> AsyncGenerator[None]:
        """Report what an environment of Harbor raises to the model; end what takes too long."""
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except Exception as error:  # the plugin boundary: an environment of Harbor
            raise ToolError(f"{problem}: {str(error) or type(error).__name__}") from error

    async def _must(self, command: str, problem: str) -> None:
        done = await self._execute(command)
        if done.return_code != 0:
            reason = (done.stderr or done.stdout or f"exit code {done.return_code}").strip()
            raise ToolError(f"{problem}: {reason[:500]}")

    async def _absolute(self, path: str) -> str:
        if not isinstance(path, str) or not path or "\0" in path:
            raise ToolError("a path must be a string, such as /app/notes.txt")
        if path.startswith("/"):
            return path
        if self._cwd is None:
            done = await self._execute("pwd")
            found = (done.stdout or "").strip()
            if done.return_code != 0 or not found.startswith("/"):
                raise ToolError("the container does not report its folder; use an absolute path")
            self._cwd = found
        return str(PurePosixPath(self._cwd) / path)

    async def _execute(
        self, command: str, seconds: int | None = None, user: str | None = None
    ) -> ExecResult:
        seconds = self._seconds if seconds is None else seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ToolError(f"timeout_seconds must be a number, not {type(seconds).__name__}")
        if not 1 <= seconds <= MAX_SECONDS:
            raise ToolError(f"timeout_seconds must be from 1 to {MAX_SECONDS:,}, not {seconds}")
        try:
            return await self._environment.exec(
                command, cwd=self._cwd, timeout_sec=int(seconds), user=user
            )
        except Exception as error:  # the plugin boundary: an environment of Harbor
            raise ToolError(f"the command did not run or took too long: {error}") from error


def _plain_bytes(path: Path, name: str) -> bytes:
    """Return the bytes of what was downloaded, unless the container made something else of it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123 - an open descriptor
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > 2 * MAX_BYTES:
                raise ToolError(f"{name} can't be read: it changed in the meantime")
            return file.read()
    except OSError as error:
        raise ToolError(f"{name} can't be read: {error.strerror}") from error


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half:,} characters are left out) …\n{text[-half:]}"
