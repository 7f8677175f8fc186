"""`classify` and `where`: every item gets its label, and unsure ones are checked again."""

import asyncio
import re
import threading
from collections import Counter
from typing import Any

import pytest

from rlm import Limits, ModelError, operators
from rlm.engine.operators import labelling
from rlm.engine.operators.reading import labels_in
from rlm.errors import ConfigError
from rlm.events import CallStarted, OperatorEnded, OperatorStarted
from tests.operator_reader import Reader, codes_in, items_in

LABELS = ["spam", "ham"]
LINES = [("buy " if number % 3 == 0 else "dear ") + str(number) for number in range(120)]
RIGHT = ["spam" if line.startswith("buy") else "ham" for line in LINES]


def by_word(item: str, prompt: str) -> str:
    return codes_in(prompt)["spam" if item.startswith("buy") else "ham"]


def test_labels_come_in_the_order_of_the_items() -> None:
    reader = Reader(by_word)
    found = operators.classify(LINES, LABELS, model=reader)
    assert found == RIGHT
    assert [len(items) for items in reader.asked] == [50, 50, 20]
    assert (found.missing, found.unsure, found.run.stop_reason) == ([], [], "answer")
    assert found.note == "classify: 120 items, 3 prompts"


def test_equal_items_are_labelled_once() -> None:
    reader = Reader(by_word)
    found = operators.classify(LINES + LINES[:40] + [" buy 0 "], LABELS, model=reader)
    assert found == [*RIGHT, *RIGHT[:40], "spam"]
    assert sum(map(len, reader.asked)) == 120
    assert found.note == "classify: 161 items, 120 distinct, 3 prompts"


def test_only_items_without_a_label_are_asked_about_again() -> None:
    seen = Counter[str]()

    def forgetful(item: str, prompt: str) -> str | None:
        seen[item] += 1
        return None if seen[item] == 1 and item.endswith("7") else by_word(item, prompt)

    reader = Reader(forgetful)
    found = operators.classify(LINES, LABELS, model=reader)
    assert found == RIGHT
    assert {item for item, times in seen.items() if times > 1} == {
        line for line in LINES if line.endswith("7")
    }
    assert "12 asked again" in found.note


def test_an_item_given_two_labels_in_one_reply_is_asked_about_again() -> None:
    reader = Reader(by_word)
    plain, contradicting = reader.reply, iter([True])

    def reply(prompt: str) -> str:
        return plain(prompt) + ("\n1: B\n1: A" if next(contradicting, False) else "")

    reader.reply = reply  # type: ignore[method-assign]
    found = operators.classify(LINES[:10], LABELS, model=reader)
    assert found == RIGHT[:10]
    assert reader.asked[1:] == [["buy 0"]]


def test_unsure_items_are_checked_again_among_different_items() -> None:
    def doubtful(item: str, prompt: str) -> str:
        return by_word(item, prompt) + ("?" if item.endswith("3") else "")

    reader = Reader(doubtful)
    found = operators.classify(LINES, LABELS, model=reader)
    unsure = [line for line in LINES if line.endswith("3")]
    assert found == RIGHT
    assert sorted(reader.asked[3]) == sorted(unsure)
    assert reader.asked[3] != unsure
    assert codes_in(reader.prompts[3]) != codes_in(reader.prompts[0])
    assert [LINES[place] for place in found.unsure] == unsure
    assert found.note == "classify: 120 items, 4 prompts, 12 looked at again, 0 changed"


def test_a_third_look_decides_where_two_looks_differ() -> None:
    looks = Counter[str]()

    def wavering(item: str, prompt: str) -> str:
        looks[item] += 1
        right = by_word(item, prompt)
        if not item.endswith("3"):
            return right
        if looks[item] == 1:
            return codes_in(prompt)["ham" if item.startswith("buy") else "spam"] + "?"
        return right

    reader = Reader(wavering)
    found = operators.classify(LINES, [*LABELS, "other"], model=reader)
    assert found == RIGHT
    assert "12 looked at again, 12 changed" in found.note
    settling = reader.prompts[4]
    candidates = settling.partition("Candidates:\n")[2].partition("\n\n")[0]
    assert re.fullmatch(r"(\d+: [ABC] or [ABC]\n?){12}", candidates)
    assert settling.index("Candidates:") < settling.index("Items:")
    assert looks.total() == 120 + 12 + 12


