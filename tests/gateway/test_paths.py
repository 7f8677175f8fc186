"""Roots: what is inside can be opened, and nothing else, whatever a path looks like."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.data.filesystem.denial import DEFAULT_DENIALS, Denials
from rlm.errors import ConfigError
from rlm.gateway.errors import Refused
from rlm.gateway.listing import files_below, list_page
from rlm.gateway.paths import Root, parts_of

SECRET = b"outside of the root"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with links of every kind, and a secret beside it."""
    outside, inside = tmp_path / "outside", tmp_path / "root"
    (inside / "src" / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_bytes(SECRET)
    (tmp_path / "root-of-others").mkdir()  # a name that begins with that of the root
    (tmp_path / "root-of-others" / "secret.txt").write_bytes(SECRET)
    (inside / "a.txt").write_text("inside")
    (inside / "src" / "deep" / "b.txt").write_text("deep")
    (inside / ".env").write_bytes(SECRET)
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_bytes(SECRET)
    (inside / "env-link").symlink_to(".env")
    (inside / "out").symlink_to(outside)
    (inside / "out.txt").symlink_to(outside / "secret.txt")
    (inside / "others.txt").symlink_to("../root-of-others/secret.txt")
    (inside / "in.txt").symlink_to("src/deep/b.txt")
    (inside / "in").symlink_to("src")
    (inside / "loop").symlink_to("loop")
    (inside / "broken").symlink_to("nowhere")
    os.mkfifo(inside / "pipe")
    return inside


@pytest.fixture
def root(tree: Path) -> Iterator[Root]:
    one = Root(tree, "root", Denials())
    yield one
    one.close()


def content(root: Root, path: str) -> bytes:
    fd = root.open_file(parts_of(path))
    try:
        return os.read(fd, 1_000)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.txt", b"inside"),
        ("./a.txt", b"inside"),
        ("src//deep/./b.txt", b"deep"),
        ("in.txt", b"deep"),
        ("in/deep/b.txt", b"deep"),
    ],
)
def test_files_inside_the_root_can_be_read(root: Root, path: str, text: bytes) -> None:
    assert content(root, path) == text


@pytest.mark.parametrize(
    "path",
    [
        *("..", "../outside/secret.txt", "src/../../outside/secret.txt", "out/secret.txt"),
        *("out.txt", "others.txt", "../root-of-others/secret.txt", "loop", "broken", "pipe"),
        *(".env", ".ENV", "env-link", ".git/config", ".Git/config", "src/.env", ".env."),
        *("/etc/passwd", "//etc/passwd", "~/x", "C:\\x", "C:x", "..\\x", "a.txt\0", "\0"),
        *("", ".", "src", "nowhere", "a.txt/x", "x" * 300, "x/" * 150, "y" * 5_000),
        *("%2e%2e/outside/secret.txt", "．．/outside/secret.txt", "..%2f", "\ud800"),
    ],
)
def test_all_other_paths_are_refused_without_revealing_local_folders(root: Root, path: str) -> None:
    with pytest.raises(Refused) as refused:
        content(root, path)
    assert str(root.path.parent) not in str(refused.value)


PIECES = st.sampled_from(
    [
        *("..", ".", "", "/", "//", "\\", "\0", "~", "out", "out.txt", "others.txt", "in", "src"),
        *("deep", "b.txt", "a.txt", ".env", ".git", "config", "secret.txt", "outside", "root"),
        *(
            "%2e%2e",
            "%2f",
            "．",
            "．．",
            "‥",
            "․․",
            "\u202e",
            "e\u0301",
            "é",
            "ENV",
            "pipe",
            "loop",
        ),
        *("root-of-others", "C:", "file:", "x" * 260, "\ud800", "\n", " ", "...", "proc", "self"),
    ]
)
PATHS = st.one_of(
    st.text(max_size=60),
    st.lists(PIECES, max_size=8).map("/".join),
    st.lists(PIECES, max_size=8).map("".join),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PATHS)
def test_no_path_leads_outside(root: Root, path: str) -> None:
    try:
        found = content(root, path)
    except Refused:
        return
    assert found in (b"inside", b"deep")


def test_a_constantly_changing_link_never_leads_outside(tree: Path, root: Root) -> None:
    """A folder and a link to outside take turns under one name while it is being read."""
    stop = threading.Event()
    (tree / "real").mkdir()
    (tree / "real" / "secret.txt").write_text("inside")
    (tree / "link").symlink_to(tree.parent / "outside")

    def swap() -> None:
        while not stop.is_set():
            (tree / "real").rename(tree / "turn")
            (tree / "link").rename(tree / "real")
            (tree / "real").rename(tree / "link")
            (tree / "turn").rename(tree / "real")

    (tree / "real").rename(tree / "turn")
    (tree / "turn").rename(tree / "real")
    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    try:
        for _ in range(2_000):
            try:
                seen.add(content(root, "real/secret.txt"))
            except Refused:
                seen.add(b"")
    finally:
        stop.set()
        swapping.join()
    assert SECRET not in seen
    assert b"inside" in seen


def test_a_root_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ConfigError, match="can't be opened"):
            Root(path, "r", Denials())


def test_lists_omit_links_secrets_and_ignored_files(tree: Path, root: Root) -> None:
    (tree / ".gitignore").write_text("*.log\n/build/\n")
    (tree / "build").mkdir()
    (tree / "build" / "x.txt").write_text("")
    (tree / "run.log").write_text("")
    assert [entry.path for entry in files_below(root, ())] == [
        *(".gitignore", "a.txt", "src/deep/b.txt"),
    ]
    everything = [entry.path for entry in files_below(root, (), ignored=True)]
    assert everything == [".gitignore", "a.txt", "build/x.txt", "run.log", "src/deep/b.txt"]
    assert [entry.path for entry in files_below(root, ("src",))] == ["src/deep/b.txt"]
    for path in (("out",), ("..",), ("nowhere",), ("a.txt",)):
        with pytest.raises(Refused):
            list(files_below(root, path))


@given(st.sets(st.text("ab/.-", min_size=1, max_size=6), max_size=30), st.integers(1, 7))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pages_list_every_file_once(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], size: int
) -> None:
    top = tmp_path_factory.mktemp("pages")
    made = set()
    for name in names:
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        path = top.joinpath(*parts, "f")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        except OSError:
            continue
        made.add(path.relative_to(top).as_posix())
    root = Root(top, "r", Denials(()))
    seen: list[str] = []
    after = None
    while True:
        page = list_page(root, (), after, size, ignored=True)
        seen += [entry.path for entry in page.entries]
        assert len(page.entries) <= size
        after = page.after
        if after is None:
            break
    root.close()
    assert len(seen) == len(set(seen))
    assert set(seen) == made


@pytest.mark.parametrize(
    "name", [".env", ".Env", "prod.env", "id_rsa", "id_rsa.pub", "a.PEM", ".ssh"]
)
def test_denials_match_whole_path_components(name: str) -> None:
    denials = Denials()
    assert denials.forbid((name,))
    assert denials.forbid(("src", name, "x"))
    assert not denials.forbid((f"x-{name}-y",))


def test_the_operator_may_deny_more_or_nothing() -> None:
    assert Denials((*DEFAULT_DENIALS, "private*")).forbid(("src", "PrivateNotes"))
    assert not Denials(()).forbid((".env",))
