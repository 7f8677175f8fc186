"""`extract`, `answer_each`, `pairs`, `rank` and `merge`, and their bad input."""

import dataclasses
import json
import re

import pytest

from rlm import Limits, operators
from rlm.engine.operators import running
from rlm.errors import ConfigError
from tests.operator_reader import Reader, codes_in, items_in

NAMES = ("Ada", "Bob", "Cy", "Di")
PEOPLE = [f"{name} is {age} years old" for age, name in enumerate(NAMES, 30)]


# -- extract --------------------------------------------------------------------------------------


def person(item: str, prompt: str) -> str:
    name, _, age, *_ = item.split()
    return json.dumps({"name": name, "age": age, "more": 1})


def test_extract_gives_a_dict_of_the_fields_and_types_asked_for() -> None:
    found = operators.extract(PEOPLE, {"name": str, "age": "int", "town": ""}, model=Reader(person))
    assert found[0] == {"name": "Ada", "age": 30, "town": None}
    assert [each["name"] for each in found] == ["Ada", "Bob", "Cy", "Di"]


def test_extract_takes_a_json_schema_and_a_class() -> None:
    @dataclasses.dataclass
    class Person:
        name: str
        age: int

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "string"}},
        "required": ["name", "age"],
    }
    found = operators.extract(PEOPLE, schema, model=Reader(person))
    assert found[1]["age"] == "31"
    people = operators.extract(PEOPLE, Person, model=Reader(person))
    assert people[0] == Person("Ada", 30)


@pytest.mark.parametrize(
    ("schema", "replies", "values"),
    [
        (int, ("30", "31"), [30, 31]),
        (bool, ("true", "false"), [True, False]),
        (int | None, ("null", "31"), [None, 31]),
        ({"enum": ["old", "young"]}, ('"old"', '"young"'), ["old", "young"]),
        ({"type": "string"}, ('"Ada"', '"Bob"'), ["Ada", "Bob"]),
    ],
)
def test_extract_gives_single_values_too(
    schema: object, replies: tuple[str, str], values: list[object]
) -> None:
    said = dict(zip(PEOPLE, replies, strict=False))
    for items in (PEOPLE[:2], PEOPLE[:1]):
        found = operators.extract(items, schema, model=Reader(lambda item, prompt: said[item]))
        assert found == values[: len(items)]
        assert found.missing == []


@pytest.mark.parametrize("name", ["type", "enum", "const", "anyOf"])
def test_a_field_may_be_called_like_a_word_of_json_schema(name: str) -> None:
    reader = Reader(lambda item, prompt: json.dumps({name: "a", "age": 1}))
    found = operators.extract(PEOPLE, {name: "string", "age": "integer"}, model=reader)
    assert found == [{name: "a", "age": 1}] * 4


def test_a_value_of_the_wrong_shape_is_requested_again_with_the_mistake_shown() -> None:
    tries: list[str] = []

    def wrong_once(item: str, prompt: str) -> str:
        if item.startswith("Bob") and "Avoid this mistake" not in prompt:
            tries.append(item)
            return '{"name": "Bob", "age": "thirty"}'
        return person(item, prompt)

    reader = Reader(wrong_once)
    found = operators.extract(PEOPLE, {"name": "str", "age": "int"}, model=reader)
    assert found[1] == {"name": "Bob", "age": 31}
    assert len(tries) == 1
    assert reader.asked[1] == [PEOPLE[1]]
    assert "'age' must be int" in reader.prompts[1]


def test_a_value_that_stays_wrong_is_missing() -> None:
    reader = Reader(lambda item, prompt: '{"age": "old"}')
    found = operators.extract(PEOPLE, {"age": "int"}, model=reader)
    assert found == [None] * 4
    assert found.missing == [0, 1, 2, 3]


