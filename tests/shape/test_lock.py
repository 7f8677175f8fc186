"""`requirements/lock.py --check` notices a lock that is older than what it was made from."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tests.shape.tree import ROOT

_spec = importlib.util.spec_from_file_location("lock", ROOT / "requirements" / "lock.py")
assert _spec is not None
assert _spec.loader is not None
lock = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lock)


def _copy(folder: Path) -> Path:
    locks = [f"requirements/{each}" for each in lock.LOCKS]
    for name in ("pyproject.toml", *lock.INTEGRATIONS.values(), *locks):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_locks_are_up_to_date() -> None:
    assert lock.complaints(ROOT) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pyproject.toml", '"aiohttp>=', '"aiohttp>'),
        ("pyproject.toml", '"pytest>=', '"pytest>'),
        ("pyproject.toml", ">=3.11", ">=3.12"),
        ("pyproject.toml", '"jsonschema>=', '"jsonschema>'),
        *((each, '"mypy>=', '"mypy>') for each in lock.INTEGRATIONS.values()),
    ],
)
def test_a_changed_dependency_is_noticed(tmp_path: Path, name: str, old: str, new: str) -> None:
    project = _copy(tmp_path) / name
    text = project.read_text("utf-8")
    assert old in text
    project.write_text(text.replace(old, new), "utf-8")
    told = [line.split()[0] for line in lock.complaints(tmp_path)]
    assert told == [f"requirements/{name}" for name in lock.LOCKS]


def test_other_changes_do_not_make_the_locks_stale(tmp_path: Path) -> None:
    project = _copy(tmp_path) / "pyproject.toml"
    project.write_text(
        project.read_text("utf-8").replace("line-length = 100", "line-length = 99"), "utf-8"
    )
    assert lock.complaints(tmp_path) == []


def test_a_missing_lock_is_noticed(tmp_path: Path) -> None:
    (_copy(tmp_path) / "requirements" / "core.txt").unlink()
    assert lock.complaints(tmp_path) == ["requirements/core.txt is missing"]


@pytest.mark.parametrize("name", lock.LOCKS)
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    blocks = re.split(r"\n(?=\S)", text)
    pins = [block for block in blocks if "==" in block.splitlines()[0]]
    assert len(pins) >= 3
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []
