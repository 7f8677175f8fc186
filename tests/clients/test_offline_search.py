"""The offline search by itself, over generated haystacks and over texts made for one trap each."""

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients._quoting import Question, quote, stem
from rlm.clients.offline import NO_PASSAGES, PASSAGES
from rlm.worker.passages import PASSAGE_CHARS
from tests.clients.offline_runs import Repl, play

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1_000_000


def load_haystack() -> ModuleType:
    """The generator lives with the examples, where the demo finds it too."""
    spec = importlib.util.spec_from_file_location("haystack", ROOT / "examples" / "haystack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


haystack = load_haystack()


def found(question: str, context: object) -> list[str]:
    """The passages that a run submits, the best first."""
    repl = Repl(context)
    printed = play(repl, question)
    assert len(printed) == 2
    (answer,) = repl.submitted
    passages = repl.names["passages"]
    assert answer == (f"{PASSAGES}\n\n{passages}" if passages else NO_PASSAGES)
    assert len(passages) <= 5
    return [each["text"] for each in passages]


def shape_of(seed: int) -> str:
    """Every shape meets every kind of key and every phrasing somewhere in fifty seeds."""
    return str(haystack.SHAPES[(seed + seed // 5) % len(haystack.SHAPES)])


def test_the_fifty_cases_cover_every_shape_and_key() -> None:
    cases = Counter((shape_of(seed), seed % 5) for seed in range(50))
    assert set(cases.values()) == {2}
    assert len(haystack.PHRASINGS) == 10
    assert len(haystack.KEYS) == 5


@pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(8, 50))],
)
def test_the_needle_is_found_in_a_haystack(seed: int) -> None:
    size = 10 * MEGABYTE if seed % 10 == 0 else MEGABYTE
    hay = haystack.make_haystack(size, seed, shape=shape_of(seed))
    assert hay.value in found(hay.question, hay.text)[0]


@pytest.mark.parametrize(
    "seed",
    [*range(100, 106), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(106, 120))],
)
def test_an_absent_needle_is_not_found_among_similar_ones(seed: int) -> None:
    size = 10 * MEGABYTE if seed % 10 == 0 else MEGABYTE
    hay = haystack.make_haystack(size, seed, shape=shape_of(seed), absent=True)
    key = Question(hay.question).keys[0].text.lower()
    for passage in found(hay.question, hay.text):  # Words of the filler, next to each other.
        assert re.search(r"\W".join(re.split(r"\W", key)), passage.lower())
        assert len(key.split("-")) == 2 or " " in key


def test_the_generator_is_repeatable_and_has_the_requested_size() -> None:
    first, again = (haystack.make_haystack(MEGABYTE, 3) for _ in range(2))
    assert first == again
    assert abs(len(first.text) - MEGABYTE) < MEGABYTE // 20
    assert first.text.count(first.value) == 1
    absent = haystack.make_haystack(MEGABYTE, 3, absent=True)
    assert absent.question == first.question
    assert first.value not in absent.text


FILLER = haystack.make_haystack(100_000, 3, shape="prose", absent=True).text

