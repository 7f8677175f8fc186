"""The search index: what it finds, what it forgets, and what hostile texts and files do to it."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places, RunFile
from rlm.records.searching import (
    FileTexts,
    IndexedText,
    SearchIndex,
    database,
    index,
    index_path,
    matches,
)
from rlm.records.searching.words import excerpt, fts_query


@pytest.fixture(autouse=True)
def all_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python 3.13 warns of connections that are not."""
    made: list[SearchIndex] = []
    initialize = SearchIndex.__init__

    def noted(self: SearchIndex, path: Path) -> None:
        made.append(self)
        initialize(self, path)

    monkeypatch.setattr(SearchIndex, "__init__", noted)
    yield
    for each in made:
        each.close()


def text(words: str, root: str = "r", **facts: object) -> IndexedText:
    given = {"run_id": root, "step": 1, "event": 0, "kind": "output", "cell": 1, **facts}
    return IndexedText(root=root, text=words, **given)  # type: ignore[arg-type]


def filled(path: Path, **files: list[IndexedText]) -> SearchIndex:
    found = SearchIndex(path)
    for name, texts in files.items():
        found.put(name, FileTexts("stamp", 10, "one"), texts)
    return found


def roots(found: SearchIndex, query: str) -> list[str]:
    return [run.root for run in found.search(query).runs]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "search" / "index.sqlite"


# -- finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ships", ["b", "a"]),
        ("SHIPS harbour", ["a"]),
        ("harb", ["a"]),
        ("harb ", []),
        ('"seven ships"', ["a"]),
        ('"ships seven"', []),
        ("caf", ["b"]),
        ("cafe", ["b"]),
        ("foo_bar(1)", ["b"]),
        ("東京", ["c"]),
        ("京都", []),
        ("zebra", []),
        ("or", []),
        ('NEAR(ships, "x")', []),
        ("ships*", ["b", "a"]),
        ("text:ships", []),
        ('"', None),
        ("-- ;", None),
        ("", None),
    ],
)
def test_a_query_matches_texts_with_all_its_words(
    path: Path, query: str, expected: list[str] | None
) -> None:
    found = filled(
        path,
        one=[text("Seven ships in the harbour", "a"), text("another line", "a", step=2)],
        two=[text("ships, and a café: foo_bar(1)", "b")],
        three=[text("彼は東京に住む", "c")],
    )
    if expected is None:
        with pytest.raises(ConfigError, match="at least one word"):
            found.search(query)
    else:
        assert roots(found, query) == expected


def test_hits_have_their_location_and_an_excerpt(path: Path) -> None:
    long = "x " * 500 + "the needle is here" + " y" * 500
    texts = [text(long, step=3, event=7, cell=2, kind="code", run_id="child")]
    (run,) = filled(path, one=texts).search("needle").runs
    (hit,) = run.hits
    assert hit[:6] == ("child", "r", 3, 7, "code", 2)
    assert "the needle is here" in hit.text
    assert len(hit.text) < 200


def test_a_run_shows_its_first_hits_and_whether_there_are_more(path: Path) -> None:
    found = filled(path, one=[text("again", step=step) for step in range(9)])
    (run,) = found.search("again").runs
    assert ([hit.step for hit in run.hits], run.more) == ([0, 1, 2], True)


def test_reading_in_small_portions_finds_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        f"file {number}": [text("again", f"r{number}", step=step) for step in range(number % 7)]
        for number in range(20)
    }
    files["many"] = [text("again", f"m{number % 3}", step=number) for number in range(30)]
    found = filled(path, **files)
    expected = found.search("again").runs
    assert len(expected) == 17 + 3
    for name in ("PORTION", "MAX_PORTION", "TEXTS_AT_ONCE"):
        monkeypatch.setattr(matches, name, 2)
    assert found.search("again").runs == expected
    monkeypatch.setattr(matches, "FEW_FILES", 0)
    every = {run.root for run in expected}
    assert found.search("again", only=every).runs == expected


