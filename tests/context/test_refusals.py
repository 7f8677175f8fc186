"""What can't be read is refused at once, in one line that says what to do."""

import os
from pathlib import Path

import pytest

import rlm
from rlm.context import store_context
from rlm.errors import ConfigError


def refusal(value: os.PathLike[str]) -> str:
    with pytest.raises(ConfigError) as caught:
        store_context(value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path / "none.txt")
    assert told == f"no such file or folder: {tmp_path}/none.txt; check the path"
    (tmp_path / "a.txt").touch()
    assert "no such file or folder" in refusal(tmp_path / "a.txt" / "b.txt")
    assert "no such file or folder" in refusal(tmp_path / "none.pdf")


def test_a_file_without_read_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("text", "utf-8")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(tmp_path / "a.txt").startswith(f"no permission to read {tmp_path}/a.txt; ")
    monkeypatch.setattr(os, "scandir", refuse)
    assert refusal(tmp_path).startswith(f"no permission to read {tmp_path}; ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_really_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch(0o000)
    assert refusal(tmp_path / "a.txt").startswith("no permission to read")
    (tmp_path / "sub").mkdir(0o000)
    assert refusal(tmp_path / "sub").startswith("no permission to read")
    assert refusal(tmp_path / "sub" / "b.txt").startswith("no permission to read")


def test_a_folder_that_cannot_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_stat = os.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if Path(path).name == ".git":
            raise PermissionError(13, "Permission denied")
        return real_stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert refusal(tmp_path).endswith("contains no text")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == (
        f"{tmp_path}/pipe is a pipe, not a file; read it first and pass its content"
    )
    os.mkfifo(tmp_path / "pipe.pdf")
    assert "is a pipe" in refusal(tmp_path / "pipe.pdf")


def test_a_file_replaced_by_a_pipe_is_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").touch()
    os.mkfifo(tmp_path / "pipe")
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: real_open(tmp_path / "pipe", flags))
    assert "is a pipe" in refusal(tmp_path / "a.txt")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no devices here")
def test_a_device_is_refused() -> None:
    assert "/dev/zero is a device, not a file" in refusal(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("name", "words"),
    [("a\0b", "embedded null"), ("x" * 300, "can't be read: File name too long")],
)
def test_impossible_names_are_refused(tmp_path: Path, name: str, words: str) -> None:
    told = refusal(tmp_path / name)
    assert words in told
    assert told.isprintable()


def test_a_disk_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").touch()

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "open", fail)
    assert refusal(tmp_path / "a.txt").endswith("a.txt can't be read: Input/output error")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("files", "files(): the name is empty; the current folder is '.'"),
        ("table", "the name of a table's file is empty"),
        ("tables", "the name of a table's file is empty"),
        ("place", "place() needs an address"),
        ("database", "database() needs a URL"),
    ],
)
def test_an_empty_name_does_not_stand_for_the_current_folder(name: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        getattr(rlm, name)("")
    assert str(caught.value).startswith(told)