@pytest.mark.parametrize("reply", ["array", "fenced"])
def test_fenced_and_indented_replies_are_read(reply: str) -> None:
    reader = Reader(person)

    def whole(prompt: str) -> str:
        values = [json.loads(person(item, prompt)) for item in items_in(prompt)]
        text = json.dumps(values, indent=2)
        return f"```json\n{text}\n```" if reply == "fenced" else text

    reader.reply = whole  # type: ignore[method-assign]
    found = operators.extract(PEOPLE, ["name"], model=reader)
    assert [each["name"] for each in found] == ["Ada", "Bob", "Cy", "Di"]


@pytest.mark.parametrize("schema", [{}, [], {"type": "nonsense", "properties": 3}])
def test_an_empty_schema_is_refused(schema: object) -> None:
    reader = Reader(person)
    if schema:
        operators.extract(PEOPLE, schema, model=reader)  # Names of fields, whatever they say.
    else:
        with pytest.raises(ConfigError, match="schema"):
            operators.extract(PEOPLE, schema, model=reader)


# -- answer_each ----------------------------------------------------------------------------------


def test_answers_are_aligned_with_items_and_none_means_no_answer() -> None:
    def says(item: str, prompt: str) -> str:
        return "none" if item.startswith("Bob") else item.split()[2]

    found = operators.answer_each("How old?", PEOPLE, model=Reader(says))
    assert found == ["30", None, "32", "33"]
    assert found.missing == []
    assert "3 with an answer" in found.note


def test_a_long_item_is_read_completely_in_pieces() -> None:
    text = "\n".join(f"line {number}" for number in range(20_000)) + "\nthe code is 4821"
    seen: list[str] = []

    def says(item: str, prompt: str) -> str:
        seen.append(item)
        return "4821" if "the code is" in item else "none"

    found = operators.answer_each("Which code?", [text], model=Reader(says, window_tokens=8_000))
    assert found == ["4821"]
    assert "".join(seen).count("line") == 20_000


@pytest.mark.parametrize(("calls", "answer"), [(1, "4821"), (2, None), (3, None)])
def test_a_partly_read_item_is_not_reported_as_having_no_answer(
    calls: int, answer: str | None
) -> None:
    model = Reader(lambda item, prompt: "4821", window_tokens=8_000)
    limits = Limits(max_calls=calls)
    found = operators.answer_each("Which code?", ["x" * 100_000], model=model, limits=limits)
    assert found == [answer]
    assert found.missing == ([] if answer else [0])
    assert ("1 only partly read" if answer else "1 has no result") in found.note


def test_answers_over_several_lines_stay_whole() -> None:
    reader = Reader(lambda item, prompt: f"{item}\n   more of it")
    found = operators.answer_each("What?", PEOPLE, model=reader)
    assert found == [f"{line}\n   more of it" for line in PEOPLE]


# -- pairs ----------------------------------------------------------------------------------------

PLAN = json.dumps(
    {
        "left": {"even": "an even number", "odd": "an odd number"},
        "right": {"even": "an even number", "odd": "an odd number"},
        "match": [["even", "odd"]],
    }
)
NUMBERS = [f"number {number}" for number in range(40)]


def parity(item: str, prompt: str) -> str:
    return codes_in(prompt)["even" if int(item.split()[1]) % 2 == 0 else "odd"]


def planning(plan: str) -> Reader:
    reader = Reader(parity)
    plain = reader.reply

    def reply(prompt: str) -> str:
        return plan if "Can a label" in prompt else plain(prompt)

    reader.reply = reply  # type: ignore[method-assign]
    return reader


def test_labels_decide_pairs_where_possible() -> None:
    reader = planning(PLAN)
    found = operators.pairs(NUMBERS, NUMBERS[:3], "the left is even, the right odd", model=reader)
    assert found.indexes == [(left, 1) for left in range(0, 40, 2)]
    assert found[0] == ("number 0", "number 1")
    assert len(reader.prompts) == 3
    assert "20 pairs" in found.note


