"""Pictures through whole runs: a real session, a scripted model, and all that is recorded."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm import RLM, ModelError, ScriptedClient
from rlm.context import ContextValue
from rlm.events import CallEnded, CallStarted
from rlm.images import image_tokens
from rlm.limits import Limits
from rlm.messages import Price, Request
from rlm.records.recorders.in_process import MemoryRecorder
from tests.context.helpers import make_tree
from tests.picture_samples import gif, png

PNG, GIF = png(640, 480), gif()
LOOKING = "Look closely"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


class Asked:
    """A run whose only step runs one cell; the sub-model answers every call by `reply`."""

    def __init__(
        self,
        code: str,
        context: ContextValue = None,
        reply: Any = "a red field",
        children: tuple[str, ...] = (),
        query: str = "What do the pictures show?",
        **options: Any,
    ) -> None:
        self.client = ScriptedClient([cell(code), *map(cell, children)], rules=[(LOOKING, reply)])
        self.recorder = MemoryRecorder()
        with RLM(self.client, recorders=[self.recorder], **options) as rlm:
            self.result = rlm.ask(query, context)

    @property
    def looks(self) -> list[Request]:
        return [each for each in self.client.requests if LOOKING in str(each.messages[-1].content)]

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.recorder.events if isinstance(event, kind)]


def part_of(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}


def test_bytes_from_a_cell_reach_the_model_as_parts() -> None:
    asked = Asked(f"FINAL(llm_query('{LOOKING}', images=[{PNG!r}, {GIF!r}]))")
    assert asked.result.answer == "a red field"
    content = asked.looks[0].messages[-1].content
    text = {"type": "text", "text": LOOKING}
    assert content == [text, part_of(PNG, "image/png"), part_of(GIF, "image/gif")]


def test_a_picture_can_be_the_context(tmp_path: Path) -> None:
    path = make_tree(tmp_path, {"photo.png": PNG}) / "photo.png"
    asked = Asked(f"FINAL(llm_query('{LOOKING}', images=[context]))", path)
    assert asked.result.answer == "a red field"
    assert asked.looks[0].messages[-1].content[1] == part_of(PNG, "image/png")
    told = str(asked.client.requests[0].messages[-1].content)
    assert "a picture, image/png, 640 x 480 pixels" in told


def test_lone_surrogates_beside_a_picture_can_be_sent() -> None:
    asked = Asked(f"FINAL(llm_query('{LOOKING} \\ud800', images=[{PNG!r}]))")
    msgspec.json.encode(asked.looks[0])
    assert asked.result.answer == "a red field"


def test_events_hold_size_and_hash_and_never_the_data() -> None:
    asked = Asked(f"FINAL(llm_query('{LOOKING}', images=[{GIF!r}]))")
    (started,) = asked.events(CallStarted)
    assert started.prompt.startswith(f"{LOOKING}\n[image: image/gif, {len(GIF)} bytes, sha256 ")
    data = base64.b64encode(GIF).decode()
    assert not any(data in str(event) for event in asked.recorder.events)


def test_a_model_without_picture_support_is_an_error_the_cell_can_repair() -> None:
    refusal = ModelError("this model takes no images", status=400)
    code = f"try: llm_query('{LOOKING}', images=[{PNG!r}])\nexcept CallFailed as e: FINAL(str(e))"
    asked = Asked(code, reply=refusal)
    assert asked.result.answer == "this model takes no images"
    assert asked.events(CallEnded)[0].error == "this model takes no images"


def test_a_call_with_pictures_is_reserved_by_pixels_and_not_by_base64() -> None:
    large = f"({PNG!r} + bytes(3 << 20))"
    code = f"FINAL(llm_query('{LOOKING}', images=[{large}]))"
    enough = Limits(max_tokens=image_tokens(640, 480) + 60_000)
    asked = Asked(code, limits=enough)
    assert asked.result.answer == "a red field"
    code = (
        f"try: llm_query('{LOOKING}', images=[{large}] * 6)\nexcept CallFailed as e: FINAL(str(e))"
    )
    asked = Asked(code, limits=enough)
    assert "tokens may be needed" in str(asked.result.answer)
    assert asked.looks == []


def test_the_identity_of_a_call_includes_its_pictures() -> None:
    code = "FINAL(' '.join(llm_query_batched(['{0}'] * 2, images=[{1!r}, {2!r}])))"
    names = []
    for second in (GIF, GIF, png(9, 9)):
        asked = Asked(code.format(LOOKING, PNG, second))
        ids = [event.call_id for event in asked.events(CallStarted)]
        names.append({each.partition(".")[2] for each in ids})  # which of a batch is first, varies
    assert names[0] == names[1]
    assert [len(each) for each in names] == [2, 2, 2]
    assert len(names[0] & names[2]) == 1


def test_a_picture_is_included_in_the_price_bound() -> None:
    price = Price(1.0, 1.0)
    client = ScriptedClient(
        [cell(f"FINAL(llm_query('{LOOKING}', images=[{PNG!r}]))")],
        rules=[(LOOKING, "a red field")],
        price=price,
    )
    with RLM(client, limits=Limits(max_cost_usd=0.2)) as rlm:
        assert rlm.ask("What does it show?").answer == "a red field"


# -- by name --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tree(tmp_path, {"notes.txt": "two figures", "figures/a.png": PNG, "b.gif": GIF})


def test_cells_can_name_pictures_of_a_folder(folder: Path) -> None:
    code = f"""