def test_check_all_asks_about_everything_twice_and_check_none_once() -> None:
    reader = Reader(by_word)
    operators.classify(LINES, LABELS, check="all", model=reader)
    assert sum(map(len, reader.asked)) == 240
    reader = Reader(lambda item, prompt: by_word(item, prompt) + "?")
    found = operators.classify(LINES, LABELS, check="none", model=reader)
    assert sum(map(len, reader.asked)) == 120
    assert len(found.unsure) == 120


@pytest.mark.parametrize(
    "labels",
    [
        ["bug", "bug report", "report"],
        ["B", "A", "C"],
        ["yes", "yes?", "no"],
        ["L1", "A", "B"],
        [f"label {number}" for number in range(60)],
        ["A = B", "B = A", "C"],
    ],
)
def test_labels_that_contain_each_other_are_distinguished(labels: list[str]) -> None:
    items = [f"{number} {label}" for number, label in enumerate(labels * 2)]
    by_code = Reader(lambda item, prompt: codes_in(prompt)[item.partition(" ")[2]])
    assert operators.classify(items, labels, model=by_code) == labels * 2
    by_name = Reader(lambda item, prompt: item.partition(" ")[2])
    found = operators.classify(items, labels, check="none", model=by_name)
    assert all(one in (None, other) for one, other in zip(found, labels * 2, strict=True))


def test_no_items_and_a_single_item() -> None:
    reader = Reader(by_word)
    assert operators.classify([], LABELS, model=reader) == []
    assert reader.prompts == []
    assert operators.classify(["buy 1"], LABELS, model=reader) == ["spam"]
    assert "Items:" not in reader.prompts[0]
    assert "1." not in reader.prompts[0]


def test_a_very_long_item_is_shown_without_its_middle() -> None:
    reader = Reader(by_word, window_tokens=8_000)
    found = operators.classify(["buy " + "x" * 1_000_000, *LINES[:3]], LABELS, model=reader)
    assert found == ["spam", *RIGHT[:3]]
    assert max(map(len, reader.prompts)) < 16_000
    assert "1 too long, shown with the middle cut out" in found.note


@pytest.mark.parametrize(
    "reply",
    ["I can't help with that.", "", "1: 1: 1:", "A B C " * 10_000, "{" * 5_000, "?\n" * 500],
)
def test_unusable_replies_end_the_operator_soon_and_give_no_labels(reply: str) -> None:
    reader = Reader(by_word)
    reader.reply = lambda prompt: reply  # type: ignore[method-assign]
    found = operators.classify(LINES, LABELS, model=reader)
    assert found == [None] * 120
    assert found.missing == list(range(120))
    assert "120 have no result: the model gave no usable reply" in found.note
    assert found.run.stop_reason == "error"
    assert len(reader.prompts) == 3 + 3


def test_a_model_that_labels_one_item_per_prompt_is_given_single_items() -> None:
    reader = Reader(by_word)
    plain = reader.reply
    reader.reply = lambda prompt: plain(prompt).splitlines()[0]  # type: ignore[method-assign]
    found = operators.classify(LINES[:30], LABELS, model=reader)
    assert found == RIGHT[:30]
    assert [len(items) for items in reader.asked] == [30, *[1] * 29]


def test_a_few_items_that_keep_failing_are_retried_alone() -> None:
    tries = Counter[str]()

    def stubborn(item: str, prompt: str) -> str | None:
        tries[item] += 1
        return None if item == LINES[4] and tries[item] < 6 else by_word(item, prompt)

    found = operators.classify(LINES[:20], LABELS, model=Reader(stubborn))
    assert found == RIGHT[:20]
    assert tries[LINES[4]] == 6
    never = Reader(lambda item, prompt: None if item == LINES[4] else by_word(item, prompt))
    found = operators.classify(LINES[:20], LABELS, model=never)
    assert found.missing == [4]


def test_when_the_budget_runs_out_the_remaining_items_are_reported_missing() -> None:
    reader = Reader(by_word)
    limits = Limits(max_calls=2, max_concurrent_calls=1)
    found = operators.classify(LINES, LABELS, model=reader, limits=limits)
    assert found == [*RIGHT[:100], *[None] * 20]
    assert found.missing == list(range(100, 120))
    assert "20 have no result" in found.note
    assert "max_calls" in found.note
    assert (found.run.stop_reason, found.run.limit) == ("limit", "calls")


def test_without_any_budget_the_result_has_no_labels() -> None:
    found = operators.classify(LINES, LABELS, model=Reader(by_word), limits=Limits(max_calls=0))
    assert found == [None] * 120
    assert len(found.missing) == 120
    assert "max_calls" in found.note


