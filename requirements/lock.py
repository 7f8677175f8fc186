"""Writes the locks beside this file from pyproject.toml, or says whether they are up to date.

A lock starts with a fingerprint of the tables it was made from, so checking needs no network.
Hashes stay; addresses of registries never get in: an installer takes those from its own settings.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INTEGRATIONS = {
    name: f"plugins/recursivelm-{name}/pyproject.toml"
    for name in ("acp", "dspy", "harbor", "inspect", "pydantic-ai", "verifiers")
}
"""Their dependencies are theirs alone: `uv run` resolves all groups of a project together."""
LOCKS: dict[str, list[str]] = {
    "dev.txt": ["--group", "dev"],
    "core.txt": ["--constraints", "requirements/dev.txt"],
    "documents.txt": [
        *("--group", "dev", "--extra", "documents", "--constraints", "requirements/dev.txt"),
    ],
    "corpus.txt": [
        *("--group", "adapters", "--extra", "corpus", "--constraints", "requirements/dev.txt"),
    ],
    "data.txt": [
        *("--group", "data", "--extra", "tables", "--extra", "postgres"),
        *("--constraints", "requirements/dev.txt"),
    ],
    "places.txt": [
        *("--group", "places", "--extra", "places", "--extra", "tables", "--extra", "corpus"),
        *("--constraints", "requirements/dev.txt"),
    ],
    "otel.txt": [
        *("--group", "otel", "--extra", "otel", "--constraints", "requirements/dev.txt"),
    ],
    "browser.txt": ["--group", "browser", "--constraints", "requirements/dev.txt"],
    "notebook.txt": ["--group", "notebook", "--constraints", "requirements/dev.txt"],
    "sdks.txt": ["--group", "sdks", "--constraints", "requirements/dev.txt"],
    "server-clients.txt": [
        *("--group", "server-clients", "--constraints", "requirements/dev.txt"),
        *("--extra", "server", "--extra", "typed"),
    ],
    "environments.txt": [
        *("--group", "adapters", "--group", "parallel", "--constraints", "requirements/dev.txt"),
        *("--extra", "docker", "--extra", "ipython", "--extra", "wasm"),
    ],
    **{
        f"{name}.txt": ["--group", "adapters", "--extra", name]
        for name in ("daytona", "e2b", "modal", "prime", "ray")
    },
    "eliza.txt": ["--group", "eliza", "--constraints", "requirements/dev.txt"],
    "eliza-upstream.txt": ["--group", "eliza-upstream"],
    "litellm.txt": ["--group", "adapters", "--extra", "litellm"],
    "llm-plugin.txt": [
        *("--group", "dev", "--extra", "llm", "--extra", "wasm"),
        *("--constraints", "requirements/dev.txt"),
    ],
    "local-model.txt": [
        *("--group", "adapters", "--extra", "gguf", "--extra", "llm"),
        *("--constraints", "requirements/dev.txt"),
    ],
    **{
        f"{name}.txt": ["--group", "adapters", "--group", f"{pyproject}:test"]
        for name, pyproject in INTEGRATIONS.items()
    },
    "training.txt": ["--group", "training", "--overrides", "requirements/without-torch.txt"],
    "site.txt": ["--group", "site"],
    "bench-dspy.txt": ["--group", "bench-dspy"],
    "bench-rlms.txt": ["--group", "bench-rlms"],
}
"""In this order: the others take the versions that the development lock settled on.

Not litellm's, the clouds' and the integrations', which want other ones of their own.
"""

WITHOUT_US = ("bench-dspy.txt", "bench-rlms.txt", "site.txt")
"""Environments without rlm and what it needs: of other engines, and of the site."""

MARK = "# made from pyproject.toml, fingerprint "


def fingerprint(root: Path) -> str:
    """A short hash of every table that decides what gets installed."""
    tables = []
    for name in ("pyproject.toml", *INTEGRATIONS.values()):
        pyproject = _read(root / name)
        project = pyproject["project"]
        tables += [
            project.get("requires-python"),
            project.get("dependencies"),
            project.get("optional-dependencies"),
            pyproject.get("dependency-groups"),
            pyproject["build-system"]["requires"],
        ]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16]


def _read(pyproject: Path) -> dict[str, Any]:
    return tomllib.loads(pyproject.read_text("utf-8"))


def complaints(root: Path) -> list[str]:
    """What is wrong with the locks of the project at `root`; empty when they are up to date."""
    wanted = fingerprint(root)
    found = []
    for name in LOCKS:
        lock = root / "requirements" / name
        if not lock.is_file():
            found.append(f"requirements/{name} is missing")
        elif f"{MARK}{wanted}" not in lock.read_text("utf-8").splitlines()[:3]:
            found.append(f"requirements/{name} is older than the dependencies in pyproject.toml")
    return found


def write(root: Path, options: list[str]) -> None:
    """Resolve each lock for every platform and every Python the project supports."""
    for name, inputs in LOCKS.items():
        lock = root / "requirements" / name
        pyproject = _read(root / INTEGRATIONS.get(lock.stem, "pyproject.toml"))
        lowest = pyproject["project"]["requires-python"].removeprefix(">=")
        project = [] if name in WITHOUT_US else ["pyproject.toml"]
        command = [_uv(), "pip", "compile", *project, *inputs, *options]
        command += ["--universal", "--python-version", lowest, "--generate-hashes", "--quiet"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        command += ["--output-file", str(lock)]
        subprocess.run(command, cwd=root, check=True)
        header = f"{MARK}{fingerprint(root)}\n# to change it: edit pyproject.toml, then make lock\n"
        lock.write_text(header + lock.read_text("utf-8"), "utf-8")
        print(f"wrote requirements/{name}")
    # People who work with `uv run` need all extras and groups of the project to fit together.
    subprocess.run([_uv(), "lock", "--dry-run", "--quiet"], cwd=root, check=True)


def _uv() -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("uv", path=path)
    if found is None:
        sys.exit("lock: uv is not installed; run `make lock`, or `pip install uv` first")
    return found


def main(arguments: list[str]) -> int:
    root = HERE.parent
    if arguments != ["--check"]:
        write(root, arguments)
        return 0
    for complaint in complaints(root):
        print(f"lock: {complaint}; run `make lock`", file=sys.stderr)
    return 1 if complaints(root) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
