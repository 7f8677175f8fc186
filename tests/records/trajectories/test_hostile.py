"""Logs of strangers: nothing raises, nothing runs, nothing breaks out of its place."""

import json
import re
import string
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rlm.errors import ConfigError
from rlm.logger import encoded
from rlm.records.trajectories import decoding, open_trajectory
from rlm.records.trajectories.exports import FORMATS, export
from rlm.records.trajectories.exports._report import POLICY, fenced, inline
from rlm.viewer import index
from tests.records.trajectories.samples import REFERENCE_LOG, one_run, scripted_log, written

HOSTILE = (
    "</pre></details></body><script>alert(1)</script><img src=x onerror=alert(2)>\n"
    "```\n</details>\n# Heading\n~~~~\n````python\n[a](javascript:alert(3)) <b>bold</b>\n"
    "\x1b[31mred\x1b[0m \x07 \x9b5m \u202egnorw\u202c &lt;script&gt; ' \" | a | b |\n\n    code\n"
    "<!-- -->--> ]]> {{x}} \\ `` ` http://evil.example www.evil.example\r\nlone\rcarriage\u2028x"
)
ALLOWED_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "pre", "a"),
    *("details", "summary", "div", "table", "tr", "th", "td"),
}
ALLOWED_ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href"}


class Elements(HTMLParser):
    """What a browser makes of the file: which elements and attributes are in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str | None] = set()
        self.depth: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value for name, value in attrs if name == "href"}
        if tag != "meta":
            self.depth.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.depth.pop() == tag, "every element is closed where it was opened"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    found.close()
    assert found.depth == []
    return found


async def test_hostile_text_is_escaped_in_html(tmp_path: Path) -> None:
    path = await scripted_log(tmp_path, query=HOSTILE, text=HOSTILE)
    text = "".join(export(open_trajectory(path), "html"))
    found = parsed(text)
    assert found.tags <= ALLOWED_TAGS
    assert found.attributes <= ALLOWED_ATTRIBUTES
    assert all(re.fullmatch(r"#run-\d+", link or "") for link in found.links)
    assert "alert(1)</script><img src=x onerror=alert(2)>" in "".join(found.texts)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)
    assert f'http-equiv="Content-Security-Policy" content="{POLICY}"' in text
    assert POLICY.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in POLICY


async def test_hostile_text_stays_in_its_fence_in_markdown(tmp_path: Path) -> None:
    path = await scripted_log(tmp_path, query=HOSTILE, text=HOSTILE)
    text = "".join(export(open_trajectory(path), "markdown"))
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
    raw = [t.content.strip() for t in tokens if t.type == "html_block"]
    opened = [content for content in raw if content.startswith("<details>")]
    assert len(opened) == raw.count("</details>")
    for content in raw:
        assert re.fullmatch(
            r'<a id="run-\d+"></a>|</details>|<details>\n<summary>[^<>]*</summary>', content
        ), content
    inline_kinds = {c.type for t in tokens for c in t.children or ()}
    assert inline_kinds <= {
        "text",
        "strong_open",
        "strong_close",
        "link_open",
        "link_close",
        "text_special",
        "html_inline",
    }
    links = [c.attrs["href"] for t in tokens for c in t.children or () if c.type == "link_open"]
    assert all(re.fullmatch(r"#run-\d+", str(link)) for link in links)
    html_inline = [c.content for t in tokens for c in t.children or () if c.type == "html_inline"]
    assert all(re.fullmatch(r'<a id="run-\d+">|</a>', each) for each in html_inline)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)


@given(st.text(alphabet="`~\n a#<", max_size=200))
def test_a_fence_can_hold_any_text(text: str) -> None:
    tokens = MarkdownIt().parse(f"{fenced(text)}\nend")
    assert [token.type for token in tokens] == [
        *("fence", "paragraph_open", "inline", "paragraph_close")
    ]
    assert tokens[0].content.rstrip("\n") == text.rstrip("\n")


@given(st.text(alphabet=string.punctuation + "ab1. www", min_size=1, max_size=60))
def test_inline_text_cannot_contain_markup(text: str) -> None:
    text = " ".join(text.split())
    rendered = MarkdownIt("gfm-like", {"linkify": False}).renderInline(inline(text))
    assert not re.search(r"<(?!/?p>)", rendered)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(
        f"| {inline(text)} | b |\n|---|---|\n"
    )
    assert sum(token.type == "th_open" for token in tokens) == 2


def test_training_rows_keep_hostile_text_unchanged(tmp_path: Path) -> None:
    events = one_run("a", query=HOSTILE)
    path = written(tmp_path / "a.jsonl", events)
    for format_ in ("sft", "openai-chat", "reference-jsonl"):
        for line in "".join(export(open_trajectory(path), format_)).split("\n")[:-1]:
            assert isinstance(json.loads(line), dict)


# -- any bytes, any JSON --------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def survives(path: Path) -> None:
    """Everything that can be asked of a file, none of which may raise anything of Python's own."""
    trajectory = open_trajectory(path)
    runs = trajectory.runs()
    every = list(trajectory.events())
    by_run = [event for run in runs for event in trajectory.run_events(run.run_id)]
    assert sorted(map(repr, by_run)) == sorted(map(repr, every))
    str(trajectory.skipped)
    for format_ in FORMATS:
        try:
            text = "".join(export(trajectory, format_))
        except ConfigError:
            assert not runs
            continue
        text.encode("utf-8")
        if FORMATS[format_].ending == ".jsonl":
            assert all(isinstance(json.loads(line), dict) for line in text.split("\n") if line)
        if format_ == "html":
            assert parsed(text).tags <= ALLOWED_TAGS


