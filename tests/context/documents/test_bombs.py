"""Documents that are made to take all memory or all time, in the real processes."""

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm._util.limited import in_thread
from rlm.context import store_context
from rlm.context.documents import converter
from rlm.errors import ConfigError
from tests.context.documents.bombs import BOMBS, far_cell
from tests.context.documents.helpers import NEEDS_EXTRA
from tests.context.helpers import seen_by_worker

pytestmark = NEEDS_EXTRA
MAX_HOST_KIB = 300 << 10


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(converter, "_MIN_SECONDS", 20.0)
    yield
    converter._JOBS.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_without_using_memory_of_this_process(tmp_path: Path, name: str) -> None:
    path = BOMBS[name](tmp_path)
    print(path.name, path.stat().st_size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError) as caught:
        store_context(path)
    print(caught.value)
    assert f"{path.name} could not be converted" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_HOST_KIB


def test_two_distant_cells_make_a_small_table(tmp_path: Path) -> None:
    text = store_context(far_cell(tmp_path)).text()
    assert text == "## Staff\n| a |  |\n| --- | --- |\n|  | z |"


def test_other_files_of_a_folder_with_a_bomb_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    bomb = BOMBS["diagonal"](folder)
    (folder / "notes.txt").write_text("notes", "utf-8")
    stored = store_context(folder)
    assert seen_by_worker(stored) == {"notes.txt": "notes"}
    assert dict(stored.skipped) == {bomb.name: "document that could not be converted"}


async def test_cancelling_ends_a_conversion(tmp_path: Path) -> None:
    path = BOMBS["forms_in_forms"](tmp_path)
    task = asyncio.create_task(in_thread(store_context, path))
    await asyncio.sleep(2.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (tmp_path / "a.html").write_text("<p>hello</p>", "utf-8")
    assert (await in_thread(store_context, tmp_path / "a.html")).text().strip() == "hello"
