"""Nothing in the repository names a package registry or a path of one machine."""

import re
from pathlib import Path

import pytest

from tests.shape.tree import ROOT, repository_files

# The forbidden texts are put together here, so that this file does not contain them itself.
HOSTS = ["pypi" + ".org", "files." + "pythonhosted", "registry." + "npmjs", "registry." + "yarnpkg"]
FOLDERS = ["ro" + "ot", "ho" + "me", "wo" + "rk", "Us" + "ers"]
PATHS = re.compile(r"(?<![\w.~-])/(?:" + "|".join(FOLDERS) + r")/\w")
LOCK_ADDRESS = re.compile(
    r"^(?!\s*#).*(?:://|--(?:extra-)?index-url|--find-links|\s@\s)", re.MULTILINE
)


def complaints(path: Path, name: str) -> list[str]:
    """What should not be in a file, whatever its kind."""
    text = path.read_bytes().decode("utf-8", "replace")
    found = [f"{name} names the registry {host}" for host in HOSTS if host in text]
    found += [f"{name} holds a path of a machine: {hit.group()}…" for hit in PATHS.finditer(text)]
    if name.startswith("requirements/") and name.endswith(".txt"):
        found += [f"{name} holds an address: {hit.group()}" for hit in LOCK_ADDRESS.finditer(text)]
    return found


def test_the_repository_is_clean() -> None:
    files = repository_files()
    assert ROOT / "pyproject.toml" in files
    found = [line for path in files for line in complaints(path, path.relative_to(ROOT).as_posix())]
    assert not found, "\n".join(found)


def test_lock_files_of_other_tools_are_not_in_the_repository() -> None:
    names = {path.name for path in repository_files()}
    assert names.isdisjoint({"uv.lock", "poetry.lock", "pdm.lock"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "see https://" + HOSTS[0] + "/simple"),
        ("a.toml", "url = 'https://" + HOSTS[1] + ".org/x'"),
        ("a.json", '"resolved": "https://' + HOSTS[2] + '.org/x"'),
        ("a.py", "open('/" + FOLDERS[0] + "/x')"),
        ("a.md", "in /" + FOLDERS[1] + "/somebody/x"),
        ("a.sh", "cd /" + FOLDERS[2] + "/x"),
        ("requirements/dev.txt", "a @ file.whl --hash=sha256:0"),
        ("requirements/dev.txt", "a==1\n--index-url x"),
        ("requirements/dev.txt", "https://example.com/a.whl"),
    ],
)
def test_the_checker_finds_violations(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "file").write_text(text, "utf-8")
    assert len(complaints(tmp_path / "file", name)) == 1


def test_the_checker_accepts_valid_files(tmp_path: Path) -> None:
    text = "a==1 ; sys_platform == 'win32' \\\n    --hash=sha256:0\n# made from pyproject.toml\n"
    (tmp_path / "file").write_text(text, "utf-8")
    assert complaints(tmp_path / "file", "requirements/dev.txt") == []
    (tmp_path / "file").write_text(
        "https://example.com/" + FOLDERS[1] + "/x src/" + FOLDERS[2] + "/x", "utf-8"
    )
    assert complaints(tmp_path / "file", "a.md") == []


def test_files_are_listed_without_git_too(tmp_path: Path) -> None:
    for name in (".gitignore", "kept.py", "sub/kept.md", "sub/x.pyc", ".venv/lib.py", "build/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("*.pyc\n.venv/\nbuild/\n", "utf-8")
    listed = [path.relative_to(tmp_path).as_posix() for path in repository_files(tmp_path)]
    assert listed == [".gitignore", "kept.py", "sub/kept.md"]
