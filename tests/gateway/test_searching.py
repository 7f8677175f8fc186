"""Searches: real ranking, real patterns, and a stop for patterns that never end."""

import asyncio
import math
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.filesystem.denial import Denials
from rlm.gateway.errors import Refused
from rlm.gateway.paths import Root
from rlm.gateway.search_worker import Corpus
from rlm.gateway.searching import Search, Searched, Searcher
from rlm.worker.search import LENGTH_WEIGHT, SATURATION, words_of
from tests.processes import running_below


@pytest.fixture
def root(tmp_path: Path) -> Root:
    top = tmp_path / "root"
    (top / "src").mkdir(parents=True)
    (top / "notes.txt").write_text("the anchor\nthe winch\nthe red anchor of the ferry\n")
    (top / "src" / "boat.py").write_text("def anchor():\n    return 'winch'\n")
    (top / "binary").write_bytes(b"anchor\0anchor")
    (top / "latin.txt").write_bytes(b"caf\xe9 anchor\n")
    (top / ".env").write_text("anchor=secret\n")
    (tmp_path / "outside.txt").write_text("anchor outside\n")
    (top / "link.txt").symlink_to(tmp_path / "outside.txt")
    return Root(top, "root", Denials())


@pytest.fixture
async def searcher() -> AsyncIterator[Searcher]:
    one = Searcher(seconds=60)
    yield one
    await one.close()


def places(found: Searched) -> list[tuple[str, int]]:
    return [("/".join(hit.parts), hit.line) for hit in found.hits]


async def test_lines_are_ranked_by_words(root: Root, searcher: Searcher) -> None:
    found = await searcher.search(root, Search(query="red anchor", most=3))
    assert places(found)[0] == ("notes.txt", 3)
    assert len(found.hits) == 3
    assert found.complete
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, key=lambda each: -(each or 0))


async def test_matches_of_a_pattern_are_in_order_and_paginated(
    root: Root, searcher: Searcher
) -> None:
    every = await searcher.search(root, Search(query=r"anch\w+", ranked=False))
    assert places(every) == [
        ("latin.txt", 1),
        ("notes.txt", 1),
        ("notes.txt", 3),
        ("src/boat.py", 1),
    ]
    pages: list[tuple[str, int]] = []
    after = None
    while True:
        page = await searcher.search(
            root, Search(query=r"anch\w+", ranked=False, most=1, after=after)
        )
        if not page.hits:
            break
        pages += places(page)
        after = page.hits[-1].parts, page.hits[-1].line
    assert pages == places(every)


async def test_a_search_can_be_limited_to_files(root: Root, searcher: Searcher) -> None:
    only = await searcher.search(root, Search(query="anchor", files=(("src", "boat.py"),)))
    assert places(only) == [("src/boat.py", 1)]
    below = await searcher.search(root, Search(query="anchor", below=("src",)))
    assert places(below) == [("src/boat.py", 1)]
    named = await searcher.search(root, Search(query="anchor", names=r"\.txt$", ranked=False))
    assert {path for path, _ in places(named)} == {"notes.txt", "latin.txt"}
    secret = await searcher.search(root, Search(query="secret", files=((".env",), ("link.txt",))))
    assert secret.hits == ()


async def test_a_pattern_that_never_ends_is_stopped(root: Root) -> None:
    (root.path / "redos.txt").write_text("first b\n" + "a" * 60 + "!\n")
    one = Searcher(seconds=2)
    found = await one.search(root, Search(query=r"first|(a+)+$", ranked=False, names="redos"))
    assert (places(found), found.complete) == ([("redos.txt", 1)], False)
    again = await one.search(root, Search(query="anchor"))
    assert again.hits
    await one.close()
    assert running_below("search_worker") == set()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Search(query="(", ranked=False), "not a valid regular expression"),
        (Search(query="a", names="("), "not a valid regular expression"),
        (Search(query="?!"), "no words"),
        (Search(query="a", below=("nowhere",)), "no such file"),
    ],
)
async def test_an_impossible_search_says_why(
    root: Root, searcher: Searcher, wanted: Search, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        await searcher.search(root, wanted)
    assert (await searcher.search(root, Search(query="anchor"))).hits


async def test_searches_run_concurrently(root: Root, searcher: Searcher) -> None:
    found = await asyncio.gather(
        *(searcher.search(root, Search(query="winch anchor", most=n)) for n in range(1, 7))
    )
    assert [len(each.hits) for each in found] == [1, 2, 3, 4, 5, 6]


async def test_a_cancelled_search_leaves_no_process(root: Root) -> None:
    (root.path / "redos.txt").write_text("a" * 60 + "!\n")
    one = Searcher(seconds=600)
    task = asyncio.create_task(one.search(root, Search(query=r"(a+)+$", ranked=False)))
    while not running_below("search_worker"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await one.close()
    assert running_below("search_worker") == set()


WORD = st.sampled_from(["anchor", "winch", "ferry", "red", "Anchor", "x"])


@given(
    st.lists(st.lists(st.lists(WORD, max_size=6).map(" ".join), max_size=8), max_size=5),
    st.lists(WORD, min_size=1, max_size=3).map(" ".join),
    st.integers(1, 6),
)
def test_ranking_follows_the_formula(files: list[list[str]], query: str, k: int) -> None:
    words = words_of(query)
    lines = [(str(f), n, text) for f, file in enumerate(files) for n, text in enumerate(file, 1)]
    usual = sum(len(text) for *_, text in lines) / max(1, len(lines)) or 1.0

    def score(text: str) -> float:
        total = 0.0
        for word in words:
            count = text.lower().split().count(word)
            having = sum(word in other.lower().split() for *_, other in lines)
            weight = math.log(1 + (len(lines) - having + 0.5) / (having + 0.5))
            norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * len(text) / usual)
            total += weight * count * (SATURATION + 1) / (count + norm) if count else 0.0
        return total

    scored = [(score(text), name, number) for name, number, text in lines]
    expected = sorted((each for each in scored if each[0]), key=lambda each: -each[0])[:k]
    corpus = Corpus(words)
    for file in files:
        corpus.count(enumerate(file, 1))
    found = corpus.best(((str(f), partial(enumerate, file, 1)) for f, file in enumerate(files)), k)
    assert [round(best[0], 9) for best in found] == [round(each[0], 9) for each in expected]
