"""Pictures from a real worker arrive unchanged; false references to them end the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rlm.errors import ProtocolViolation
from tests.environments.test_session_life import FIND_SOCKET, FORGE
from tests.picture_samples import gif, png

if TYPE_CHECKING:
    from tests.environments.conftest import Repl

PNG, GIF = png(), gif()
SET_UP = f"png, gif = {PNG!r}, {GIF!r}"


def seen(repl: Repl) -> list[Any]:
    return [arguments.get("images") for _, arguments, _ in repl.host.asked]


async def test_every_spelling_of_the_images_argument(repl: Repl) -> None:
    await repl.run(SET_UP)
    for spelling in (
        "llm_query('a', images=[png])",
        "llm_query('a', None, [png])",
        "llm_query('a', image=png)",
        "llm_query(query='a', pictures=(png,))",
        "await llm_query('a', images=[bytearray(png)])",
        "llm_query('a', model=None, images=memoryview(png))",
    ):
        assert await repl.show(spelling) == "'re:a'"
    assert seen(repl) == [[[PNG]]] * 6
    assert await repl.show("llm_query('a', model='m', images='plot.png')") == "'re:a'"
    asked = {"model": "m", "batched": False, "images": [["plot.png"]]}
    assert repl.host.asked[-1] == ("llm", asked, ["a"])


async def test_a_batch_has_a_list_for_each_prompt(repl: Repl) -> None:
    await repl.run(SET_UP)
    code = "llm_batch(['a', 'b', 'c', 'd'], images=[[png, gif], None, png, 'é\\ud800.png'])"
    assert await repl.show(code) == "['re:a', 're:b', 're:c', 're:d']"
    assert seen(repl) == [[[PNG, GIF], [], [PNG], ["é\ud800.png"]]]
    assert await repl.show("llm_query_batched(['fail:x', 'b'], images=[png, gif])[0].reason") == (
        "'x'"
    )


async def test_calls_without_pictures_are_sent_as_before(repl: Repl) -> None:
    await repl.run("llm_query('a'); llm_query('a', images=[]); llm_query_batched(['a'])")
    await repl.run(
        "llm_query_batched(['a', 'b'], images=[None, []]); llm_query_batched([], None, [])"
    )
    assert all("images" not in arguments for _, arguments, _ in repl.host.asked)
    assert len(repl.host.asked) == 4


async def test_llm_query_json_retries_with_the_same_pictures(repl: Repl) -> None:
    replies = iter(["no json", '{"n": 2}'])
    repl.host.reply = lambda prompt: next(replies)
    assert await repl.show(f"{SET_UP}\nllm_query_json('How many?', images=[png])") == "{'n': 2}"
    assert seen(repl) == [[[PNG]], [[PNG]]]


async def test_a_large_picture_is_sent_once_for_many_prompts(repl: Repl) -> None:
    code = f"{SET_UP}\nlarge = png + bytes(7 << 20)\n"
    code += "len(llm_query_batched(['a'] * 50, images=[[large]] * 50))"
    assert await repl.show(code) == "50"
    rows = seen(repl)[0]
    assert rows == [[PNG + bytes(7 << 20)]] * 50
    assert len({id(row[0]) for row in rows}) == 1


async def test_objects_that_save_themselves_are_taken(repl: Repl) -> None:
    code = f"""{SET_UP}
class Image:
    def save(self, file, format):
        file.write(png if format == 'PNG' else b'')
llm_query('a', images=[Image(), Image()])"""
    assert await repl.show(code) == "'re:a'"
    assert seen(repl) == [[[PNG, PNG]]]


async def test_wrong_images_are_errors_in_the_cell(repl: Repl) -> None:
    await repl.run(SET_UP)
    for code, kind, words in (
        ("llm_query('a', images=[b'text'])", "ValueError", "not a PNG, JPEG, GIF or WebP file"),
        ("llm_query('a', images=[png + bytes(9 << 20)])", "ValueError", "8 MiB"),
        ("llm_query('a', images=[object()])", "TypeError", "not object"),
        ("llm_query('a', images=[gif] * 21)", "ValueError", "limit of 20"),
        ("llm_query_batched(['a'], images=png)", "TypeError", "one item per call"),
        ("llm_query_batched(['a'], images=[png, gif])", "ValueError", "1 prompts need as many"),
        ("llm_query('a', image=png, images=[png])", "TypeError", "given twice"),
        ("rlm_query('a', images=[png])", "TypeError", "a child run accepts no images"),
        ("rlm_query_batched(['a'], image=[png])", "TypeError", "a child run accepts no images"),
        ("map_query('a', ['b'], images=[png])", "TypeError", "unexpected keyword"),
    ):
        found, message = await repl.fail(code)
        assert (found, words in message) == (kind, True), message
    assert repl.host.asked == []
    assert await repl.show("llm_query('a', images=[png])") == "'re:a'"


async def test_many_calls_with_pictures_run_at_once(repl: Repl) -> None:
    repl.host.hold_until = 20
    code = f"""{SET_UP}
import asyncio
await asyncio.gather(*[llm_query(str(n), images=[png, f'{{n}}.png']) for n in range(20)])"""
    async with asyncio.timeout(30):
        await repl.show(code)
    assert sorted(row[0][1] for row in seen(repl)) == sorted(f"{n}.png" for n in range(20))


LIES = {
    "fewer than counted": "forge(35, 1, b'llm', LOOK, b'a')",
    "more than counted": "forge(35, 1, b'llm', LOOK, b'a', PNG, PNG)",
    "no prompt": "forge(35, 1, b'llm', LOOK, PNG)",
    "no picture": "forge(35, 1, b'llm', LOOK, b'a', b'text')",
    "too large": "forge(35, 1, b'llm', LOOK, b'a', PNG + bytes(9 << 20))",
    "far too many": "forge(35, 1, b'llm', LOOK.replace(b'0', b'0,' * 999 + b'0'), b'a', PNG)",
    "for a child run": "forge(35, 1, b'rlm', LOOK, b'a', PNG)",
}


@pytest.mark.parametrize("code", LIES.values(), ids=LIES)
async def test_false_references_to_pictures_end_the_session(repl: Repl, code: str) -> None:
    look = '{"model": null, "batched": true, "images": [[0]]}'
    forge = FORGE.replace("os.write(fd, ", "send(")
    forge += "def send(data):\n    while data: data = data[os.write(fd, data):]\n"
    names = f"LOOK, PNG = {look.encode()!r}, {PNG!r}\n"
    repl.host.hold_until = 10
    with pytest.raises(ProtocolViolation):
        await repl.run(FIND_SOCKET + forge + names + code + "\nimport time; time.sleep(20)")
    with pytest.raises(ProtocolViolation):
        await repl.run("1")
    assert repl.host.asked == []
