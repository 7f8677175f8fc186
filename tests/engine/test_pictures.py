"""Names and bytes become parts of a prompt; nothing outside of the contexts can be named."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from rlm.context import store_context
from rlm.engine import pictures as pictures_module
from rlm.engine.pictures import RunPictures
from rlm.errors import CallRefused, ConfigError
from tests.context.helpers import make_tree
from tests.picture_samples import gif, png

PNG, GIF = png(), gif()


async def parts_of(pictures: RunPictures, images: Any) -> Any:
    async with pictures.content("What is it?", images) as content:
        return content


def encoded(media_type: str, data: bytes) -> dict[str, str]:
    return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tree(tmp_path, {"a.txt": "text", "figures/plot.png": PNG, "photo.gif": GIF})


async def test_pictures_follow_the_prompt_in_order(folder: Path) -> None:
    pictures = RunPictures({"context": store_context(folder)})
    text = {"type": "text", "text": "What is it?"}
    expected = [text, encoded("image/gif", GIF), encoded("image/png", PNG)]
    assert await parts_of(pictures, [GIF, "figures/plot.png"]) == expected
    assert await parts_of(pictures, []) == "What is it?"


async def test_every_context_has_picture_names_and_the_first_one_wins(folder: Path) -> None:
    contexts: dict[str, Any] = {"context": store_context(folder)}
    pictures = RunPictures(contexts)
    other = make_tree(folder / "figures" / "other", {"photo.gif": png(9, 9), "new.png": PNG})
    contexts["history"] = store_context([])
    contexts["context_1"] = store_context(other)
    assert sorted(pictures.by_name) == ["figures/plot.png", "new.png", "photo.gif"]
    assert (await parts_of(pictures, ["photo.gif"]))[1] == encoded("image/gif", GIF)
    assert pictures.by_name["photo.gif"].media_type == "image/gif"
    assert (await parts_of(pictures, ["new.png"]))[1] == encoded("image/png", PNG)


STRANGERS = (
    *(
        "plot.png",
        "./photo.gif",
        "../photo.gif",
        "figures\\plot.png",
        "a.txt",
        "",
        "\0",
        "x" * 10**6,
    ),
    *("https://example.com/photo.gif", "data:image/png;base64,AAAA", "file:///etc/passwd"),
)


@pytest.mark.parametrize("name", STRANGERS)
async def test_a_picture_not_in_the_manifest_is_refused_with_available_names(
    folder: Path, name: str
) -> None:
    pictures = RunPictures({"context": store_context(folder)})
    with pytest.raises(CallRefused, match=r"it has '.*photo\.gif'") as refusal:
        await parts_of(pictures, [name])
    assert len(str(refusal.value)) < 400
    assert "figures/plot.png" in str(refusal.value)


async def test_an_absolute_path_is_refused_even_if_it_leads_to_a_picture(folder: Path) -> None:
    pictures = RunPictures({"context": store_context(folder)})
    with pytest.raises(CallRefused, match="the context has no picture"):
        await parts_of(pictures, [str(folder / "photo.gif")])


async def test_without_pictures_the_refusal_says_to_send_bytes() -> None:
    with pytest.raises(CallRefused, match=r"or any other; send bytes, as in images=\[open"):
        await parts_of(RunPictures({"context": store_context("text")}), ["plot.png"])


async def test_the_refusal_lists_the_most_similar_names_first(tmp_path: Path) -> None:
    tree = {f"{number:03}.png": PNG for number in range(50)} | {"figures/harbour.png": PNG}
    pictures = RunPictures({"context": store_context(make_tree(tmp_path, tree))})
    with pytest.raises(CallRefused, match=r"has 'figures/harbour\.png', '000\.png'.* and 46 more"):
        await parts_of(pictures, ["harbour.png"])


@pytest.mark.parametrize(
    "images", [[b"text"], [3], [None], [bytearray(PNG)], PNG, "a.png", [PNG] * 21]
)
async def test_malformed_pictures_from_other_environments_are_refused(images: Any) -> None:
    with pytest.raises(CallRefused):
        await parts_of(RunPictures({}), images)


async def test_a_picture_that_changed_is_an_error(folder: Path) -> None:
    pictures = RunPictures({"context": store_context(folder)})
    (folder / "photo.gif").write_bytes(gif(8, 8) + b"more")
    with pytest.raises(ConfigError, match="changed after you passed it"):
        await parts_of(pictures, ["photo.gif"])


async def test_the_picture_bytes_of_one_prompt_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures_module, "MAX_PROMPT_BYTES", 3 * len(PNG))
    pictures = RunPictures({})
    await parts_of(pictures, [PNG] * 3)
    with pytest.raises(CallRefused, match="ask about fewer at once"):
        await parts_of(pictures, [PNG] * 3 + [GIF])


async def test_the_picture_bytes_in_memory_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures_module, "MAX_BYTES_UNDER_WAY", 4 * len(PNG))
    pictures, under_way, most, order = RunPictures({}), 0, 0, []

    async def look(number: int) -> None:
        nonlocal under_way, most
        async with pictures.content(str(number), [PNG] * (1 + number % 3)) as content:
            size = len(content) - 1
            order.append(number)
            under_way += size
            most = max(most, under_way)
            await asyncio.sleep(0.001 * (number % 4))
            under_way -= size
            if number % 5 == 0:
                raise CallRefused("no", limit="calls")

    done = await asyncio.gather(*map(look, range(40)), return_exceptions=True)
    assert sum(isinstance(each, CallRefused) for each in done) == 8
    assert 2 <= most <= 4
    assert pictures._free_bytes == 4 * len(PNG)
    assert len(order) == 40


async def test_a_waiter_that_is_cancelled_reserves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures_module, "MAX_BYTES_UNDER_WAY", len(PNG))
    pictures = RunPictures({})
    async with pictures.content("a", [PNG]):
        waiting = [asyncio.create_task(parts_of(pictures, [PNG])) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.wait(waiting[:2])
        assert not waiting[2].done()
    assert len(await waiting[2]) == 2
    assert pictures._free_bytes == len(PNG)
