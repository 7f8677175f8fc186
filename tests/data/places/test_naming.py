"""Names of objects as paths of files: hostile ones, and equal ones."""

import unicodedata
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.places.naming import MAX_NAME_BYTES, MAX_PART_BYTES, file_names, last_part

PARTS = st.sampled_from(
    ["", ".", "..", "a", "A", "b.txt", "B.TXT", "con", "NUL.txt", " ", "x.", "é", "e\u0301", "\0"]
)
NAMES = st.one_of(st.text(), st.lists(PARTS, min_size=1, max_size=5).map("/".join))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("2026/a.log", "2026/a.log"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        ("/etc/passwd", "%/etc/passwd"),
        ("a//b", "a/%/b"),
        ("a\0b", "a%00b"),
        ("C:\\x", "C%3A%5Cx"),
        ("safe\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe", "safe%E2%80%AEgnp.exe"),
        ("a\nb", "a%0Ab"),
        ("\udc80", "%ED%B2%80"),
        ("nul.txt", "_nul.txt"),
        ("x.", "x._"),
        ("über/größe.txt", "über/größe.txt"),
    ],
)
def test_an_object_name_becomes_a_path(name: str, path: str) -> None:
    assert file_names([name]) == {name: path}


def test_names_that_some_systems_take_for_the_same_are_told_apart() -> None:
    names = ["a.log", "A.log", "é", "e\u0301", "x", "x/y"]
    found = file_names(names)
    assert found["A.log"] == "A.log"
    assert found["a.log"].startswith("a~")
    assert found["a.log"].endswith(".log")
    assert found["x/y"] == "x/y"
    assert found["x"].startswith("x~")
    assert len({unicodedata.normalize("NFC", path).casefold() for path in found.values()}) == 6


def test_a_long_name_keeps_its_suffix() -> None:
    found = file_names(["y" * 10_000 + ".parquet", "/".join(["d"] * 5_000) + "/x.log"])
    assert [len(path.encode()) <= MAX_NAME_BYTES for path in found.values()] == [True, True]
    assert {PurePosixPath(path).suffix for path in found.values()} == {".parquet", ".log"}


@given(st.lists(NAMES, max_size=8))
def test_no_name_leads_outside_or_collides_with_another(names: list[str]) -> None:
    found = file_names(names)
    assert set(found) == set(names)
    paths = list(found.values())
    keys = {unicodedata.normalize("NFC", path).casefold() for path in paths}
    assert len(keys) == len(paths)
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    assert not folders & set(paths)
    for path in paths:
        parts = path.split("/")
        assert all(part not in ("", ".", "..") and part.isprintable() for part in parts)
        assert all(len(part.encode()) <= MAX_PART_BYTES for part in parts)
        assert len(path.encode()) <= MAX_NAME_BYTES
        assert not PurePosixPath(path).is_absolute()
        assert not PureWindowsPath(path).drive
        assert (Path("/folder") / path).is_relative_to("/folder")
        assert file_names([path])[path] == path


@given(st.text())
def test_the_last_part_is_a_single_name(name: str) -> None:
    part = last_part(name)
    assert part not in ("", ".", "..")
    assert "/" not in part
