"""What of this machine belongs to the interpreter, and what does not."""

import os
import sys
from pathlib import Path

from rlm.worker.sandbox import interpreter


def test_the_standard_library_is_readable_and_installed_packages_are_not() -> None:
    readable, hidden = interpreter.readable_and_hidden([])
    assert str(Path(os.__file__).parent) in readable
    assert not any(path in {"/", "/usr", sys.prefix, sys.base_prefix} for path in readable)
    assert not any("site-packages" in path for path in readable)
    own = Path(os.__file__).resolve().parent / "site-packages"
    assert (str(own) in hidden) is own.is_dir()


def test_a_granted_path_is_not_hidden() -> None:
    _, hidden = interpreter.readable_and_hidden([])
    for path in hidden:
        assert path not in interpreter.readable_and_hidden([path])[1]
        assert path not in interpreter.readable_and_hidden([str(Path(path).parent)])[1]
        readable, still_hidden = interpreter.readable_and_hidden([path + "/package"])
        assert path in still_hidden
        assert path + "/package" not in readable  # It does not exist.


def test_mapped_libraries_are_found() -> None:
    found = interpreter.mapped_libraries()
    assert any("libc" in path for path in found)
    assert all(Path(path).is_file() for path in found)


def test_inside_compares_whole_path_components() -> None:
    assert interpreter.inside("/a/b", "/a")
    assert interpreter.inside("/a", "/a")
    assert interpreter.inside("/a", "/")
    assert not interpreter.inside("/ab", "/a")
    assert not interpreter.inside("/", "/a")


def test_a_folder_can_be_listed_without_a_subfolder(tmp_path: Path) -> None:
    for name in ("lib/python/os.py", "lib/python/site-packages/secret.py", "lib/other/x.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    top = tmp_path.resolve()
    (top / "lib" / "link").symlink_to(top / "lib" / "python" / "site-packages")
    kept, listed = interpreter.without(
        [str(top / "lib"), str(top / "lib" / "python" / "site-packages" / "secret.py")],
        [str(top / "lib" / "python" / "site-packages")],
    )
    assert sorted(kept) == [
        str(top / "lib" / "other"),
        str(top / "lib" / "python" / "os.py"),
        str(top / "lib" / "python" / "site-packages" / "secret.py"),
    ]
    assert sorted(listed) == [str(top / "lib"), str(top / "lib" / "python")]
