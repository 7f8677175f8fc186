"""What was fetched, on disk: private, shared by content, and removed when it is not used."""

import os
import stat
from pathlib import Path

import pytest

from rlm import ConfigError
from rlm.data.places.storing import UNUSED_SECONDS, FetchedFiles


def added(files: FetchedFiles, data: bytes) -> str:
    with files.adding() as unfinished:
        unfinished.write(b"was something else")
        unfinished.restart()
        unfinished.write(data)
        return files.add(unfinished)


def test_contents_are_private_and_shared(cache: Path) -> None:
    files = FetchedFiles()
    one, same, other = added(files, b"1"), added(files, b"1"), added(files, b"2")
    assert (one == same, one == other) == (True, False)
    folder = files.folder({"a/x.txt": one, "y.txt": one, "z.txt": other})
    assert files.folder({"z.txt": other, "y.txt": one, "a/x.txt": one}) == folder
    assert files.folder({"z.txt": one}) != folder
    assert (folder / "a" / "x.txt").read_bytes() == b"1"
    assert (folder / "a" / "x.txt").stat().st_nlink == 4
    for path in (cache, folder, folder / "a"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "y.txt").stat().st_mode) == 0o400
    assert not list(cache.rglob("unfinished-*"))


def test_an_incomplete_content_is_removed(cache: Path) -> None:
    files = FetchedFiles()

    def fail() -> None:
        with files.adding() as unfinished:
            unfinished.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_known_version_is_used_only_if_its_content_exists(cache: Path) -> None:
    files = FetchedFiles()
    content = added(files, b"12345")
    files.note("v1", content)
    assert (files.known("v1", 5), files.known("v1", None)) == (content, content)
    assert (files.known("v1", 6), files.known("v2", 5)) == (None, None)
    for record in (cache / "versions").glob("*/*"):
        record.write_text("../../etc/passwd")
    assert files.known("v1", 5) is None


def test_a_folder_is_updated_in_place(cache: Path, tmp_path: Path) -> None:
    files = FetchedFiles()
    one, two = added(files, b"1"), added(files, b"2")
    folder = tmp_path / "mirror"
    folder.mkdir()
    files.lay_out(folder, {"d/a": one, "e/b": one, "c": two})
    kept = (folder / "c").stat()
    files.lay_out(folder, {"d/a": two, "c": two}, {"d/a": one, "e/b": one, "c": two})
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*")) == ["c", "d", "d/a"]
    assert (folder / "d" / "a").read_bytes() == b"2"
    assert (folder / "c").stat().st_ino == kept.st_ino


def test_contents_unused_for_long_are_removed(cache: Path) -> None:
    files = FetchedFiles()
    old, new = files.folder({"a": added(files, b"1")}), files.folder({"b": added(files, b"2")})
    files.note("v", added(files, b"3"))
    long_ago = old.stat().st_mtime - UNUSED_SECONDS - 10
    for path in (old, *(cache / "contents").glob("*/*"), *(cache / "versions").glob("*/*")):
        os.utime(path, (long_ago, long_ago))
    files.forget_unused()
    assert (old.exists(), (new / "b").read_bytes()) == (False, b"2")
    assert [p.read_bytes() for p in (cache / "contents").glob("*/*")] == [b"2"]
    assert list((cache / "versions").glob("*/*")) == []


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
def test_a_cache_folder_writable_by_others_is_refused(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(ConfigError, match="is not safe to use: other users can write to it"):
        FetchedFiles()


def test_an_impossible_cache_folder_is_reported(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file")
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME to a folder of your own"):
        FetchedFiles()