PRESENT = [
    ("What was assigned to silver dolphin?", "silver-dolphin was assigned 4821.", "4821"),
    ("What Is The Access Code For Silver Dolphin?", "SILVER_DOLPHIN_CODE=4821", "4821"),
    ("which code was silver_dolphin given", "SilverDolphin got 4821 in the end.", "4821"),
    ("What is the check-in code for silver-dolphin?", "silver-dolphin: 4821", "4821"),
    ("What is the 4-digit code for silver-dolphin?", "For silver-dolphin it reads 4821.", "4821"),
    ("What is the access code for KX4821?", "The access code for KX-4821 is 999.", "999"),
    ("What is the access code for f3a9c2d41b?", "F3A9C2D41B -> 777", "777"),
    ("Who owns Project Blue Heron?", "Blue Heron is led by Maria Lopez.", "Maria Lopez"),
    ("What is the code of project Blue Heron?", "Project Blue Heron: 777", "777"),
    ('What is the "blue heron" protocol number?', "The blue heron runs under 999.", "999"),
    ("What is Alice's phone number?", "You can reach Alice at 555-1234.", "555-1234"),
    ("What is the hobby of the lighthouse keeper?", "The lighthouse keeper paints.", "paints"),
    ("What was the revenue of Acme Corp in 2019?", "In 2019 Acme Corp made 5.2 million.", "5.2"),
    ("What is the status of order 558213?", "Order #558213 is delayed.", "delayed"),
    ("Which user came from 10.2.3.4?", "Jan 3: login of marta from 10.2.3.4 port 22", "marta"),
    ("Wie lautet der Code für Seestern-Nord?", "Der Code für Seestern-Nord ist 7712.", "7712"),
    ("Какой код доступа у Проекта Сокол?", "Код доступа Проекта Сокол: 7712.", "7712"),
]

ELSEWHERE = [
    (
        "the next sentence",
        "What is the access code for silver-dolphin?",
        "We once met silver-dolphin there. Its access code is 4821.",
        "4821",
    ),
    (
        "wrapped lines",
        "What is the access code for silver-dolphin?",
        "The access code that was given to the\nsilver-dolphin by people is\n4821. Nobody cared.",
        "4821",
    ),
    (
        "a section",
        "What is the passphrase of KX-4821?",
        "[KX-4821]\nhost = example\npassphrase = orchid moonrise\n",
        "orchid moonrise",
    ),
    (
        "below a heading",
        "What is the passphrase of KX-4821?",
        "## KX-4821\n\nThe passphrase is orchid moonrise.\n",
        "orchid moonrise",
    ),
    (
        "an earlier field",
        "What is the code of silver-dolphin?",
        '{\n  "code": "4821",\n  "name": "silver-dolphin"\n},\n{\n  "code": "9",\n  "name": "x"\n}',
        "4821",
    ),
    (
        "a later field",
        "What is the code of silver-dolphin?",
        '{\n  "name": "silver-dolphin",\n  "of": "x",\n  "code": "4821"\n},\n{\n  "code": "9"\n}',
        "4821",
    ),
    (
        "after an abbreviation",
        "Tell me the serial number of KX-4821.",
        "Then KX-4821 received serial no. 9912345.",
        "9912345",
    ),
    (
        "questions and answers",
        "What is the access code for silver-dolphin?",
        "Q: What is the access code for silver-dolphin?\nA: It is 4821.",
        "4821",
    ),
]

ABSENT = [
    ("words apart", 'What is the code for "blue heron"?', "The heron that is blue has code 9."),
    ("longer code", "What is the access code for KX-48?", "The access code for KX-481 is 999."),
    ("longer name", "What is the access code for KX-48?", "The access code for KX-48-21 is 999."),
    ("longer address", "Which user came from 10.2.3.4?", "login of marta from 10.2.3.41"),
    ("joined digits", "What is the code of unit 12-34?", "The code of unit 1234 is 9."),
    ("no content words", "Summarize the document.", "x"),
]


