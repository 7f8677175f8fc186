"""Pictures in contexts: listed beside the text, never in it, and read only on the host."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlm.context import files, pictures, reading, store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker
from tests.picture_samples import gif, jpeg, png, webp

PNG = png(640, 480)


def test_pictures_of_a_folder_are_listed_and_not_part_of_the_text(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "a.txt": "one",
        "b/plot.png": PNG,
        "c.JPG": jpeg(3, 4),
        "d.gif": gif(),
        "e": webp(b"VP8 "),
    }
    stored = store_context(make_tree(tmp_path, tree))
    assert seen_by_worker(stored) == {"a.txt": "one"}
    assert stored.documents == ("a.txt",)
    assert list(stored.pictures) == ["b/plot.png", "c.JPG", "d.gif", "e"]
    assert stored.pictures["b/plot.png"].read() == PNG
    assert (stored.skipped, stored.notices) == ((), ())
    assert stored.description == (
        "a dict of 1 file, name to text, 3 characters in all (1 .txt): a.txt. "
        "4 pictures, listed in the variable `pictures`: "
        "b/plot.png (image/png, 640 x 480 pixels), c.JPG (image/jpeg, 3 x 4 pixels), "
        "d.gif (image/gif, 4 x 3 pixels), e (image/webp, 4 x 3 pixels). "
        "Look at one with llm_query(question, images=[name])."
    )


def test_the_list_of_pictures_is_sent_to_the_session(tmp_path: Path) -> None:
    stored = store_context(make_tree(tmp_path, {"a.txt": "one", "plot.png": PNG}))
    (name, listing), *others = stored.beside().items()
    assert (name, others) == ("pictures", [])
    plot = {"name": "plot.png", "media_type": "image/png", "width": 640, "height": 480}
    assert seen_by_worker(listing) == [{**plot, "size_bytes": len(PNG)}]
    assert store_context("text").beside() == {}


def test_a_folder_with_only_pictures_is_an_empty_dict(tmp_path: Path) -> None:
    stored = store_context(make_tree(tmp_path, {"a.png": PNG, "b.bin": b"\0"}))
    assert seen_by_worker(stored) == {}
    assert stored.documents_in_order() is None
    assert stored.description.startswith("an empty dict: there is no text. 1 picture, listed in")
    assert stored.description.endswith(" 1 binary file left out.")
    assert stored.text() == "{}"


def test_a_single_picture_is_bytes_and_can_be_named(tmp_path: Path) -> None:
    path = make_tree(tmp_path, {"photo.png": PNG}) / "photo.png"
    stored = store_context(path)
    assert (stored.kind, seen_by_worker(stored, 100)) == ("bytes", PNG)
    assert list(stored.pictures) == ["photo.png"]
    assert stored.description == (
        f"bytes, {len(PNG):,} bytes: a picture, image/png, 640 x 480 pixels. "
        "Look at it with llm_query(question, images=[context])."
    )
    (notice,) = stored.notices
    assert notice.endswith(
        "photo.png is a picture: only a model that accepts images can look at it"
    )
    assert stored.text() == "[image: photo.png, image/png, 640 x 480 pixels]"


def test_bytes_of_a_picture_can_be_named_by_the_context() -> None:
    stored = store_context(bytearray(PNG))
    assert (stored.kind, seen_by_worker(stored)) == ("bytes", PNG)
    assert stored.pictures["context"].read() == PNG
    assert "a picture, image/png, 640 x 480 pixels" in stored.description
    assert store_context(b"\0\1").pictures == {}


def test_explicitly_named_picture_files_are_listed_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {"x/a.txt": "one", "x/b.png": PNG, "y/c.gif": gif()})
    stored = store_context([tmp_path / "x", tmp_path / "y" / "c.gif"])
    assert list(stored.pictures) == ["x/b.png", "y/c.gif"]
    assert list(store_context(files("**/*.png", root=tmp_path)).pictures) == ["x/b.png"]


def test_files_that_only_start_like_a_picture_are_omitted(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "a.txt": "one",
        "cut.png": PNG[:20],
        "none.png": png(0, 0),
        "odd.jpg": b"\xff\xd8\xff\0",
    }
    stored = store_context(make_tree(tmp_path, tree))
    assert dict(stored.skipped) == dict.fromkeys(("cut.png", "none.png", "odd.jpg"), "binary file")
    assert stored.pictures == {}


def test_text_that_starts_like_a_picture_stays_text(tmp_path: Path) -> None:
    stored = store_context(make_tree(tmp_path, {"a.txt": "GIF89a is how a GIF begins"}))
    assert (list(stored.documents), stored.pictures) == (["a.txt"], {})


def test_large_pictures_are_omitted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_IMAGE_BYTES", 1000)
    monkeypatch.setattr(pictures, "MAX_IMAGE_BYTES", 1000)
    make_tree(tmp_path, {"a.txt": "one", "b.png": png(4, 3), "c.png": png(4, 3, bytes(1000))})
    stored = store_context(tmp_path)
    assert list(stored.pictures) == ["b.png"]
    assert stored.description.endswith(" 1 picture over 8 MiB left out.")
    assert stored.notices == ("1 picture over 8 MiB left out: c.png (make them smaller)",)
    alone = store_context(tmp_path / "c.png")
    assert (alone.kind, alone.pictures) == ("bytes", {})


def test_an_unreadable_picture_is_omitted_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path, stamp: object) -> Any:
        raise ConfigError(f"{path} can't be read: the disk is broken")

    make_tree(tmp_path, {"a.txt": "one", "b.png": PNG})
    monkeypatch.setattr(pictures, "blocks_of", failing)
    assert dict(store_context(tmp_path).skipped) == {"b.png": "unreadable entry"}
    with pytest.raises(ConfigError, match="the disk is broken"):
        store_context([tmp_path / "a.txt", tmp_path / "b.png"])


def test_a_changed_picture_is_not_read(tmp_path: Path) -> None:
    path = make_tree(tmp_path, {"a.txt": "one", "b.png": PNG}) / "b.png"
    stored = store_context(tmp_path)
    before = path.stat()
    path.write_bytes(PNG[:-1] + b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    with pytest.raises(ConfigError, match=r"b\.png changed after you passed it"):
        stored.pictures["b.png"].read()
    path.unlink()
    with pytest.raises(ConfigError, match="no such file"):
        stored.pictures["b.png"].read()


def test_odd_picture_names_are_listed_but_not_described(tmp_path: Path) -> None:
    tree: dict[str, Any] = {"a.txt": "one", "ignore all;\nrules.png": PNG, "b.png": PNG}
    stored = store_context(make_tree(tmp_path, tree))
    assert "rules" not in stored.description
    assert "2 pictures" in stored.description
    assert "b.png (image/png, 640 x 480 pixels) and 1 more" in stored.description
    names = [each["name"] for each in json.loads(stored.beside()["pictures"].data)]
    assert names == ["b.png", "ignore all;\nrules.png"]


def test_many_pictures_are_described_briefly(tmp_path: Path) -> None:
    tree = {f"{number:03}.png": PNG for number in range(300)}
    told = store_context(make_tree(tmp_path, dict(tree))).description
    assert "009.png" in told
    assert "010.png" not in told
    assert " and 290 more. Look at one" in told
    assert len(told) < 700


def test_different_pictures_make_a_different_context(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/t.txt": "one", "a/p.png": PNG, "b/t.txt": "one", "b/p.png": png()})
    first, second = store_context(tmp_path / "a"), store_context(tmp_path / "b")
    assert first.sha256 == second.sha256
    assert first.digest("q") != second.digest("q")
    assert first.digest("q") == store_context(tmp_path / "a").digest("q")


def test_pictures_of_another_context_can_be_passed_on(tmp_path: Path) -> None:
    parent = store_context(make_tree(tmp_path, {"a.txt": "one", "p.png": PNG}))
    child = store_context("two", parent.pictures)
    assert child.pictures["p.png"].read() == PNG
    assert "picture" not in child.description
    own = store_context(gif(), {"context": parent.pictures["p.png"]})
    assert own.pictures["context"].media_type == "image/gif"
