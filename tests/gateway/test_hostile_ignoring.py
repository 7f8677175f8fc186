"""A root with a .gitignore that is made to take forever, and walks that have to end."""

import asyncio
from pathlib import Path

import pytest

from rlm.data.filesystem.denial import Denials
from rlm.gateway import listing
from rlm.gateway.listing import TookTooLong, files_below, list_page
from rlm.gateway.paths import Root
from rlm.gateway.tasks import Threads
from tests.gateway.serving import answer, http_client, make_tree, over_http


async def test_a_folder_with_hostile_ignore_rules_is_listed(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    (root / ("a" * 200)).write_text("anchor", "utf-8")
    (root / ".gitignore").write_text("*a*a*a*a*a*ab\n" * 10, "utf-8")
    with over_http("--root", str(root)) as served:
        async with http_client(served.url, None) as client:
            session = (await answer(client, "rlm_session_create"))["session"]
            listed = await answer(client, "rlm_list", session=session)
            found = await answer(client, "rlm_search", session=session, query="anchor")
        code, _ = await asyncio.to_thread(served.end)
    assert {hit["handle"] for hit in found["hits"]} <= {file["handle"] for file in listed["files"]}
    assert [hit["text"] for hit in found["hits"]] == ["anchor"]
    assert code == 0


@pytest.fixture
def root(tmp_path: Path) -> Root:
    for number in range(20):
        folder = tmp_path / f"{number:02}"
        folder.mkdir()
        (folder / "notes.txt").write_text("notes", "utf-8")
    return Root(tmp_path, "root", Denials())


def test_a_walk_has_a_deadline(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_SECONDS", -1.0)
    with pytest.raises(TookTooLong, match="choose a smaller one"):
        list(files_below(root, ()))


def test_a_page_that_takes_too_long_is_cut_short(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page holds what was found in time; the next page continues from there."""
    clock = iter(range(10_000))
    monkeypatch.setattr("rlm.gateway.listing.time.monotonic", lambda: next(clock))
    names, after, pages = [], None, 0
    while True:
        page = list_page(root, (), after, 200, ignored=True)
        names += [entry.path for entry in page.entries]
        after, pages = page.after, pages + 1
        if after is None:
            break
    assert names == [f"{number:02}/notes.txt" for number in range(20)]
    assert pages > 1


async def test_a_cancelled_walk_ends(root: Root) -> None:
    threads = Threads()
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    seen: list[str] = []

    def work() -> None:
        while True:  # A tree that never ends.
            for entry in files_below(root, ()):
                seen.append(entry.path)
                loop.call_soon_threadsafe(begun.set)

    task = asyncio.create_task(threads.run("ada", work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        await threads.close()
    assert seen