def in_filler(needle: str) -> str:
    middle = FILLER.index("\n", len(FILLER) // 2) + 1
    return f"{FILLER[:middle]}{needle}\n{FILLER[middle:]}"


@pytest.mark.parametrize(("question", "needle", "value"), PRESENT, ids=[c[1] for c in PRESENT])
def test_the_answer_is_found(question: str, needle: str, value: str) -> None:
    assert any(value in passage for passage in found(question, in_filler(needle)))


@pytest.mark.parametrize(
    ("question", "needle", "value"), [case[1:] for case in ELSEWHERE], ids=[c[0] for c in ELSEWHERE]
)
def test_the_value_beside_its_key_is_found(question: str, needle: str, value: str) -> None:
    best = found(question, in_filler(needle))[0]
    assert value in best
    assert '"9"' not in best


@pytest.mark.parametrize(
    ("question", "needle"), [case[1:] for case in ABSENT], ids=[case[0] for case in ABSENT]
)
def test_unrelated_text_is_not_found(question: str, needle: str) -> None:
    assert found(question, in_filler(needle)) == []


def test_the_sentence_with_the_fact_ranks_above_mentions_of_its_key() -> None:
    mentions = "".join(f"In {year} people talked of silver-dolphin again.\n" for year in range(900))
    text = mentions + "silver-dolphin was assigned the identifier 48219.\n" + mentions
    best = found("What identifier was assigned to silver-dolphin?", text)[0]
    assert best == "silver-dolphin was assigned the identifier 48219."


def test_a_key_on_every_line_is_narrowed_by_the_rarest_other_word() -> None:
    lines = "2031 INFO server-7 did something usual\n" * 30_000
    text = lines + "2031 INFO server-7 exploded at noon\n" + lines
    assert found("When did server-7 explode?", text)[0] == "2031 INFO server-7 exploded at noon"


def test_a_context_on_one_line_is_searched_by_sentence() -> None:
    text = in_filler("The access code for KX-4821 is 999.").replace("\n", " ")
    (passage,) = found("What is the access code for KX-4821?", text)
    assert "The access code for KX-4821 is 999." in passage
    assert len(passage) <= PASSAGE_CHARS


def test_the_right_row_of_a_table_is_found() -> None:
    rows = "".join(f"KX-{n},Bob,{n * 7},north\n" for n in range(4000, 5000))
    passages = found("What is the weight of KX-4821?", f"id,owner,weight,zone\n{rows}")
    assert passages == ["KX-4821,Bob,33747,north"]


@pytest.mark.parametrize(
    ("context", "value"),
    [
        (["first", "The code of KX-4821 is 999.", "last"], "999"),
        ({"a": "x", "notes": ["y", "The code of KX-4821 is 999."]}, "999"),
        ([{"id": "KX-4820", "code": 998}, {"id": "KX-4821", "code": 999}], "999"),
        ([{"role": "user", "content": "The code of KX-4821\nis 999."}], "999"),
        ({"KX-4820": 998, "KX-4821": 999}, "999"),
        (b"The code of KX-4821 is 999.", "999"),
        (("nothing", None, 3.5), None),
    ],
)
def test_contexts_of_other_types(context: object, value: str | None) -> None:
    passages = found("What is the code of KX-4821?", context)
    assert value in passages[0] if value else passages == []


def test_items_of_a_list_are_searched_separately() -> None:
    context = [{"id": "KX-4820", "code": 998}, {"id": "KX-4821", "code": 999}]
    assert found("What is the code of KX-4821?", context) == ['{"id": "KX-4821", "code": 999}']


def test_a_question_is_split_into_keys_and_stems() -> None:
    question = Question("What is the access code for silver-dolphin?")
    assert [key.text for key in question.keys] == ["silver-dolphin"]
    assert question.stems == {"access", "cod"}
    assert question.wants_value
    assert [key.text for key in Question("Who leads Project Blue Heron?").keys] == ["Blue Heron"]
    assert Question("Summarize the document.").keys == []


@pytest.mark.parametrize("word", ["sign-in", "access_code", "7-digit", "three", "2nd", "and/or"])
def test_words_that_are_not_identifiers_are_not_keys(word: str) -> None:
    keys = Question(f"What is the {word} code for KX-4821?").keys
    assert [key.text for key in keys] == ["KX-4821"]


def test_words_are_stemmed() -> None:
    pairs = [("codes", "code"), ("cities", "city"), ("assigned", "assigns"), ("Herons", "heron")]
    assert all(stem(one) == stem(other) for one, other in pairs)
    assert stem("bus") == "bus"


@given(st.text(), st.text())
def test_any_question_and_text_can_be_searched(question: str, text: str) -> None:
    found = quote(Question(question), text)
    assert found is None or isinstance(found.text, str)
