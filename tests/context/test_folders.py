"""A folder is a dict of texts by name; what is left out is counted with its reason."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.context import StoredContext, files, gathering, store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker

PNG = b"\x89PNG\r\n\x1a\n\0\0"


def reasons(stored: StoredContext) -> dict[str, str]:
    return dict(stored.skipped)


def test_names_are_relative_and_sorted_and_json_stays_text(tmp_path: Path) -> None:
    files = {"b.txt": "two\n", "a/z.md": "three", "a.json": '{"x": 1}', "a/b/c.csv": "", "Z": "é"}
    stored = store_context(make_tree(tmp_path, dict(files)))
    seen = seen_by_worker(stored, 7)
    assert seen == files
    assert list(seen) == sorted(files) == list(stored.documents)
    assert (stored.kind, stored.skipped, stored.notices) == ("json", (), ())
    assert stored.description == (
        "a dict of 5 files, name to text, 18 characters in all "
        "(1 without suffix, 1 .json, 1 .csv, 1 .md, 1 .txt): Z, a.json, a/b/c.csv, a/z.md, b.txt."
    )


def test_the_text_of_a_folder_names_its_documents(tmp_path: Path) -> None:
    stored = store_context(make_tree(tmp_path, {"a.txt": "one\n", "b.txt": 'say "two"'}))
    assert stored.text() == '=== a.txt ===\none\n\n\n=== b.txt ===\nsay "two"'


def test_a_long_list_of_names_is_shortened_with_a_count(tmp_path: Path) -> None:
    tree = {f"{number:02}.txt": "x" for number in range(30)} | {"line\nbreak.txt": "x"}
    told = store_context(make_tree(tmp_path, dict(tree))).description
    assert told.endswith("(31 .txt): " + ", ".join(sorted(tree)[:20]) + " and 11 more.")


@given(st.dictionaries(st.sampled_from(["a", "b/c", "b/d.md"]), st.binary(max_size=30), min_size=1))
def test_any_file_content_is_exact_or_omitted(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_tree(Path(folder), dict(files))
        try:
            stored = store_context(Path(folder))
        except ConfigError:
            return
        seen = seen_by_worker(stored, 5)
    left_out = reasons(stored)
    assert set(left_out.values()) <= {"binary file"}
    assert seen.keys() | left_out.keys() == files.keys()
    for name, text in seen.items():
        if files[name][:2] not in {b"\xff\xfe", b"\xfe\xff"}:
            assert text == files[name].decode("utf-8", "surrogateescape")


@given(st.lists(st.sampled_from(["secret word", "alpha beta", "Zürich!", "{", "a,b"]), min_size=1))
def test_the_description_shows_no_content(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_tree(Path(folder), {"a.txt": "\n".join(lines), "b.csv": "\n".join(lines)})
        told = store_context(Path(folder)).description
    assert not any(each in told for each in ("secret", "alpha", "Zürich"))


# -- what is left out -----------------------------------------------------------------------------


def test_binary_files_are_omitted_and_counted(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {"a.txt": "text", "1.png": PNG, "2": b"\x01\x02\x03a"}
    tree |= {"3.bin": b"a" * 8000 + b"\0", "utf16.txt": "text".encode("utf-16")}
    stored = store_context(make_tree(tmp_path, tree))
    assert stored.documents == ("a.txt", "utf16.txt")
    assert reasons(stored) == dict.fromkeys(("1.png", "2", "3.bin"), "binary file")
    assert stored.description.endswith(": a.txt, utf16.txt. 3 binary files left out.")
    assert stored.notices == ("3 binary files left out: 1.png, 2, 3.bin",)


def test_database_and_parquet_files_are_omitted_and_named(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {"a.txt": "text", "t.parquet": b"PAR1\0\0", "n": b"PAR1"}
    tree |= {"s.db": b"SQLite format 3\0" + bytes(100)}
    stored = store_context(make_tree(tmp_path, tree))
    assert stored.documents == ("a.txt", "n")
    assert stored.notices == (
        "2 tables left out: s.db, t.parquet (pass them as tables, with --table or rlm.tables)",
    )


def test_folders_of_tools_are_omitted(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {"a.py": "1", ".github/ci.yml": "2", ".env.example": "3"}
    tools = (".git", ".venv", "node_modules", "sub/__pycache__", ".mypy_cache")
    tree |= {f"{tool}/x.txt": "no" for tool in tools}
    stored = store_context(make_tree(tmp_path, tree))
    assert stored.documents == (".env.example", ".github/ci.yml", "a.py")
    assert reasons(stored) == dict.fromkeys(tools, "tool folder")


def test_gitignore_files_are_followed(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {
        ".gitignore": "*.log\n!keep.log\n/build/\nsecret\r\n# *.py\n\nout/**\n",
        "a.py": "",
        "a.log": "",
        "keep.log": "",
        "build/x.py": "",
        "sub/build/x.py": "",
        "sub/.gitignore": "*.py\n!a.log\n!build/x.py\n",
        "sub/a.py": "",
        "sub/a.log": "",
        "sub/b.log": "",
        "sub/secret": "",
        "out/a": "",
    }
    stored = store_context(make_tree(tmp_path, tree))
    kept = {".gitignore", "a.py", "keep.log", "sub/.gitignore", "sub/a.log", "sub/build/x.py"}
    assert set(stored.documents) == kept
    assert reasons(stored) == dict.fromkeys(
        ("a.log", "build", "out/a", "sub/a.py", "sub/b.log", "sub/secret"), "ignored entry"
    )
    assert "6 ignored entries left out." in stored.description
    assert stored.notices[0].endswith("a.log, build, out/a and 3 more (by .gitignore)")


def test_gitignore_files_above_apply_inside_a_repository(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {".gitignore": "*.log\n/src/gen/\n/build/\n"}
    tree |= {"src/a.py": "", "src/a.log": "", "src/gen/b.py": "", "build/c.py": ""}
    make_tree(tmp_path, tree)
    assert len(store_context(tmp_path / "src").documents) == 3  # no repository: no rules above
    (tmp_path / ".git").mkdir()
    assert store_context(tmp_path / "src").documents == ("a.py",)
    assert store_context(tmp_path / "build").documents == ("c.py",)  # it was asked for by name


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    outside = make_tree(tmp_path / "outside", {"secret.txt": "secret"})
    folder = make_tree(tmp_path / "in", {"sub/a.txt": "text", ".git/config": "no"})
    (folder / "inner").symlink_to("sub/a.txt")
    (folder / "outer").symlink_to(outside / "secret.txt")
    (folder / "outer_folder").symlink_to(outside)
    (folder / "loop").symlink_to(".")
    (folder / "self").symlink_to("self")
    (folder / "sub" / "up").symlink_to("..")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "config").symlink_to(".git/config")
    stored = store_context(folder)
    assert seen_by_worker(stored) == {"inner": "text", "sub/a.txt": "text"}
    assert reasons(stored) == {
        ".git": "tool folder",
        "config": "link that leads out of the folder",
        "loop": "link to a folder",
        "nowhere": "broken link",
        "outer": "link that leads out of the folder",
        "outer_folder": "link that leads out of the folder",
        "self": "broken link",
        "sub/up": "link to a folder",
    }


def test_pipes_and_sockets_are_omitted_without_waiting(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.txt": "text"})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)  # the name of a socket may not be long
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        stored = store_context(tmp_path)
    assert reasons(stored) == dict.fromkeys(("pipe", "socket"), "special file")


def test_unreadable_files_are_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {"a.txt": "text", "b.txt": "text", "sub/c.txt": "text"})
    real_open, real_scandir = os.open, os.scandir

    def refuse(path: Path, flags: int, *rest: int) -> int:
        if path.name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, *rest)

    def refuse_folder(path: Path | str) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied")
        return real_scandir(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse_folder)
    stored = store_context(tmp_path)
    assert stored.documents == ("a.txt",)
    assert reasons(stored) == {"b.txt": "unreadable entry", "sub": "unreadable entry"}


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes only on Linux")
def test_names_that_are_not_utf8_are_kept(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("text", "utf-8")
    (tmp_path / "ok\n.txt").write_text("text", "utf-8")
    stored = store_context(tmp_path)
    assert seen_by_worker(stored, 3) == {name: "text", "ok\n.txt": "text"}
    assert stored.description.endswith("(2 .txt).")


def test_documents_are_omitted_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("openpyxl", "pdfminer"):
        monkeypatch.setitem(sys.modules, package, None)
    stored = store_context(
        make_tree(tmp_path, {"a.txt": "text", "b.pdf": "%PDF-1.4", "c.XLSX": ""})
    )
    assert reasons(stored) == dict.fromkeys(("b.pdf", "c.XLSX"), "document that needs an extra")
    assert "pip install 'recursivelm[documents]'" in stored.notices[0]


# -- what is refused ------------------------------------------------------------------------------


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{tmp_path} contains no text$"):
        store_context(tmp_path)
    make_tree(tmp_path, {"a.png": PNG})
    with pytest.raises(ConfigError, match=r".* contains no text: 1 binary file left out: "):
        store_context(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_FILES", 3)
    make_tree(tmp_path, {"a": "", "b": "", "c/d": ""})
    assert len(store_context(tmp_path).documents) == 3
    make_tree(tmp_path, {"c/e": ""})
    with pytest.raises(
        ConfigError, match=r"contains more than 3 files; .*: files\(.* in the shell"
    ):
        store_context(tmp_path)
    make_tree(tmp_path, {".gitignore": "c/e\n"})
    with pytest.raises(ConfigError, match="more than 3"):
        store_context(tmp_path)


def test_a_deeply_nested_folder_needs_no_deep_recursion(tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(400):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.txt").write_text("deep", "utf-8")
    finally:
        os.chdir(here)
    assert store_context(tmp_path).documents == ("d/" * 400 + "a.txt",)


def test_files_that_usually_hold_secrets_are_omitted_and_named(tmp_path: Path) -> None:
    names = (".env", ".env.example", "a.txt", "deploy/server.pem", "deploy/b.txt", ".aws/config")
    others = ("docs/secrets.md", "passwords.txt", "src/token/shadow.py")  # They may hold anything.
    make_tree(tmp_path, dict.fromkeys((*names, *others), "text"))
    (tmp_path / "settings.txt").symlink_to(".env")
    stored = store_context(tmp_path)
    assert stored.documents == (".env.example", "a.txt", "deploy/b.txt", *others)
    secrets = (".aws", ".env", "deploy/server.pem", "settings.txt")
    assert reasons(stored) == dict.fromkeys(secrets, "probable secret")
    (notice,) = stored.notices
    assert notice == (
        "4 probable secrets left out: .aws, .env, deploy/server.pem and 1 more "
        "(named like keys or passwords; pass them by name to include them)"
    )


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", {".env.example", "a.txt"}),
        ("**/*.*", {".env.example", "a.txt"}),
        (".e*", {".env.example"}),
        (".env*", {".env", ".env.example"}),
        ("**/.env", {".env"}),
        ("**/*.pem", {"deploy/server.pem"}),
        ("deploy/server.pem", {"deploy/server.pem"}),
    ],
)
def test_secrets_are_included_by_name_or_by_a_pattern_of_their_names(
    tmp_path: Path, pattern: str, found: set[str]
) -> None:
    names = (".env", ".env.example", "a.txt", "deploy/server.pem")
    make_tree(tmp_path, dict.fromkeys(names, "text"))
    stored = store_context(files(pattern, root=tmp_path))
    assert set(stored.documents) == found


def test_a_secret_that_is_named_is_read(tmp_path: Path) -> None:
    make_tree(tmp_path, {".env": "KEY=1", "a.txt": "text"})
    assert store_context(tmp_path / ".env").text() == "KEY=1"
    assert store_context([tmp_path / ".env", tmp_path / "a.txt"]).documents == (".env", "a.txt")