def test_pairs_within_one_list_are_listed_once() -> None:
    reader = planning(PLAN.replace('[["even", "odd"]]', '[["even", "even"]]'))
    found = operators.pairs([*NUMBERS[:6], NUMBERS[0]], None, "both are even", model=reader)
    assert found.indexes == [(0, 2), (0, 4), (0, 6), (2, 4), (2, 6), (4, 6)]
    assert len(reader.prompts) == 2


@pytest.mark.parametrize(("most", "told"), [(15, "15 pairs"), (14, "only the first 14 pairs")])
def test_the_note_says_if_there_are_more_pairs_than_returned(
    most: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_PAIRS", most)
    reader = planning(PLAN.replace('[["even", "odd"]]', '[["even", "even"]]'))
    found = operators.pairs(NUMBERS[:11], None, "both are even", model=reader)
    every = [(one, other) for one in range(0, 11, 2) for other in range(one + 2, 11, 2)]
    assert len(every) == 15
    assert found.indexes == every[:most]
    assert told in found.note


def test_left_and_right_may_have_different_labels_within_one_list() -> None:
    plan = PLAN.replace('"right": {"even": "an even number"', '"right": {"even": "not odd"')
    found = operators.pairs(NUMBERS[:5], None, "even, then odd", model=planning(plan))
    assert found.indexes == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 3), (3, 4)]


def test_passing_the_same_list_twice_keeps_the_direction_of_pairs() -> None:
    reader = planning(PLAN)
    found = operators.pairs(NUMBERS[:4], NUMBERS[:4], "the left is even", model=reader)
    assert found.indexes == [(0, 1), (0, 3), (2, 1), (2, 3)]


@pytest.mark.parametrize("plan", ['{"compare": true}', "no idea", "[]", '{"left": {}}'])
def test_pairs_are_compared_where_labels_do_not_decide(plan: str) -> None:
    reader = planning(plan)

    def reply(prompt: str) -> str:
        if "Can a label" in prompt:
            return plan
        lefts, rights = items_in(prompt, "Left items"), items_in(prompt, "Right items")
        lines = []
        for number, left in enumerate(lefts, 1):
            following = f"number {int(left.split()[1]) + 1}"
            places = [str(n) for n, right in enumerate(rights, 1) if right == following]
            lines.append(f"{number}: {', '.join(places) or 'none'}")
        return "\n".join(lines)

    reader.reply = reply  # type: ignore[method-assign]
    found = operators.pairs(NUMBERS, NUMBERS, "the right one follows the left", model=reader)
    assert found.indexes == [(number, number + 1) for number in range(39)]
    assert found.missing == []


def test_pairs_that_need_more_calls_than_allowed_are_refused_at_once() -> None:
    reader = planning('{"compare": true}')
    limits = Limits(max_calls=5)
    found = operators.pairs(NUMBERS * 3, [f"n {i}" for i in range(900)], "fit", model=reader,
                            limits=limits)  # fmt: skip
    assert found == []
    assert "max_calls" in found.note
    assert len(reader.prompts) == 1


# -- rank and merge -------------------------------------------------------------------------------


def rating(item: str, prompt: str) -> str:
    return item.split()[1]


def ordering(reader: Reader) -> Reader:
    plain = reader.reply

    def reply(prompt: str) -> str:
        if "Order the" not in prompt:
            return plain(prompt)
        items = items_in(prompt)
        best = sorted(range(len(items)), key=lambda place: -int(items[place].split()[1]))
        return ", ".join(str(place + 1) for place in best)

    reader.reply = reply  # type: ignore[method-assign]
    return reader


def test_rank_gives_the_best_items_best_first() -> None:
    reader = ordering(Reader(rating))
    found = operators.rank(NUMBERS, "high", 3, model=reader)
    assert found == ["number 39", "number 38", "number 37"]
    assert found.indexes == [39, 38, 37]
    assert operators.rank(NUMBERS, "high", model=ordering(Reader(rating))) == NUMBERS[::-1]


