"""A file is replaced as a whole, or not at all."""

import errno
import stat
from pathlib import Path

import pytest

from rlm._util.atomic import replacing


def test_a_new_file_is_renamed_into_place_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_after_a_failure_the_old_file_remains_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_long_file_names_are_supported(tmp_path: Path) -> None:
    with replacing(tmp_path / ("x" * 250)) as file:
        file.write(b"1")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "no" / "folder"):
        pass
    assert [len(each.name) for each in tmp_path.iterdir()] == [250]


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "file"
    with pytest.raises(FileNotFoundError) as gone, replacing(path):
        pass
    assert gone.value.filename == str(path)
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space") as found, replacing(tmp_path / "file"):
        raise full
    assert found.value.filename == str(tmp_path / "file")