def changed(line: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The object with one value of it, at any depth, replaced."""
    if key in line:
        return {**line, key: value}
    return {
        name: changed(inner, key, value)
        if isinstance(inner, dict)
        else [changed(each, key, value) if isinstance(each, dict) else each for each in inner]
        if isinstance(inner, list)
        else inner
        for name, inner in line.items()
    }


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in keys_of(inner)}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


OURS = [
    json.loads(encoded(event)) for event in [*one_run("a"), *one_run("b", parent_id="a", depth=1)]
]
THEIRS = [json.loads(line) for line in REFERENCE_LOG.read_text("utf-8").splitlines()]


@given(
    st.lists(st.sampled_from(OURS), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from(sorted(keys_of(OURS))), JSON), max_size=4),
    st.binary(max_size=30),
)
def test_any_log_of_ours_can_be_read(
    tmp_path_factory: Any, lines: list[Any], edits: list[tuple[str, Any]], rubbish: bytes
) -> None:
    for at, (key, value) in enumerate(edits):
        lines = [changed(e, key, value) if n % 4 == at else e for n, e in enumerate(lines)]
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(text.encode() + rubbish)
    survives(path)


@given(
    st.lists(st.sampled_from(THEIRS), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(sorted(keys_of(THEIRS))), JSON), max_size=4),
    st.binary(max_size=30),
)
def test_any_log_of_the_reference_can_be_read(
    tmp_path_factory: Any, lines: list[Any], edits: list[tuple[str, Any]], rubbish: bytes
) -> None:
    for at, (key, value) in enumerate(edits):
        lines = [changed(e, key, value) if n % 4 == at else e for n, e in enumerate(lines)]
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    head = '{"type": "metadata"}\n'
    path.write_bytes((head + "".join(json.dumps(e) + "\n" for e in lines)).encode() + rubbish)
    survives(path)


@given(st.binary(max_size=400))
@example(b"SQLite format 3\0")
def test_any_bytes_can_be_opened_as_a_log(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_bytes(data)
    if data.startswith(b"SQLite format 3\0"):
        with pytest.raises(ConfigError):
            open_trajectory(path).runs()
    else:
        survives(path)


@pytest.mark.parametrize("field", ['"settings": {"a": [%s]}', "%s"], ids=["any", "duplicates"])
@pytest.mark.parametrize("number", ["1e300", "4.9E-324", "1" * 300])
def test_lines_of_slow_numbers_are_not_read_by_msgspec(
    field: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 MB of them held the viewer for 20 seconds."""
    repeated = ",".join([number] * 200)
    if field == "%s":
        repeated = ",".join([f'"wall_time": {number}'] * 200)
    started = '{"type":"run_started","run_id":"r","parent_id":null,"depth":0,"step":0,"query":"q",'
    text = (started + field % repeated + "}").encode()

    class Never:
        def __init__(self, real: Any) -> None:
            self.type = real.type

        def decode(self, text: bytes) -> Any:
            raise AssertionError("msgspec would take very long")

    for name in ("_GLANCE", "_EVENT"):
        monkeypatch.setattr(decoding, name, Never(getattr(decoding, name)))
    monkeypatch.setattr(index, "_LOOK", Never(index._LOOK))
    skipped = decoding.Skipped()
    line = decoding.Line(0, len(text), text)
    found = decoding.glance_at(line, skipped)
    assert found is not None
    assert found[1].run_id == "r"
    assert index._look(text).run_id == "r"
    decoding.event_of(line, skipped)
