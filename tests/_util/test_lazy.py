"""Names and patterns that are made when they are first used."""

import re
import subprocess
import sys

import pytest

import rlm.records.journal
from rlm._util.lazy import pattern


def test_a_package_imports_a_name_on_first_access() -> None:
    code = (
        "import sys, rlm.records.journal; before = 'rlm.records.journal.journal' in sys.modules;"
        "rlm.records.journal.Journal; print(before, 'rlm.records.journal.journal' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_every_name_of_a_lazy_package_is_available_and_listed() -> None:
    for name in rlm.records.journal.__all__:
        assert getattr(rlm.records.journal, name).__name__ == name
    assert set(rlm.records.journal.__all__) <= set(dir(rlm.records.journal))


def test_a_missing_name_raises_pythons_usual_error() -> None:
    with pytest.raises(
        AttributeError, match=r"module 'rlm.records.journal' has no attribute 'Nothing'"
    ):
        _ = rlm.records.journal.Nothing


def test_a_pattern_is_compiled_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, int]] = []

    def compile_noted(source: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append((source, flags))
        return original(source, flags)

    original = re.compile
    monkeypatch.setattr(re, "compile", compile_noted)
    word = pattern(r"[a-z]+", re.IGNORECASE)
    assert compiled == []
    assert [found.group() for found in word.finditer("One, two")] == ["One", "two"]
    assert (word.sub("-", "One, two"), word.pattern) == ("-, -", "[a-z]+")
    assert set(compiled) == {(r"[a-z]+", re.IGNORECASE)}
