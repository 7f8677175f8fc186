"""Several paths, and patterns."""

from pathlib import Path

import pytest

from rlm.context import ContextValue, FileSet, files, store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ["README.md", "src/a.py", "src/deep/b.py", "src/deep/b.txt", "docs/x.md", "log/a.log"]
    make_tree(tmp_path, {name: name for name in names} | {".gitignore": "*.log\n"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_paths_are_named_relative_to_their_common_folder(tree: Path) -> None:
    stored = store_context([Path("src/deep/b.txt"), tree / "src" / "a.py"])
    assert seen_by_worker(stored) == {"a.py": "src/a.py", "deep/b.txt": "src/deep/b.txt"}
    stored = store_context((Path("src"), Path("docs/../README.md"), Path("src/a.py")))
    assert stored.documents == ("README.md", "src/a.py", "src/deep/b.py", "src/deep/b.txt")
    assert store_context([Path("README.md")]).documents == ("README.md",)


def test_an_explicitly_named_file_is_read_even_if_ignored(tree: Path) -> None:
    stored = store_context([Path(), Path("log/a.log")])
    assert f"{tree.name}/log/a.log" in stored.documents
    assert stored.skipped == ()


@pytest.mark.parametrize("named", [Path("log.gz"), files("log.gz"), Path("orders.parquet")])
def test_a_file_that_is_named_is_never_left_out(tree: Path, named: ContextValue) -> None:
    (tree / "log.gz").write_bytes(b"\x1f\x8b\0\0")
    (tree / "orders.parquet").write_bytes(b"PAR1\0\0\0PAR1")
    given: ContextValue = [named, Path("README.md")]
    if isinstance(named, FileSet):
        given = files("log.gz", "README.md")
    with pytest.raises(ConfigError, match="can't be read beside other files: it is a"):
        store_context(given)
    assert store_context(tree).documents  # A folder leaves it out, and says so.


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*.md"], ["README.md"]),
        (["**/*.md"], ["README.md", "docs/x.md"]),
        (["src/*"], ["src/a.py"]),
        (["src/**"], ["src/a.py", "src/deep/b.py", "src/deep/b.txt"]),
        (["src/**/b.*"], ["src/deep/b.py", "src/deep/b.txt"]),
        (["**/deep/**/*.py", "docs/*"], ["docs/x.md", "src/deep/b.py"]),
        (["s?c/[ab].py"], ["src/a.py"]),
        (["docs", "README.md"], ["README.md", "docs/x.md"]),
        (["log/a.log"], ["log/a.log"]),
        (["./docs/*.md"], ["docs/x.md"]),
    ],
)
@pytest.mark.usefixtures("tree")
def test_patterns_choose_files(patterns: list[str], found: list[str]) -> None:
    assert list(store_context(files(*patterns)).documents) == found


def test_patterns_may_have_another_root(tree: Path) -> None:
    assert store_context(files("**/*.py", root=tree / "src")).documents == ("a.py", "deep/b.py")
    outside = store_context(files("../docs/*.md", "a.py", root=tree / "src"))
    assert outside.documents == ("docs/x.md", "src/a.py")
    assert store_context(files(tree / "docs" / "*.md", root="/")).documents[0].endswith("docs/x.md")


def test_the_root_is_the_folder_where_the_patterns_were_created(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = files("docs/*.md")
    monkeypatch.chdir(tree / "src")
    assert store_context(chosen).documents == ("docs/x.md",)


@pytest.mark.usefixtures("tree")
def test_matching_but_unreadable_files_are_reported() -> None:
    stored = store_context(files("**/*.log", "*.md", "*.rst"))
    assert stored.documents == ("README.md",)
    assert stored.notices == (
        "no file matches **/*.log",
        "no file matches *.rst",
        "1 ignored entry left out: log/a.log (by .gitignore)",
    )


def test_ignore_rules_between_the_root_and_a_pattern_apply(tree: Path) -> None:
    make_tree(tree, {"src/x.log": "", ".gitignore": "*.log\n/src/deep/\n"})
    assert store_context(files("src/**/*")).documents == ("src/a.py",)
    assert store_context(files("src/deep/*.py")).documents == ("src/deep/b.py",)  # asked for


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("patterns", [["*.rst"], ["**/*.log"], ["README.md/*"], ["*.a", "*.b"]])
def test_patterns_that_match_nothing_are_refused(patterns: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"no file matches .*; check the pattern"):
        store_context(files(*patterns))


@pytest.mark.usefixtures("tree")
def test_invalid_lists_are_refused() -> None:
    with pytest.raises(ConfigError, match="a list of files can contain only paths, not str"):
        store_context([Path("README.md"), "README.md"])
    with pytest.raises(ConfigError, match="JSON can represent"):
        store_context(["README.md", Path("README.md")])
    with pytest.raises(ConfigError, match=r"no such file or folder: .*nowhere; check the path"):
        store_context([Path("README.md"), Path("nowhere")])
    with pytest.raises(ConfigError, match=r"no such file or folder: .*nowhere; check the path"):
        store_context(files("nowhere"))
    with pytest.raises(ConfigError, match=r"no such file or folder: .*nowhere; check the path"):
        store_context(files("*.md", "nowhere/*.md"))
    with pytest.raises(ConfigError, match="at least one pattern"):
        files()
