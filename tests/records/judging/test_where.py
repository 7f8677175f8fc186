"""Conditions: what they mean, that they read back as written, and that nothing else gets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.records.judging.where import (
    FIELDS,
    MAX_CHARS,
    STATUSES,
    Comparison,
    Condition,
    Joined,
    Negation,
    Part,
    RunValues,
    parse_condition,
    status_words,
)

RUN = RunValues(
    id="r-1",
    query="How many ships?",
    answer="Seven",
    model="openai/gpt-5-mini",
    status=frozenset({"answer"}),
    tag=("good", "ships"),
    score=0.9,
    comment=("Checked by hand.",),
    cost=0.25,
    tokens=1_200,
    steps=3,
    seconds=10.5,
)
BARE = RunValues(id="r-2", status=frozenset({"steps", "limit"}))


@pytest.mark.parametrize(
    "text",
    [
        "score>0.8",
        "score >= 0.9",
        "score=0.9 and score==.9",
        "tag=good",
        "tag=good and tag=ships",
        "not tag=draft",
        "tag!=draft",
        "status=answer",
        "STATUS=Answered",
        "model=gpt-5-mini",
        "model=openai/gpt-5-mini",
        "model~GPT",
        'query~"many ships"',
        "query~'many ships'",
        "answer=Seven",
        "comment~hand",
        "id=r-1",
        "cost<0.3 and tokens>1000 and steps<=3 and seconds>10",
        "score<0 or tag=good",
        "not (score<0.5 or tag=bad)",
        "not not tag=good",
        "score<0 and tag=bad or tag=good",
        "(score>1e-3)",
    ],
)
def test_conditions_that_hold_for_a_run(text: str) -> None:
    assert parse_condition(text).holds(RUN)
    assert not parse_condition(f"not ({text})").holds(RUN)


@pytest.mark.parametrize(
    "text",
    ["score>0", "score<1", "score=0", "cost>=0", "tag=good", "comment~a", "model=", 'query~"x"'],
)
def test_a_missing_value_is_neither_greater_nor_less(text: str) -> None:
    if text == "model=":
        with pytest.raises(ConfigError, match="must be followed by a value"):
            parse_condition(text)
        return
    assert not parse_condition(text).holds(BARE)


def test_not_equal_is_the_opposite_of_equal() -> None:
    assert parse_condition("score!=1").holds(BARE)
    assert parse_condition("tag!=x").holds(BARE)
    assert not parse_condition("tag!=good").holds(RUN)


def test_and_binds_closer_than_or() -> None:
    both = parse_condition("tag=a or tag=b and tag=c")
    assert both == parse_condition("tag=a or (tag=b and tag=c)")
    assert both != parse_condition("(tag=a or tag=b) and tag=c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends where a comparison should be"),
        ("scroe>1", "Did you mean score"),
        ("size>1", "Fields: score, tag"),
        ("score", "must be followed by one of = != <"),
        ("score>", "must be followed by a value"),
        ("score>good", "compared with a number"),
        ("score>nan", "compared with a number"),
        ("score>1e999", "compared with a number"),
        ("score~1", "use = != <"),
        ("tag>a", "use = != ~"),
        ("status~a", "use = !="),
        ("status=anwser", "Did you mean answer"),
        ("tag=a tag=b", "join comparisons"),
        ("tag=a)", "no ( precedes it"),
        ("(tag=a", "is not closed"),
        ("tag=a and", "ends where"),
        ("tag='a", "quote is not closed"),
        ("score!0", "write != for"),
        ("tag=a or or tag=b", "can't begin with 'or'"),
        ("tag==", "must be followed by a value"),
        ("query~two words", "join comparisons"),
        ("x" * (MAX_CHARS + 1), "at most"),
        ("not " * 200 + "tag=a", "levels"),
        ("(" * 300 + "tag=a" + ")" * 300, "levels"),
        (" and ".join(["tag=a"] * 101), "at most 100 comparisons"),
    ],
)
def test_a_wrong_condition_is_explained(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + words.replace("(", r"\(")) as error:
        parse_condition(text)
    assert len(str(error.value)) < 500
    assert str(error.value).isprintable()


# -- whatever is in them --------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)


def comparisons() -> st.SearchStrategy[Part]:
    by_kind = {
        kind: [n for n, f in FIELDS.items() if f.kind == kind] for kind in ("number", "text")
    }
    return st.one_of(
        st.builds(
            Comparison,
            st.sampled_from(by_kind["number"]),
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            numbers,
        ),
        st.builds(
            Comparison, st.sampled_from(by_kind["text"]), st.sampled_from(["=", "!=", "~"]), texts
        ),
        st.builds(
            Comparison,
            st.just("status"),
            st.sampled_from(["=", "!="]),
            st.sampled_from(sorted(set(STATUSES.values()))),
        ),
    )


def _joined(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Negation, parts) | st.builds(Joined, st.sampled_from(["and", "or"]), several)


trees = st.recursive(comparisons(), _joined, max_leaves=8)


@given(trees)
def test_a_condition_written_as_text_parses_to_the_same(tree: Part) -> None:
    condition = Condition(tree)
    if len(str(condition)) <= MAX_CHARS:
        assert parse_condition(str(condition)) == condition


@given(trees, texts, st.lists(texts, max_size=3), st.none() | numbers)
def test_either_a_condition_or_its_negation_holds(
    tree: Part, text: str, tags: list[str], score: float | None
) -> None:
    run = RunValues(query=text, model=text, tag=tuple(tags), score=score, comment=tuple(tags))
    condition = Condition(tree)
    assert condition.holds(run) is not Condition(Negation(tree)).holds(run)


@given(st.text(max_size=200) | st.text(alphabet="()=<>!~\"'\\ andortgscre0.8", max_size=200))
def test_any_text_is_a_condition_or_an_explained_error(text: str) -> None:
    condition, problem = None, ""
    try:
        condition = parse_condition(text)
    except ConfigError as error:
        problem = str(error)
    assert problem.isprintable()
    assert condition is None or parse_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (("running",), {"running"}),
        (("interrupted",), {"interrupted"}),
        (("ended", "answer"), {"answer"}),
        (("ended", "answer", "broken"), {"error"}),
        (("ended", "error"), {"error"}),
        (("ended", "steps"), {"steps", "limit"}),
        (("ended", "limit"), {"limit"}),
        (("ended", "passages"), {"passages"}),
        (("ended", "cancelled"), {"cancelled"}),
    ],
)
def test_words_that_match_each_status(facts: tuple[str, ...], words: set[str]) -> None:
    assert status_words(*facts) == words
    assert words <= set(STATUSES.values())