@given(words=st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_characters_come_back_unchanged(path: Path, words: str) -> None:
    stored = sendable(words)
    found = filled(path, one=[text(f"needle {words}", root=f"r{words}"[:50])])
    (run,) = found.search("needle").runs
    assert (run.root, run.hits[0].text) == (sendable(f"r{words}"[:50]), f"needle {stored}")


def test_each_of_several_roots_in_one_file_has_hits(path: Path) -> None:
    texts = [text("again", f"r{number % 3}", step=number) for number in range(30)]
    found = filled(path, one=texts)
    assert sorted(roots(found, "again")) == ["r0", "r1", "r2"]
    assert all(len(run.hits) == 3 for run in found.search("again").runs)


def test_the_newest_runs_come_first_up_to_a_limit(path: Path) -> None:
    found = filled(path, **{f"f{number}": [text("same", f"r{number}")] for number in range(20)})
    first = found.search("same", most=5)
    assert ([run.root for run in first.runs], first.more) == (
        [f"r{n}" for n in range(19, 14, -1)],
        True,
    )
    even = found.search("same", fits=lambda root: int(root[1:]) % 2 == 0)
    assert ([run.root for run in even.runs], even.more) == (
        [f"r{n}" for n in range(18, -1, -2)],
        False,
    )


def test_searching_before_anything_is_written_finds_nothing(path: Path) -> None:
    assert roots(SearchIndex(path), "x") == []
    assert not path.exists()


# -- keeping up -----------------------------------------------------------------------------------


def test_added_texts_are_found_and_replaced_ones_are_not(path: Path) -> None:
    found = filled(path, one=[text("first")])
    found.put("one", FileTexts("s2", 20, "one"), [text("second")], adds=True)
    assert roots(found, "first") == roots(found, "second") == ["r"]
    found.put("one", FileTexts("s3", 20, "other"), [text("third")])
    assert (roots(found, "first"), roots(found, "third")) == ([], ["r"])
    assert found.known() == {"one": FileTexts("s3", 20, "other")}
    found.remove(["one", "never there"])
    assert (roots(found, "third"), found.known()) == ([], {})


def test_removed_texts_are_no_longer_in_the_file(path: Path) -> None:
    found = filled(path, one=[text("geheimnisvoll " * 50)], two=[text("offen")])
    found.remove(["one"])
    found.close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        assert connection.execute("select count(*) from texts").fetchone() == (1,)
    connection.close()
    assert b"geheimnisvoll geheimnisvoll" not in path.read_bytes()


def test_a_removed_run_is_removed_from_every_index(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.prepare()
    journal = places.journal_of("r")
    journal.write_bytes(b"")
    names = [index_path(tmp_path, name) for name in ("runs", "tenant a")]
    for each in names:
        filled(each, **{str(journal): [text("secret")], "other": [text("open", "o")]})
    Archive(places).remove(RunFile("r", journal, 0, 0))
    for each in names:
        assert (roots(SearchIndex(each), "secret"), roots(SearchIndex(each), "open")) == ([], ["o"])


def test_searches_work_during_writing(path: Path) -> None:
    found = filled(path, first=[text("same", "r")])
    problems: list[Exception] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            try:
                assert "r" in roots(found, "same")
            except Exception as error:
                problems.append(error)
                return

    thread = threading.Thread(target=search)
    thread.start()
    other = SearchIndex(path)  # as another viewer would
    for number in range(40):
        (found if number % 2 else other).put(
            f"f{number}", FileTexts("s", 1, "i"), [text("same", f"r{number}")]
        )
    done.set()
    thread.join()
    assert problems == []
    assert len(found.search("same").runs) == 41


# -- limits ---------------------------------------------------------------------------------------


def test_texts_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_ROW_CHARS", 10)
    monkeypatch.setattr(index, "MAX_FILE_CHARS", 25)
    monkeypatch.setattr(index, "MAX_FILE_ROWS", 3)
    texts = [text("aaa bbb cccccc"), text("  \n"), text("ddd"), text("e" * 9), text("fff")]
    found = filled(path, one=texts, two=[text("ggg")] * 5)
    assert [roots(found, word) for word in ("aaa", "cc", "ddd", "e" * 9, "fff")] == [
        ["r"],
        ["r"],
        ["r"],
        ["r"],
        [],
    ]
    assert roots(found, "cccccc") == []
    with sqlite3.connect(path) as connection:
        assert connection.execute("select max(rows) from files").fetchone() == (3,)
    connection.close()


def test_a_full_index_says_so_and_still_answers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_BYTES", 60 * database.PAGE_BYTES)
    found = filled(path, one=[text("kept")])
    with pytest.raises(ConfigError, match="full"):
        found.put("two", FileTexts("s", 1, "i"), [text(os.urandom(9_000).hex()) for _ in range(90)])
    assert found.problem == index.FULL
    assert roots(found, "kept") == ["r"]
    assert list(found.known()) == ["one"]


def test_only_the_owner_can_read_the_index(path: Path) -> None:
    filled(path, one=[text("x1")])
    files = list(path.parent.iterdir())
    assert path in files
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_oldest_indexes_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_INDEXES", 3)
    for number in range(6):
        each = index_path(tmp_path, f"name {number}")
        filled(each, one=[text("x1")])
        os.utime(each, (number, number))
    left = list((tmp_path / index.FOLDER).glob("*.sqlite"))
    assert len(left) == 3
    assert index_path(tmp_path, "name 5") in left


def test_a_search_that_takes_too_long_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SEARCH_SECONDS", -1.0)
    found = filled(path, **{f"f{number}": [text("same", f"r{number}")] for number in range(5)})
    answer = found.search("same")
    assert (answer.runs, answer.more) == ([], True)
    monkeypatch.setattr(index, "SEARCH_SECONDS", 60.0)
    stop = threading.Event()
    stop.set()
    assert found.search("same", stop=stop).more


# -- damage and hostility -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"x" * 9_000, b"SQLite format 3\0" + bytes(5_000)],
    ids=["empty", "text", "head"],
)
def test_a_file_that_is_not_an_index_is_recreated(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert roots(SearchIndex(path), "word") == []
    assert roots(filled(path, one=[text("word")]), "word") == ["r"]


def test_an_index_of_another_version_is_recreated(path: Path) -> None:
    filled(path, one=[text("old")])
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version=99")
    connection.close()
    found = SearchIndex(path)
    assert (roots(found, "old"), found.known()) == ([], {})
    assert roots(filled(path, one=[text("new")]), "new") == ["r"]


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_index_still_answers_or_is_recreated(path: Path, seed: int) -> None:
    files = {f"f{number}": [text(f"same word{number} " * 40, f"r{number}")] for number in range(40)}
    filled(path, **files).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    data = bytearray(path.read_bytes())
    for at in range(4_096 + 97 * seed, len(data), 1_500):
        data[at : at + 64] = os.urandom(64)
    path.write_bytes(data)
    found = SearchIndex(path)
    for _ in range(6):  # Every use may find another damage; each of them ends in a new index.
        try:
            found.search("same")
            found.remove(found.known())
            found.put("again", FileTexts("s", 1, "i"), [text("fresh")])
            assert roots(found, "fresh") == ["r"]
            return
        except ConfigError:
            continue
    pytest.fail("it stays damaged")


def test_an_index_deleted_while_open_is_recreated(path: Path) -> None:
    found = filled(path, one=[text("word")])
    assert roots(found, "word") == ["r"]
    database.delete(path)
    assert roots(found, "word") == []
    found.put("two", FileTexts("s", 1, "i"), [text("word", "r2")])
    assert roots(found, "word") == ["r2"]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "search").write_text("a file")
    with pytest.raises(ConfigError, match="search is unavailable"):
        SearchIndex(tmp_path / "search" / "i.sqlite").known()


numbers = st.integers(-(1 << 70), 1 << 70)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(st.tuples(st.text(max_size=60), st.text(max_size=20), numbers, numbers), max_size=5),
    st.text(max_size=60),
)
def test_any_text_id_number_and_query_is_handled(
    tmp_path: Path, texts: list[tuple[str, str, int, int]], query: str
) -> None:
    found = SearchIndex(tmp_path / "i.sqlite")
    rows = [text(words, root, step=step, cell=cell) for words, root, step, cell in texts]
    found.put("f", FileTexts("s", 1, "i"), rows)
    if fts_query(query) is None:
        with pytest.raises(ConfigError):
            found.search(query)
    else:
        assert len(found.search(query).runs) <= len(texts)
    found.remove(["f"])
    with sqlite3.connect(found.path) as connection:
        assert connection.execute("select count(*) from texts").fetchone() == (0,)
    connection.close()


@given(st.text(max_size=200), st.text(max_size=80))
def test_an_excerpt_is_part_of_the_text(words: str, query: str) -> None:
    assert excerpt(words, query).removeprefix("…") in words