names = [each['name'] for each in pictures]
replies = llm_query_batched(['{LOOKING}: ' + name for name in names], images=names)
FINAL(f'{{sorted(context)}} {{names}} {{replies}}')"""
    asked = Asked(code, folder, reply=lambda request: str(len(request.messages[-1].content)))
    assert asked.result.answer == "['notes.txt'] ['b.gif', 'figures/a.png'] ['2', '2']"
    sent = [request.messages[-1].content[1] for request in asked.looks]
    assert sorted(sent, key=str) == [part_of(GIF, "image/gif"), part_of(PNG, "image/png")]
    told = str(asked.client.requests[0].messages[-1].content)
    assert "2 pictures, listed in the variable `pictures`: b.gif (image/gif, 4 x 3 pixels)" in told


def test_an_unknown_picture_name_is_an_error_with_existing_names(folder: Path) -> None:
    code = f"""
replies = llm_query_batched(['{LOOKING}'] * 2, images=['b.gif', '/etc/hostname'])
FINAL(replies[0] + ': ' + replies[1].reason)"""
    asked = Asked(code, folder)
    assert str(asked.result.answer).startswith(
        "a red field: the context has no picture '/etc/hostname'; it has "
    )
    assert "'figures/a.png'" in str(asked.result.answer)


def test_a_child_run_can_use_the_pictures_of_its_parent(folder: Path) -> None:
    code = "FINAL(rlm_query('Say what figures/a.png shows', context='a page'))"
    child = f"FINAL(llm_query('{LOOKING}', images=['figures/a.png']))"
    asked = Asked(code, folder, children=(child,), limits=Limits(max_depth=2))
    assert asked.result.answer == "a red field"
    assert asked.looks[0].messages[-1].content[1] == part_of(PNG, "image/png")


def test_later_contexts_of_a_chat_can_have_pictures_too(folder: Path) -> None:
    look = cell(f"FINAL(llm_query('{LOOKING}', images=['figures/a.png']))")
    client = ScriptedClient([cell("FINAL(1)"), look], rules=[(LOOKING, "a red field")])
    with RLM(client) as rlm, rlm.chat("text") as chat:
        chat.ask("What is this?")
        assert chat.ask("And this?", folder).answer == "a red field"
    assert client.requests[-1].messages[-1].content[1] == part_of(PNG, "image/png")


def test_a_small_picture_is_never_sent_as_text(tmp_path: Path) -> None:
    path = make_tree(tmp_path, {"photo.png": PNG}) / "photo.png"
    asked = Asked(f"FINAL(llm_query('{LOOKING}', images=['photo.png']))", path, strategy="auto")
    assert asked.result.answer == "a red field"
    assert asked.looks[0].messages[-1].content[1] == part_of(PNG, "image/png")
