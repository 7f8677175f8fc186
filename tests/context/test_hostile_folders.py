"""Lines of .gitignore files that are made to take forever, and folders that do not end."""

import asyncio
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm._util.limited import Unwanted, in_thread
from rlm.context import files, store_context
from rlm.data.filesystem import ignoring, walking
from rlm.data.filesystem.ignoring import IgnoreRules
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker
from tests.hostile import ends

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

SLOW_LINES = [
    "*a*a*a*a*a*ab",
    "*a" * 40 + "b",
    "a*" * 100 + "b",
    "?*" * 60 + "b",
    "*[a]" * 60 + "b",
    "**/a/" * 40 + "b",
    "/" + "**/*a*a*a/" * 20 + "b",
    "**/" * 1_000 + "b",
    "/" + "*a" * 100 + "/" + "*a" * 100 + "b",
    "*" * 4_000 + "b",
]


@pytest.mark.parametrize("line", SLOW_LINES, ids=range(len(SLOW_LINES)))
def test_no_gitignore_line_takes_forever(tmp_path: Path, line: str) -> None:
    deep = "/".join(["a" * 100] * 12)
    shallow = "/".join(["a"] * 100)
    make_tree(tmp_path, {f"{deep}/{'a' * 200}": "deep", f"{shallow}/a": "shallow", "b.txt": "b"})
    (tmp_path / ".gitignore").write_text("\n".join([line] * 20), "utf-8")
    with ends():
        seen = seen_by_worker(store_context(tmp_path))
    assert {f"{deep}/{'a' * 200}", f"{shallow}/a", "b.txt"} <= seen.keys()


def test_file_patterns_do_not_take_forever(tmp_path: Path) -> None:
    name = "/".join(["a"] * 40)
    make_tree(tmp_path, {f"{name}/c.txt": "found"})
    with ends():
        with pytest.raises(ConfigError, match="no file matches"):
            store_context(files("**/a/" * 20 + "b.txt", root=tmp_path))
        with pytest.raises(ConfigError, match="no file matches"):
            store_context(files("**/" * 30 + "*c*c*c*c*c*c*c.txt", root=tmp_path))
        assert store_context(files("**/" * 20 + "c.txt", root=tmp_path)).documents == (
            f"{name}/c.txt",
        )


def test_a_file_has_a_bounded_number_of_lines() -> None:
    """Every line is compiled, and tried for every entry."""
    assert len(ignoring.lines_of(b"a\n" * 200_000)) <= 5_000


def test_a_walk_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {f"{number}.txt": "text" for number in range(5)})
    monkeypatch.setattr(walking, "MAX_SECONDS", -1.0)
    with pytest.raises(
        ConfigError, match=r"walking through .* more than -1 s; .* smaller folder, .* in the shell"
    ):
        store_context(tmp_path)


async def test_a_cancelled_walk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {f"{number:02}.txt": "text" for number in range(20)})
    seen: list[str] = []
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def ignore(self: IgnoreRules, name: str, *, is_folder: bool) -> bool:
        seen.append(name)
        begun.set()
        assert go_on.wait(60)
        return False

    def work() -> None:
        try:
            store_context(tmp_path)
        except Unwanted:
            ended.set()
            raise

    monkeypatch.setattr(IgnoreRules, "ignore", ignore)
    task = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 60)
    assert seen == ["00.txt"]


# -- as git does ----------------------------------------------------------------------------------

PIECES = [
    *("a", "b", "ab", ".", "-", "*", "**", "***", "?", "/", "//", "**/", "/**", "/**/", "\\"),
    *("[a]", "[!a]", "[^a]", "[a-b]", "[b-a]", "[]a]", "[]", "[!]", "[a", "[[:alpha:]]", "[[:x:]]"),
    *(
        "[[:digit:]b]",
        "[a-]",
        "[-a]",
        "[\\]]",
        "[\\a-b]",
        "[[:",
        "[/]",
        "[!/]",
        "!",
        "#",
        " ",
        "\\ ",
    ),
    *("\\*", "\\/", "**\\/", "é", "?é", "[é]", "\t", "1", "[[:space:]]", "[[:punct:]]", "[.-1]"),
]
PATTERN = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
PART = st.text("abé1. -*[]!\\", min_size=1, max_size=4).filter(lambda part: part.strip(". "))
NAME = st.lists(PART, min_size=1, max_size=4).map("/".join)


def ignored_by_us(lines: str, name: str, folder: Path) -> bool:
    """A file, or one of the folders on the way to it."""
    rules = IgnoreRules().entering(folder, "")
    parts = name.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return any(rules.ignore(each, is_folder=True) for each in above) or rules.ignore(
        name, is_folder=False
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@needs_git
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PATTERN, min_size=1, max_size=3), st.lists(NAME, min_size=1, max_size=25))
def test_every_gitignore_line_means_what_it_means_to_git(
    repository: Path, lines: list[str], names: list[str]
) -> None:
    text = "\n".join(lines)
    (repository / ".gitignore").write_bytes(os.fsencode(text) + b"\n")
    listed = subprocess.run(
        ["git", "-C", str(repository), "check-ignore", "--no-index", "--stdin", "-z"],
        input=b"".join(os.fsencode(name) + b"\0" for name in names),
        capture_output=True,
        check=False,
    ).stdout
    by_git = {os.fsdecode(name) for name in listed.split(b"\0") if name}
    by_us = {name for name in names if ignored_by_us(text, name, repository)}
    assert by_us == by_git & set(names), text