def test_without_a_usable_order_rank_uses_the_ratings() -> None:
    reader = Reader(rating)
    plain = reader.reply
    reader.reply = lambda prompt: (  # type: ignore[method-assign]
        "no" if "Order the" in prompt else plain(prompt)
    )
    assert operators.rank(NUMBERS, "high", 2, model=reader) == ["number 39", "number 38"]


def test_merge_reads_everything_in_rounds_and_gives_one_answer() -> None:
    seen: set[str] = set()

    def reader(prompt: str) -> str:
        found = re.findall(r"fact \d+;", prompt)
        seen.update(found)
        return "42" if "Answer the question from the items" in prompt else "; ".join(found[:2])

    model = Reader(lambda item, prompt: "", window_tokens=8_000)
    model.reply = reader  # type: ignore[method-assign]
    texts = [f"fact {number}; " + "x" * 3_000 for number in range(40)]
    merged = operators.merge([*texts, None], "How many?", model=model)
    assert merged == "42"
    assert len(seen) == 40
    assert merged.missing == []
    assert max(map(len, model.prompts)) < 16_000


def test_merge_interrupted_by_a_limit_returns_the_notes_paid_for() -> None:
    model = Reader(lambda item, prompt: "", window_tokens=8_000)
    model.reply = lambda prompt: "; ".join(re.findall(r"fact \d+", prompt))  # type: ignore[method-assign]
    texts = [f"fact {number}; " + "x" * 3_000 for number in range(40)]
    first_round = len(
        [prompt for prompt in _prompts_of_merge(texts, model) if "Combine the items" in prompt]
    )
    model.prompts.clear()
    limits = Limits(max_calls=first_round)
    merged = operators.merge(texts, "How many?", model=model, limits=limits)
    assert len(model.prompts) == first_round
    assert re.findall(r"\d+", merged) == [str(number) for number in range(40)]
    assert merged.missing == []
    assert "not yet merged into one answer" in merged.note
    assert "max_calls" in merged.note


def _prompts_of_merge(texts: list[str], model: Reader) -> list[str]:
    operators.merge(texts, "How many?", model=model)
    return list(model.prompts)


def test_a_failed_prompt_in_a_later_round_loses_no_notes() -> None:
    failures = 0

    def reader(prompt: str) -> str:
        nonlocal failures
        found = re.findall(r"fact \d+", prompt)
        if "x" * 3_000 not in prompt and not failures:
            failures += 1
            return ""
        return "; ".join(found)

    model = Reader(lambda item, prompt: "", window_tokens=8_000)
    model.reply = reader  # type: ignore[method-assign]
    texts = [f"fact {number}; " + "x" * 3_000 for number in range(40)]
    merged = operators.merge(texts, "How many?", model=model)
    assert failures == 1
    assert re.findall(r"\d+", merged) == [str(number) for number in range(40)]
    assert merged.missing == []


def test_merge_of_nothing_is_empty() -> None:
    assert operators.merge([], "What?", model=Reader(rating)) == ""


def test_merge_ends_even_if_the_notes_never_get_shorter() -> None:
    model = Reader(lambda item, prompt: "", window_tokens=8_000)
    model.reply = lambda prompt: "long " * 5_000  # type: ignore[method-assign]
    merged = operators.merge(["x" * 50_000] * 3 + ["y" * 40_000], "What?", model=model)
    assert merged.startswith("long")
    assert len(model.prompts) < 60


@pytest.mark.parametrize("wrong", ["", "   ", "x" * 200_000])
def test_empty_questions_are_refused(wrong: str) -> None:
    reader = Reader(rating)
    with pytest.raises(ConfigError):
        operators.answer_each(wrong, NUMBERS, model=reader)
    with pytest.raises(ConfigError):
        operators.where(NUMBERS, wrong, model=reader)
    assert reader.prompts == []
