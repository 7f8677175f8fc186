"""Where files can be seen but not read, packages that are not allowed are not found either."""

from pathlib import Path

import pytest

from tests.worker.sandbox.test_sealed import python, run_child

__all__ = ["python"]

SEEN = """
from importlib import import_module, metadata
from rlm_worker.sandbox.preload import hide_others
sys.path.append(settings["folder"])
hide_others([settings["folder"]], settings["names"])
found = []
for name in settings["tried"]:
    try:
        found.append(import_module(name).__name__)
    except ModuleNotFoundError as error:
        found.append(f"not {error.name}")
tell([found, metadata.version("one"), import_module("colorsys").__name__])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "other", "google/allowed", "google/other", "one_more"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "one" / "part.py").touch()
    (tmp_path / "single.py").touch()
    (tmp_path / "one-1.0.dist-info").mkdir()
    (tmp_path / "one-1.0.dist-info" / "METADATA").write_text("Name: one\nVersion: 1.0\n")
    return tmp_path


def test_only_allowed_packages_can_be_found(folder: Path, python: str) -> None:
    tried = ["one.part", "other", "google.allowed", "google.other", "one_more", "single", "on"]
    names = ["one", "google.allowed", "single"]
    found, version, standard = run_child(SEEN, python, folder=str(folder), names=names, tried=tried)
    assert found == [
        *["one.part", "not other", "google.allowed", "not google.other", "not one_more"],
        *["single", "not on"],
    ]
    assert version == "1.0"
    assert standard == "colorsys"