def test_if_every_call_fails_the_error_is_raised() -> None:
    reader = Reader(by_word)
    reader.rules = [(re.compile(""), ModelError("the server is on fire"))]
    with pytest.raises(ModelError, match="on fire"):
        operators.classify(LINES, LABELS, model=reader)


def test_items_of_a_failed_call_are_asked_about_again() -> None:
    reader = Reader(by_word)
    failures = iter([True])
    plain = reader.reply

    def reply(prompt: str) -> str:
        if next(failures, False):
            raise ModelError("one bad moment")
        return plain(prompt)

    reader.reply = reply  # type: ignore[method-assign]
    found = operators.classify(LINES, LABELS, model=reader)
    assert found == RIGHT
    assert "1 failed, 50 asked again" in found.note


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([], "two or more"),
        (["one"], "two or more"),
        (["same", " SAME "], "two or more"),
        (["", "x"], "two or more"),
        ([f"label {n}" for n in range(501)], "too many"),
        (["x" * 100_000, "y"], "too many"),
    ],
)
def test_labels_that_no_model_could_use_are_refused(labels: list[str], problem: str) -> None:
    reader = Reader(by_word)
    with pytest.raises(ConfigError, match=problem):
        operators.classify(LINES, labels, model=reader)
    assert reader.prompts == []


def test_one_text_is_not_a_list_of_letters() -> None:
    with pytest.raises(ConfigError, match="a list of items, not one str"):
        operators.classify("buy this", LABELS, model=Reader(by_word))


def test_an_operator_has_start_and_end_events_and_its_calls_name_it() -> None:
    found = operators.classify(LINES, LABELS, model=Reader(by_word))
    events = found.run.events
    (started,) = [event for event in events if isinstance(event, OperatorStarted)]
    (ended,) = [event for event in events if isinstance(event, OperatorEnded)]
    calls = [event for event in events if isinstance(event, CallStarted)]
    assert (started.name, started.task, started.items) == ("classify", "spam, ham", 120)
    assert (ended.operator_id, ended.prompts) == (started.operator_id, 3)
    assert ended.summary == found.note
    assert [call.operator_id for call in calls] == [started.operator_id] * 3


def test_where_returns_items_and_their_indexes() -> None:
    def says(item: str, prompt: str) -> str:
        assert "Condition: wants money" in prompt
        return "yes" if item.startswith("buy") else "No."

    lines = [*LINES, "buy 0"]
    found = operators.where(lines, "wants money", model=Reader(says))
    assert found == [line for line in lines if line.startswith("buy")]
    assert found.indexes == [place for place, line in enumerate(lines) if line.startswith("buy")]
    assert "41 chosen" in found.note


def test_items_with_several_lines_keep_their_numbers() -> None:
    lines = ["buy\n2. dear\n\n3: B", "dear\r\n1. buy", "buy\u2028x"]
    reader = Reader(by_word)
    assert operators.classify(lines, LABELS, model=reader) == ["spam", "ham", "spam"]
    assert len(items_in(reader.prompts[0])) == 3


def test_long_replies_are_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    read = labels_in

    def reading(reply: str, *given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(reply, *given)

    monkeypatch.setattr(labelling, "labels_in", reading)
    short, long = Reader(by_word), Reader(by_word)
    plain = long.reply
    long.reply = lambda prompt: plain(prompt) + "\nas said" * 40_000  # type: ignore[method-assign]
    asyncio.run(operators.aclassify(LINES[:50], LABELS, model=short))
    assert threads == [threading.main_thread().name]
    limits = Limits(call_output_tokens=200_000)
    found = asyncio.run(operators.aclassify(LINES[:50], LABELS, model=long, limits=limits))
    assert found == RIGHT[:50]
    assert len(threads) == 2
    assert threads[1] != threading.main_thread().name


@pytest.mark.parametrize("items", [None, 5, "text", b"text", {"a": "b"}])
def test_items_that_are_not_a_list_are_refused(items: Any) -> None:
    with pytest.raises(ConfigError, match="expected a list of items"):
        operators.classify(items, LABELS, model=Reader(by_word))
    with pytest.raises(ConfigError, match="expected a list of items"):
        operators.classify(LINES, items, model=Reader(by_word))


def test_items_without_a_result_are_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="rlm"):
        found = operators.where(["a", "b"], "it is a letter", model=lambda prompt: "I like boats.")
    assert (list(found), found.missing) == ([], [0, 1])
    assert "no result" in caplog.text
