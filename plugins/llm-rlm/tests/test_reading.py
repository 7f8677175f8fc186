"""Parts that need no run: splitting prompts, naming contexts, converting events."""

import json
import sys
from pathlib import Path
from typing import Any

import click
import llm
import llm.cli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_rlm.common import cut, replace_surrogates
from llm_rlm.contexts import contexts_of, load_files, named_texts
from llm_rlm.prompts import MAX_QUERY_CHARS, read_prompt, split_piped
from llm_rlm.responses import EventParts

from rlm import events

texts = st.text(max_size=60)
lines = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def typed(command: click.Command, **params: Any) -> click.Context:
    context = click.Context(command)
    context.params = params
    return context


class Stdin:
    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


# -- the question ---------------------------------------------------------------------------------


@given(piped=st.text(min_size=1, max_size=200), question=lines)
def test_piped_text_and_question_are_separated_where_llm_joined_them(
    piped: str, question: str
) -> None:
    with typed(llm.cli.prompt, prompt=question):
        assert split_piped(f"{piped} {question}") == (piped, question)
        assert split_piped(question) == ("", question)


@pytest.mark.parametrize(("is_terminal", "split"), [(False, ("text", "")), (True, ("", "text"))])
def test_without_a_question_the_whole_text_was_piped_or_typed(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, split: tuple[str, str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(is_terminal=is_terminal))
    with typed(llm.cli.prompt, prompt=None):
        assert split_piped("text") == split


def test_outside_llms_command_everything_is_the_question() -> None:
    assert split_piped("a b") == ("", "a b")
    with typed(click.Command("other"), prompt="b"):
        assert split_piped("a b") == ("", "a b")


@settings(max_examples=50)
@given(fragments=st.lists(texts, max_size=4), question=texts)
def test_a_prompt_is_split_into_the_parts_it_was_made_of(
    fragments: list[str], question: str
) -> None:
    prompt = llm.Prompt(question, _Model(), fragments=list(fragments))
    asked = read_prompt(prompt)
    assert (asked.query or "") == question
    assert list(asked.texts.values()) == fragments


@given(st.text(min_size=1, max_size=9))
def test_a_question_longer_than_the_limit_becomes_a_context(word: str) -> None:
    text = word * (MAX_QUERY_CHARS + 1)
    prompt = llm.Prompt(text, _Model(), system=f"Rules: {text}.")
    asked = read_prompt(prompt)
    assert len(asked.query or "") < 100
    assert len(asked.prologue()) < 200
    assert asked.contexts(is_first=True) == [{"task": text, "instructions": prompt.system}]
    assert asked.contexts(is_first=False) == [{"task": text}]


def test_files_may_have_the_names_that_we_use() -> None:
    fragments: list[Any] = [llm.Fragment("a", "task"), llm.Fragment("b", "x/instructions")]
    long = "long " * MAX_QUERY_CHARS
    asked = read_prompt(llm.Prompt(long, _Model(), fragments=fragments, system=long.upper()))
    assert asked.query is not None
    assert 'context["task (2)"]' in asked.query
    assert 'context["instructions (2)"]' in asked.prologue()
    [context] = asked.contexts(is_first=True)
    assert isinstance(context, dict)
    assert list(context) == ["task (2)", "task", "instructions", "instructions (2)"]


class _Model(llm.Model):
    model_id = "none"

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Any:
        raise NotImplementedError


# -- names and values -----------------------------------------------------------------------------


@given(st.lists(st.tuples(texts, st.text(max_size=20)), max_size=8), texts)
def test_every_text_has_a_unique_name(given: list[tuple[str, str]], piped: str) -> None:
    named = named_texts([llm.Fragment(text, source) for text, source in given], piped)
    assert list(named.values()) == [text for text, _ in given] + ([piped] if piped else [])
    assert all("/" not in name for name in named)


@given(st.binary(max_size=100))
def test_bytes_are_text_only_if_they_are_utf8(data: bytes) -> None:
    [value] = contexts_of({}, [llm.Attachment(type="x/y", content=data or b"a")])
    if isinstance(value, str):
        assert value.encode() == (data or b"a")
    else:
        assert value == data


def test_files_matching_a_pattern_are_sorted(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "deep/c.log", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found: list[Any] = load_files(f"{tmp_path}/**/*.log")
    assert [Path(each.path).name for each in found] == ["a.log", "b.log", "c.log"]
    [image] = load_files(str(tmp_path / "d.txt"))
    assert isinstance(image, llm.Attachment)
    assert image.type == "text/plain"


# -- responses -----------------------------------------------------------------------------------


@given(st.text(max_size=300), st.integers(2, 200))
def test_a_cut_text_keeps_its_ends(text: str, most: int) -> None:
    shown = cut(text, most)
    assert len(shown) <= most + 50
    assert shown == text or (text.startswith(shown[: most // 2]) and "left out" in shown)


@given(st.text(max_size=50))
def test_lone_surrogates_are_replaced_and_other_texts_unchanged(text: str) -> None:
    assert replace_surrogates(text) == text
    assert replace_surrogates(f"{text}\ud83d|").encode().decode().startswith(text)


def test_a_thousand_calls_take_a_few_lines() -> None:
    converter = EventParts()
    lines = [
        part.chunk
        for number in range(1_000)
        for part in converter.parts(
            events.CallEnded(run_id="r", call_id=str(number), kind="llm", model="m")
        )
    ]
    assert lines[0] == "  1 call\n"
    assert lines[-1] == "  1,000 calls\n"
    assert len(lines) == 10


def test_every_kind_of_event_can_be_shown() -> None:
    converter = EventParts()
    common: dict[str, Any] = {"run_id": "r" * 20, "step": 1}
    happened: list[events.Event] = [
        events.CallRetried(**common, model="m", attempt=1, wait_seconds=2.0, error="busy\nmore"),
        events.SessionLost(**common, reason="gone"),
        events.Compacted(
            **common, messages_before=9, messages_after=2, chars_before=9, chars_after=1
        ),
        events.StepStarted(**common),
        events.CallEnded(**common, call_id="c", kind="llm", model="m", error="refused"),
    ]
    lines = "".join(part.chunk for event in happened for part in converter.parts(event))
    assert lines.splitlines() == [
        "retrying in 2.0 s: busy",
        "the session was lost: gone",
        "the history was compacted",
        "  1 call; this one failed: refused",
    ]


def test_code_is_shown_as_json() -> None:
    started = events.CellStarted(run_id="r" * 20, step=1, cell=1, code='print("\\u0000 \ud800")')
    name, arguments = EventParts().parts(started)
    assert name.chunk == "python"
    assert json.loads(arguments.chunk) == {"code": 'print("\\u0000 \ufffd")'}
