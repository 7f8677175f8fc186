"""A saved chat from a stranger, or a damaged one: clear errors, and nothing is run."""

import ast
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm import RLM, ConfigError, ScriptedClient
from rlm.chat import inside
from rlm.chat.file import SavedFile
from rlm.chat.inside import Pieces


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A valid saved chat."""
    path = tmp_path / "chat.rlm"
    with RLM(ScriptedClient([code("n = 1\nFINAL(n)")])) as one, one.chat("abc") as chat:
        chat.ask("How?")
        chat.save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, contents: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)


def about(path: Path, **changes: Any) -> None:
    found = members(path)
    plain = {**json.loads(found["chat.json"]), **changes}
    write(path, {**found, "chat.json": json.dumps(plain).encode()})


class Payload:
    """Unpickling this object creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pickle_is_not_executed_on_the_host(path: Path, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    first = pickle.dumps({})
    data = len(first).to_bytes(8, "little") + first + pickle.dumps(({"n": Payload(touched)}, {}))
    found = members(path)
    plain = json.loads(found["chat.json"])
    plain["variables"]["size_bytes"] = len(data)
    plain["variables"]["definitions"] = [["f", f"open({str(touched)!r}, 'w')"]]
    plain["variables"]["imports"] = {"antigravity": "os:system"}
    write(path, {**found, "chat.json": json.dumps(plain).encode(), "variables": data})
    client = ScriptedClient([code("FINAL('went on')")])
    with RLM(client) as one, one.chat(load=path) as chat:
        assert chat.ask("And?").answer == "went on"
        chat.save(tmp_path / "again.rlm")
    assert not touched.exists()
    pickle.loads(pickle.dumps(Payload(touched)))  # what unpickling it would have done
    assert touched.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "another"}, "not a saved chat"),
        ({"version": 99}, "another version of rlm"),
        ({"turns": [{"query_bytes": "1"}]}, "damaged"),
        ({"turns": [{"query_bytes": -1, "answer_bytes": 1}]}, "turns are damaged"),
        ({"turns": [{"query_bytes": 1 << 60, "answer_bytes": 1}]}, "turns are damaged"),
        ({"contexts": 3}, "damaged"),
        ({"summaries": [[]]}, "damaged"),
        ({"variables": {"size_bytes": 7}}, "size of its variables"),
    ],
)
def test_an_invalid_table_of_contents_is_a_clear_error(
    path: Path, change: dict[str, Any], words: str
) -> None:
    about(path, **change)
    with RLM(ScriptedClient([])) as one, pytest.raises(ConfigError, match=words) as caught:
        one.chat(load=path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "context_2", "history_7", "n", "P"])
def test_invalid_context_names_are_refused(path: Path, name: str) -> None:
    plain = json.loads(members(path)["chat.json"])
    about(path, contexts=[{**plain["contexts"][0], "name": name}])
    with pytest.raises(ConfigError, match="names of its contexts"):
        SavedFile(path)


def _twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("texts", b"again")


def _many(path: Path) -> None:
    write(path, {**members(path), **{f"x/{number}": b"" for number in range(20_001)}})


def _bomb(path: Path) -> None:
    write(path, {**members(path), "contexts/1": bytes(65 << 20)})


def _bombs(path: Path) -> None:
    write(path, {**members(path), **{f"contexts/{n}": bytes(64 << 20) for n in range(1, 18)}})


def _other_packing(path: Path) -> None:
    write(path, members(path), zipfile.ZIP_BZIP2)


def _huge_json(path: Path) -> None:
    found = members(path)
    write(path, {**found, "chat.json": found["chat.json"] + b" " * (17 << 20)})


def _deep_json(path: Path) -> None:
    write(path, {**members(path), "chat.json": b"[" * 1_000_000})


def _no_json(path: Path) -> None:
    found = members(path)
    del found["chat.json"]
    write(path, found)


