"""An environment of Harbor over the plain `docker` command, and an image made of local files.

Harbor's own `docker` environment needs `docker compose` and images from a registry.
"""

import asyncio
import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

IMAGE = "rlm-harbor-test"
PROGRAMS = (
    *("bash", "cat", "chmod", "chown", "cp", "find", "grep", "head", "ls", "mkdir", "mv"),
    *("rm", "sleep", "tail", "tar", "test", "touch", "tr", "true", "wc"),
)


def make_image() -> None:
    """Import a few programs of this machine, with the libraries they need, as an image."""
    files = {Path(found) for name in PROGRAMS if (found := shutil.which(name))}
    for program in list(files):
        listed = subprocess.run(("ldd", str(program)), capture_output=True, text=True).stdout
        files |= {Path(word) for word in listed.split() if word.startswith("/")}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", dereference=True) as archive:
        for folder in ("tmp", "app", "logs"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(entry)
        for name, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for file in sorted(files):
            inside = f"usr{file}" if file.parts[1] in ("bin", "lib", "lib64") else str(file)
            archive.add(file, inside.lstrip("/"))
    command = ("docker", "import", "--change", "WORKDIR /app", "-", IMAGE)
    subprocess.run(command, input=data.getvalue(), check=True, capture_output=True)


class ContainerEnvironment(BaseEnvironment):
    """One container, without a network."""

    @staticmethod
    @override
    def type() -> str:
        return "plain-docker"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @override
    def _validate_definition(self) -> None:
        pass

    @property
    def _name(self) -> str:
        return self.session_id.lower().replace("/", "-")

    @override
    async def start(self, force_build: bool) -> None:
        await self._docker(
            *("run", "--detach", "--name", self._name, "--network", "none"),
            *("--label", "rlm.owner=harbor", IMAGE, "sleep", "3600"),
        )
        await self.exec("mkdir -p /logs/agent /logs/verifier /logs/artifacts /tests")

    @override
    async def stop(self, delete: bool) -> None:
        await self._docker("rm", "--force", self._name)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        options: list[str] = [] if cwd is None else ["--workdir", cwd]
        for name, value in (self._merge_env(env) or {}).items():
            options += ["--env", f"{name}={value}"]
        async with asyncio.timeout(timeout_sec):
            return await self._run("exec", *options, self._name, "bash", "-c", command)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._docker("cp", str(source_path), f"{self._name}:{target_path}")

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.exec(f"mkdir -p {target_dir}")
        await self._docker("cp", f"{source_dir}/.", f"{self._name}:{target_dir}")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._docker("cp", f"{self._name}:{source_path}", str(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self._docker("cp", f"{self._name}:{source_dir}/.", str(target_dir))

    async def _docker(self, *arguments: str) -> None:
        done = await self._run(*arguments)
        if done.return_code != 0:
            raise RuntimeError(f"docker {arguments[0]}: {done.stderr}")

    async def _run(self, *arguments: str) -> ExecResult:
        pipe: Any = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "docker", *arguments, stdout=pipe, stderr=pipe
        )
        try:
            out, err = await process.communicate()
        except BaseException:
            process.kill()
            raise
        return ExecResult(
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            return_code=process.returncode or 0,
        )
