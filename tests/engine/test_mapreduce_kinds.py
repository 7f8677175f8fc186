"""What kind of answer is wanted decides how the text is cut, read and put together again."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, Limits, RunResult, ScriptedClient, prompts
from rlm.engine.kinds import KINDS, by_words, kind_in
from rlm.engine.mapreduce import merging
from rlm.engine.mapreduce.pieces import groups_of, split, split_lines
from rlm.events import Planned, RunStarted
from rlm.messages import Request
from tests.fakes import PlanEnvironment

Answer = Callable[[str], str]


def text_of(request: Request) -> str:
    return str(request.messages[-1].content)


def part_of(text: str) -> str:
    """The piece of the context that a prompt shows."""
    return text.partition("\nText:\n")[2] or text.partition("\nLines:\n")[2]


class Reader:
    """A model that says which kind it is, reads pieces by one function and merges by another."""

    def __init__(self, kind: str, read: Answer, merge: Answer = lambda text: text) -> None:
        self.kind, self.read, self.merge = kind, read, merge
        self.pieces: list[str] = []
        self.merged: list[str] = []

    def __call__(self, request: Request) -> str:
        text = text_of(request)
        if "Reply with one word" in text:
            return self.kind
        if part := part_of(text):
            self.pieces.append(part)
            return self.read(part)
        self.merged.append(text)
        return self.merge(text)


async def asked(reader: Reader, query: str, context: str, **options: Any) -> RunResult:
    client = ScriptedClient(rules=[("", reader)], window_tokens=4_000)
    options = {"strategy": "mapreduce", **options}
    return await RLM(client, environment=PlanEnvironment(), **options).aask(query, context)


def plan_of(result: RunResult) -> Planned:
    return next(event for event in result.events if isinstance(event, Planned))


# -- counting -------------------------------------------------------------------------------------

FERRIES = "\n".join(f"line {n}: {'a ferry' if n % 7 == 0 else 'nothing'}" for n in range(3_000))


async def test_counts_are_added_up_by_code() -> None:
    reader = Reader("count", lambda part: f"There are {part.count('ferry')}.")
    result = await asked(reader, "How many ferries are there?", FERRIES)
    assert result.answer == str(FERRIES.count("ferry"))
    assert reader.merged == []
    assert plan_of(result).kind == "count"
    assert plan_of(result).pieces == len(reader.pieces) > 5
    assert "\n".join(reader.pieces) == FERRIES  # no line is in two pieces, and none is left out


async def test_a_piece_without_a_number_is_requested_again() -> None:
    seen: Counter[str] = Counter()

    def read(part: str) -> str:
        seen[part] += 1
        return (
            "I can't say."
            if "line 700:" in part and seen[part] == 1
            else part.count("ferry").__str__()
        )

    result = await asked(Reader("count", read), "How many ferries are there?", FERRIES)
    assert result.answer == str(FERRIES.count("ferry"))
    assert sorted(seen.values())[-2:] == [1, 2]


async def test_if_no_piece_gives_a_number_the_notes_are_merged() -> None:
    reader = Reader("count", lambda part: "some", lambda text: "many")
    assert (await asked(reader, "How many?", FERRIES)).answer == "many"


async def test_a_typed_count_is_formatted_by_the_model() -> None:
    reader = Reader(
        "count",
        lambda part: f"{part.count('ferry')}",
        lambda text: re.findall(r": (\d+)", text)[-1],
    )
    client = ScriptedClient(rules=[("", reader)], window_tokens=4_000)
    rlm = RLM(client, environment=PlanEnvironment(), strategy="mapreduce")
    result = await rlm.aask("How many?", FERRIES, response_model={"type": "integer"})
    assert result.answer == FERRIES.count("ferry")


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("7", 7),
        ("There are 3 here and 4 there, so 7.", 7),
        ("**1,204**", 1_204),
        ("None.", 0),
        ("Not found", 0),
        ("-2", -2),
        ("", None),
        ("a lot", None),
        ("v2.5x", None),
    ],
)
def test_the_number_is_read_from_a_reply(reply: str, number: int | None) -> None:
    assert merging.number_in(reply) == number


@given(st.text(max_size=100))
def test_any_reply_yields_a_number_or_none(reply: str) -> None:
    assert isinstance(merging.number_in(reply), int | None)


@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "It is {}.", "{:,}", "Total: {:,}\n"])
)
def test_numbers_are_read_in_every_notation(number: int, form: str) -> None:
    assert merging.number_in(form.format(number)) == number


# -- lists ----------------------------------------------------------------------------------------

TOWNS = [f"Town-{number}" for number in range(40)]
LETTERS = "\n".join(f"{'filler ' * 40}\nWe went to {town}." for town in TOWNS)


def towns(part: str) -> str:
    found = re.findall(r"to (Town-\d+)", part)
    return "\n".join(f"- {town}" for town in found) or "NOT FOUND"


async def test_lists_are_united_in_order_and_reformatted_if_nothing_gets_lost() -> None:
    reader = Reader("list", towns, lambda text: ", ".join(re.findall(r"Town-\d+", text)))
    result = await asked(reader, "List all towns.", LETTERS)
    assert result.answer == ", ".join(TOWNS)


async def test_a_reformatted_list_that_loses_items_is_rejected() -> None:
    reader = Reader("list", towns, lambda text: "Town-1, Town-2 and others")
    assert (await asked(reader, "List all towns.", LETTERS)).answer == "\n".join(TOWNS)


async def test_a_list_without_items_is_not_found() -> None:
    reader = Reader("list", lambda part: "NOT FOUND")
    assert (await asked(reader, "List all ships.", LETTERS)).answer == "NOT FOUND"


def test_list_markers_are_removed_from_items() -> None:
    reply = "1. Anna\n- Ben\n* `Carl`\n\n(4) Dora\n• 2024 was dry"
    assert merging.items_in(reply) == ["Anna", "Ben", "Carl", "Dora", "2024 was dry"]


@given(st.lists(st.lists(st.text(min_size=1, max_size=8), max_size=6), max_size=4))
def test_a_union_holds_every_item_once(lists: list[list[str]]) -> None:
    found = merging.union(lists)
    every = [item for each in lists for item in each]
    assert set(found) <= set(every)
    assert merging.union([found]) == found
    assert merging.union([*lists, *lists]) == found


# -- labels ---------------------------------------------------------------------------------------

PEOPLE = ["ann", "bob", "cem"]


def item(number: int) -> str:
    text = f"there was a {'goal' if number % 3 == 0 else 'vote'}, {number}"
    return f"Date: day {number % 5} || User: {PEOPLE[number % 3]} || Instance: {text}"


ITEMS = "\n".join(map(item, range(400)))


def label(part: str) -> str:
    lines = (line.partition("| ") for line in part.splitlines())
    return "\n".join(f"{n}: {'Sports' if 'goal' in text else 'Politics'}" for n, _, text in lines)


async def test_every_line_is_labelled_and_code_counts_the_labels() -> None:
    reader = Reader("label", label, lambda text: "politics")
    result = await asked(reader, "Which label is the most frequent?", f"Some items:\n{ITEMS}")
    assert result.answer == "politics"
    (table,) = reader.merged
    assert "Lines in total: 401" in table
    assert re.search(r"By label:\npolitics: 267\nsports: 134", table)
    assert "By User:\nann: sports 134\nbob: politics 133\ncem: politics 133" in table
    assert "day 4:" in table
    assert "By Instance" not in table  # they are all different


def test_a_table_counts_labels_by_user_and_date() -> None:
    who_and_when = [("ann", 1), ("bob", 2), ("ann", 2), ("bob", 2), ("bob", 3)]
    lines = [
        f"Date: day {day} || User: {who} || Instance: {number}: a text of its own, and a long one"
        for number, (who, day) in enumerate(who_and_when)
    ]
    lines.append("no fields at all")
    labels = dict(enumerate(["x", "x", "y", "x", "y", "-"]))
    table = merging.table_of("When was the first x of a user?", lines, labels, 10_000)
    by_both = "ann: day 1 (x 1); day 2 (y 1)\nbob: day 2 (x 2); day 3 (y 1)"
    assert table.endswith(f"\n\nBy User and Date:\n{by_both}")
    assert "By User:\nann: x 1, y 1\nbob: x 2, y 1\n\nBy Date:\nday 1: x 1\n" in table


def test_a_table_that_is_too_long_begins_with_the_relevant_rows() -> None:
    lines = [
        f"Date: day {n} || User: user {n % 300} || Instance: {n}: a text of its own, a long one"
        for n in range(1_200)
    ]
    labels = dict.fromkeys(range(1_200), "x")
    whole = merging.table_of("How many are there?", lines, labels, 10**6)
    assert whole.count("\nday ") == 1_200  # however many there are, if there is room
    table = merging.table_of("When was the first x of user 299?", lines, labels, len(whole) // 2)
    assert len(table) <= len(whole) // 2 + len("\n… (cut)")
    assert "user 299: x 4" in table
    table = merging.table_of("Of user 299?", lines, labels, len(whole) - 1)
    first = "user 299: day 299 (x 1); day 599 (x 1); day 899 (x 1); day 1199 (x 1)"
    assert f"\nBy User and Date:\n{first}\n" in table
    assert table.endswith("(x 1)\n… (cut)")  # no half of a line, which could be misread


async def test_lines_left_out_of_a_reply_are_requested_again() -> None:
    first = True

    def forgetful(part: str) -> str:
        nonlocal first
        said = label(part).splitlines()
        kept, first = said[::2] if first else said, False
        return "\n".join(kept)

    reader = Reader("label", forgetful, lambda text: "x")
    await asked(reader, "Which label is the most frequent?", ITEMS)
    assert "Lines in total: 400" in reader.merged[0]


async def test_a_text_without_separate_lines_is_read_as_a_whole() -> None:
    reader = Reader("label", lambda part: "one label", lambda text: "one")
    assert (await asked(reader, "Which label?", "word " * 5_000)).answer == "one"


async def test_pairs_are_formed_by_code() -> None:
    groups = "A: ann, bob\nB: bob, cem"
    reader = Reader("pairs", label, lambda text: groups)
    result = await asked(reader, "Which pairs of users fit?", ITEMS)
    assert result.answer == "(ann, bob)\n(ann, cem)\n(bob, cem)"


async def test_if_groups_cannot_be_parsed_the_model_answers() -> None:
    reader = Reader("pairs", label, lambda text: "(ann, bob)")
    assert (await asked(reader, "Which pairs of users fit?", ITEMS)).answer == "(ann, bob)"


def test_labels_are_parsed_leniently_but_only_for_requested_numbers() -> None:
    reply = "3: Sports\n 4) **Politics**.\n- 5: `A  b`\n9: none of ours\n3: again\nnonsense"
    assert merging.labels_in(reply, range(3, 6)) == {3: "sports", 4: "politics", 5: "a b"}


@given(st.text(max_size=200), st.sets(st.integers(0, 50)))
def test_any_reply_labels_only_requested_numbers(reply: str, numbers: set[int]) -> None:
    assert merging.labels_in(reply, numbers).keys() <= numbers


@given(st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef")))
def test_each_pair_occurs_once_and_has_two_members(first: list[str], second: list[str]) -> None:
    pairs = merging.pairs_of(first, second)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    expected = {frozenset((a, b)) for a in first for b in second if a != b}
    assert {frozenset(pair) for pair in pairs} == expected


@given(st.text(max_size=200))
def test_any_line_yields_text_fields_or_none(line: str) -> None:
    assert all(isinstance(value, str) for value in merging.fields_of(line).values())


# -- facts ----------------------------------------------------------------------------------------


def needle(part: str) -> str:
    return "\n".join(re.findall(r"The vault .*", part)) or "NOT FOUND"


async def test_pieces_with_relevant_words_are_read_first() -> None:
    filler = "The weather was mild and the road was long.\n" * 1_500
    context = filler + "The vault of Norwich opens with 4821.\n" + filler
    reader = Reader("find", needle, lambda text: "4821" if "4821" in text else "NOT FOUND")
    result = await asked(reader, "Which number opens the vault of Norwich?", context)
    assert result.answer == "4821"
    assert len(reader.pieces) < 4
    plan = plan_of(result)
    assert plan.unread == plan.pieces - len(reader.pieces) > 10


async def test_the_other_pieces_are_read_if_the_relevant_ones_have_no_answer() -> None:
    filler = "The weather was mild and the road was long.\n" * 500
    decoy = "Norwich has a vault, and nobody knows its number.\n"
    context = filler + decoy + filler + "It is opened by 4821, that strong room.\n"
    reader = Reader(
        "find",
        lambda part: "4821" if "4821" in part else "NOT FOUND",
        lambda text: "4821" if "4821" in text else "NOT FOUND",
    )
    result = await asked(reader, "Which number opens the vault of Norwich?", context)
    assert result.answer == "4821"
    plans = [event for event in result.events if isinstance(event, Planned)]
    assert plans[0].unread > 0
    assert plans[1].unread == 0


CHAIN = ("The vault of Norwich is kept by Ada.", "Ada lives in Bath.", "Bath lies on the Avon.")
WHERE = "On which river does the keeper of the vault of Norwich live?"


def links(text: str) -> str:
    return "\n".join(each for each in CHAIN if each in text) or "NOT FOUND"


async def test_facts_of_relevant_and_other_pieces_are_combined() -> None:
    filler = "The weather was mild and the road was long.\n" * 300
    reader = Reader(
        "find", links, lambda text: "Avon" if links(text).count("\n") == 2 else "NOT FOUND"
    )
    result = await asked(reader, WHERE, filler.join((*CHAIN[::-1], "")))
    assert result.answer == "Avon"
    first, second = reader.merged
    assert "so far only" in first
    assert "so far only" not in second
    assert second.index("Bath lies") < second.index("Ada lives") < second.index("kept by Ada")
    plan = plan_of(result)
    assert len(reader.pieces) == plan.pieces > plan.unread > 0  # none is read twice


async def test_notes_too_long_for_one_prompt_are_shortened_before_answering() -> None:
    filler = "Norwich has a vault.\n" * 900
    wordy = "This part says something about it, namely, in so many words: " * 30

    def merge(text: str) -> str:
        if "Do not answer it yet" in text:
            return links(text)
        return "Avon" if links(text).count("\n") == 2 else "NOT FOUND"

    reader = Reader("find", lambda part: f"{wordy}\n{links(part)}", merge)
    result = await asked(reader, WHERE, filler.join(CHAIN))
    assert result.answer == "Avon"
    asked_for = ["Do not answer it yet" in text for text in reader.merged]
    assert asked_for[-3:] == [True, True, False]


def test_notes_are_truncated_only_if_no_two_fit_one_prompt() -> None:
    assert groups_of(["x" * 90, "y" * 40, "z" * 10], 116) == [
        *(f"[1] {'x' * 90}", f"[2] {'y' * 40}\n\n[3] {'z' * 10}")
    ]
    assert groups_of(["x" * 90, "y" * 90], 116) == [f"[1] {'x' * 42}\n\n[2] {'y' * 42}"]
    assert groups_of(["x" * 500], 116) == [f"[1] {'x' * 100}"]


@given(st.lists(st.text("ab", max_size=300), max_size=12), st.integers(60, 200))
def test_merging_always_terminates(notes: list[str], size: int) -> None:
    groups = groups_of(notes, size)
    assert len(groups) < len(notes) or len(notes) <= 1
    assert all(len(group) <= size for group in groups)


async def test_a_task_stated_in_the_context_is_looked_for_everywhere() -> None:
    filler = "The weather was mild and the road was long.\n" * 1_000
    reader = Reader("", lambda part: "NOT FOUND")
    result = await asked(reader, prompts.FIXED_QUERY, f"{filler}The task: read the context.")
    plans = [event for event in result.events if isinstance(event, Planned)]
    assert [(plan.kind, plan.unread) for plan in plans] == [("find", 0)]
    assert len(reader.pieces) == plans[0].pieces


async def test_a_summary_reads_everything() -> None:
    reader = Reader("summary", lambda part: "a note", lambda text: "all of it")
    result = await asked(reader, "Summarise it.", LETTERS)
    assert result.answer == "all of it"
    assert len(reader.pieces) == plan_of(result).pieces


# -- planning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("Which pairs of users share a label?", "pairs"),
        ("How many lines are labelled as spam?", "label"),
        ("How many ferries are there?", "count"),
        ("List the suppliers.", "list"),
        ("Give me all dates.", "list"),
        ("Summarize the report.", "summary"),
        ("Who mended the sail?", "find"),
    ],
)
async def test_words_determine_the_kind_if_the_models_reply_is_unusable(
    query: str, kind: str
) -> None:
    assert by_words(query) == kind
    reader = Reader("Hm, find or count?", lambda part: "1", lambda text: "1")
    assert plan_of(await asked(reader, query, ITEMS)).kind == kind


def test_a_reply_must_name_exactly_one_kind() -> None:
    assert [kind_in(f"I think: **{kind}**.") for kind in KINDS] == list(KINDS)
    assert kind_in("find, or count") is None
    assert kind_in("") is None


@given(st.text(max_size=80))
def test_any_query_has_a_kind_and_any_reply_one_or_none(text: str) -> None:
    assert by_words(text) in KINDS
    assert kind_in(text) in {None, *KINDS}


async def test_few_calls_make_large_pieces() -> None:
    reader = Reader("count", lambda part: "1")
    many = plan_of(await asked(reader, "How many?", FERRIES, profile="small"))
    limits = Limits(max_calls=many.pieces)
    few = plan_of(await asked(reader, "How many?", FERRIES, profile="small", limits=limits))
    assert few.pieces < many.pieces
    assert few.piece_chars > many.piece_chars


@given(st.lists(st.text("ab", min_size=1, max_size=30), max_size=40), st.integers(5, 60))
def test_each_line_is_in_exactly_one_piece(lines: list[str], size: int) -> None:
    pieces = split_lines(lines, size)
    assert [number for piece in pieces for number in piece] == list(range(len(lines)))
    for piece in pieces:
        assert len(piece) == 1 or sum(len(lines[n]) + 1 for n in piece) <= size


@given(st.text("ab .\n", max_size=2_000), st.integers(4, 300))
def test_without_overlap_the_pieces_make_up_the_text(text: str, size: int) -> None:
    assert "".join(text[start:end] for start, end in split(text, size, 0)) == text


@pytest.mark.parametrize(
    ("profile", "context", "strategy", "why"),
    [
        ("standard", "w " * 50, "direct", "half of what fits in one prompt"),
        ("standard", "w " * 50_000, "rlm", "can explore the context with code"),
        ("small", "w " * 50_000, "mapreduce", "reads better than it codes"),
        ("tiny", "w " * 50_000, "mapreduce", "reads better than it codes"),
        ("small", ["w " * 500] * 100, "rlm", "is structured"),
    ],
)
async def test_auto_records_what_it_chose_and_why(
    profile: Any, context: Any, strategy: str, why: str
) -> None:
    client = ScriptedClient(rules=[("", "FINAL(done)")], window_tokens=4_000, profile=profile)
    rlm = RLM(client, environment=PlanEnvironment(), strategy="auto")
    result = await rlm.aask("q", context)
    started, planned = result.events[:2]
    assert isinstance(started, RunStarted)
    assert isinstance(planned, Planned)
    assert started.strategy == planned.strategy == strategy
    assert why in planned.reason


async def test_an_explicit_strategy_is_not_explained() -> None:
    client = ScriptedClient(["42"], window_tokens=4_000)
    rlm = RLM(client, environment=PlanEnvironment(), strategy="direct")
    result = await rlm.aask("q", "some text")
    assert not any(isinstance(event, Planned) for event in result.events)


def test_long_runs_of_spaces_take_linear_time() -> None:
    """In lines of a context and in replies; quadratic time would be hours."""
    spaces = " " * 2_000_000
    assert merging.fields_of(f"a: b{spaces}c ||  D: e") == {"a": f"b{spaces}c", "D": "e"}
    assert merging.labels_in(f"1: a{spaces}b\n- 2) {spaces}", {1, 2}) == {1: "a b"}