def _comment(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hello"


def _long_list(path: Path) -> None:
    """Its end record declares a far longer list of members than ours ever have."""
    data = path.read_bytes()
    at = len(data) - 22
    path.write_bytes(data[: at + 12] + struct.pack("<L", 1 << 30) + data[at + 16 :])


def _overlapping(path: Path) -> None:
    """Two members that are the same bytes of the file."""
    data = bytearray(path.read_bytes())
    for size_at in _entries(data):
        struct.pack_into("<L", data, size_at, len(data))
    path.write_bytes(bytes(data))


def _entries(data: bytearray) -> list[int]:
    found, at = [], data.find(b"PK\1\2")
    while at >= 0:
        found.append(at + 20)
        at = data.find(b"PK\1\2", at + 1)
    return found


@pytest.mark.parametrize(
    "spoil",
    [
        *(_twice, _many, _bomb, _other_packing, _huge_json, _deep_json, _no_json, _comment),
        *(_long_list, _overlapping),
    ],
)
def test_dangerous_files_are_refused(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    with pytest.raises(ConfigError) as caught:
        SavedFile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("spoil", [_many, _long_list])
def test_an_oversized_list_of_members_is_refused_without_reading_it(
    path: Path, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(path)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ConfigError, match="its list of contents is too long"):
        SavedFile(path)


def with_large_end(path: Path, **claimed: int) -> None:
    """The same file with the end that files over 4 GiB have, and what that end claims."""
    data = path.read_bytes()
    count, size, offset = struct.unpack("<HLL", data[-12:-2])
    facts = {"count": count, "size": size, **claimed}
    end = struct.pack(
        "<4sQ2H2L4Q",
        *(b"PK\6\6", 44, 45, 45, 0, 0, facts["count"], facts["count"], facts["size"], offset),
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(data) - 22, 1)
    last = data[-22:-14] + struct.pack("<2H2LH", 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    small = data[-22:]
    path.write_bytes(data[:-22] + end + locator + (small if claimed else last))


def test_the_zip64_end_record_is_understood_but_not_trusted(path: Path) -> None:
    original = path.read_bytes()
    with_large_end(path)
    with pytest.raises(ConfigError, match="too long"):
        SavedFile(path)  # its small end record says nothing, so the maximum is assumed
    for claimed in ({"count": 1 << 40}, {"size": 1 << 40}):
        path.write_bytes(original)
        with_large_end(path, **claimed)
        with pytest.raises(ConfigError, match="too long"):
            SavedFile(path)
    path.write_bytes(original)
    with_large_end(path, count=len(members(path)))
    file = SavedFile(path)
    assert len(file.about.turns) == 1
    file.close()


@pytest.mark.heavy
def test_members_that_unpack_to_too_much_are_refused(path: Path) -> None:
    _bombs(path)
    with pytest.raises(ConfigError, match="unpack"):
        SavedFile(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip" * 100, b"PK\5\6" + bytes(18)])
def test_a_file_that_is_not_a_chat_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a saved chat"):
        SavedFile(path)


def test_folders_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refusals = {"": "can't be read", "pipe": "not a saved chat", "none": "can't be op"}
    for name, words in refusals.items():
        with pytest.raises(ConfigError, match=words):
            SavedFile(tmp_path / name)


def test_a_modified_context_is_noticed_when_it_is_read(path: Path) -> None:
    found = members(path)
    write(path, {**found, "contexts/0": b"xyz"})
    one = RLM(ScriptedClient([code("FINAL(context)")]))
    with (
        one,
        one.chat(load=path) as chat,
        pytest.raises(ConfigError, match="contexts/0 is damaged"),
    ):
        chat.ask("And?")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_a_clear_error_or_harmless(path: Path, data: st.DataObject) -> None:
    whole = path.read_bytes()
    spoiled = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if spoiled:
            spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    other = path.with_name("spoiled")
    other.write_bytes(bytes(spoiled))
    try:
        file = SavedFile(other)
        file.texts()
        for context in file.contexts().values():
            assert len(context.data) <= 3
        assert file.variables().size_bytes < 10_000
    except ConfigError:
        return
    file.close()


def test_a_sessions_report_on_its_variables_is_not_trusted(tmp_path: Path) -> None:
    """A cell may replace the functions that the host's request uses."""
    hostile = (
        "import json\nreal = json.dumps\ndef lie(value, **more):\n"
        "    about_us = isinstance(value, dict) and 'definitions' in value\n"
        "    return real({'names': ['not a name']} if about_us else value, **more)\n"
        "json.dumps = lie\nFINAL(0)"
    )
    path = tmp_path / "chat.rlm"
    with RLM(ScriptedClient([code(hostile)])) as one, one.chat("abc") as chat:
        chat.ask("q")
        chat.save(path)
        assert len(chat.notices) == 1
        assert "invalid names" in chat.notices[0]
    file = SavedFile(path)
    assert file.about.variables is not None
    assert file.about.variables.names == ()
    file.close()


def test_pieces_are_released_as_they_are_read() -> None:
    pieces = Pieces({"names": []}, b"x" * (7 << 20))
    texts = list(iter(lambda: str(pieces), ""))
    assert [len(text) > 1_000 for text in texts] == [False, True, True]
    assert str(pieces) == ""


def test_code_for_sandboxes_is_python_3_9_and_has_no_dependencies() -> None:
    assert inside.__file__ is not None
    tree = ast.parse(Path(inside.__file__).read_text("utf-8"), feature_version=(3, 9))
    named = [
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert not [name for name in named if name.split(".")[0] in {"rlm", "msgspec"}]
