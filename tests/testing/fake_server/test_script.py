"""Scripts: what a file may say, which answer is given when, and where mistakes are."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply, ToolCall, Usage
from rlm.testing.fake_server import BEHAVIOURS, Answer, read_script
from rlm.testing.fake_server.reply import in_pieces
from rlm.testing.fake_server.script import Behaviour, Call, Counts, Script, UsedUp, as_answer

TOML = '''
[[answers]]
when = "/capital of \\\\w+/"
reply = "Paris"

[[answers]]
status = 429
error = "slow down"
retry_after = 2
times = 2

[[answers]]
reply = """
two
lines"""
behaviour = ["drip", "crlf"]
tool_calls = [{ name = "look_up", arguments = { city = "Köln" } }]
usage = { input_tokens = 5, output_tokens = 6 }
'''


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_toml_json_and_json_lines_are_equivalent(tmp_path: Path) -> None:
    found = read_script(written(tmp_path, "a.toml", TOML))
    assert found[1] == Answer(status=429, error="slow down", retry_after=2, times=2)
    assert found[2] == Answer(
        reply="two\nlines",
        behaviour=("drip", "crlf"),
        tool_calls=(Call("look_up", {"city": "Köln"}),),
        usage=Counts(input_tokens=5, output_tokens=6),
    )
    plain = [json.loads(json.dumps(each)) for each in _plain(found)]
    lines = "\n\n".join(json.dumps(each) for each in plain)
    assert read_script(written(tmp_path, "a.json", json.dumps(plain))) == found
    assert read_script(written(tmp_path, "b.json", json.dumps({"answers": plain}))) == found
    assert read_script(written(tmp_path, "a.jsonl", lines)) == found


def _plain(answers: list[Answer]) -> Any:
    import msgspec

    return msgspec.to_builtins(answers)


def test_a_string_in_json_is_an_answer(tmp_path: Path) -> None:
    assert read_script(written(tmp_path, "a.jsonl", '"hello"\n')) == [Answer(reply="hello")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "x", "must end in .toml, .json or .jsonl"),
        ("a.toml", "[[answers]\n", "a.toml: "),
        ("a.toml", "[[replies]]\nreply='x'", "unknown key 'replies'"),
        ("a.toml", "answers = 1", "are a list"),
        ("a.json", "{", "a.json: "),
        ("a.json", "3", "are a list"),
        ("a.json", "[3]", "a.json, answer 1: an answer must be a string or a table"),
        ("a.jsonl", '"ok"\n\n{"reply": }', "line 3"),
        ("a.jsonl", '"ok"\n{"repply": "x"}', "answer 2: Object contains unknown field `repply`"),
        ("a.json", '[{"behaviour": "wrong"}]', "answer 1: Invalid enum value 'wrong'"),
        ("a.json", '[{"status": 99}]', "answer 1: Expected `int` >= 200"),
        ("a.json", '[{"delay_seconds": -1}]', "answer 1: Expected `float` >= 0"),
        ("a.json", '[{"when": "/(/"}]', "answer 1: `when` is not a valid regular expression"),
        ("a.json", '[{"tool_calls": [{}]}]', "answer 1: Object missing required field `name`"),
    ],
)
def test_errors_in_a_script_are_reported_with_their_position(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_script(written(tmp_path, name, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)
FIELDS = st.sampled_from([*Answer.__struct_fields__, "other"])


@given(JSON_VALUES | st.dictionaries(FIELDS, JSON_VALUES | st.sampled_from([*BEHAVIOURS])))
def test_any_value_is_an_answer_or_a_clear_error(value: Any) -> None:
    try:
        found = as_answer(value)
    except ConfigError:
        return
    assert isinstance(found, Answer)
    assert found.behaviours <= BEHAVIOURS.keys()


def test_every_behaviour_is_documented() -> None:
    assert list(BEHAVIOURS) == sorted(get_args(Behaviour))
    assert all(text and not text.endswith(".") for text in BEHAVIOURS.values())


# -- which answer is given ------------------------------------------------------------------------


def texts(script: Script, *asked: str) -> list[str]:
    found = []
    for text in asked:
        try:
            entry = script.take(text)
        except UsedUp:
            entry = "used up"
        found.append(entry.reply if isinstance(entry, Answer) else str(entry))
    return found


def test_answers_are_given_in_order_after_matching_rules() -> None:
    script = Script(["one", {"when": "b", "reply": "rule"}, "two"])
    assert texts(script, "a", "ab", "a", "b", "a") == ["one", "rule", "two", "rule", "used up"]


def test_patterns_are_substrings_and_regular_expressions() -> None:
    rules: list[Any] = [("a.c", "plain"), (re.compile("x+y"), "compiled")]
    script = Script([{"when": "/^q\\d/", "reply": "slashes"}, "other"], rules)
    asked = ("abc", "a.c", "xxy", "q1")
    assert texts(script, *asked) == ["other", "plain", "compiled", "slashes"]


def test_an_answer_can_be_repeated_a_number_of_times() -> None:
    script = Script(
        [{"reply": "twice", "times": 2}, "once", {"when": "r", "reply": "rule", "times": 1}]
    )
    assert texts(script, "r", "r", "x", "x", "x") == ["rule", "twice", "twice", "once", "used up"]


def test_a_looping_script_starts_again() -> None:
    script = Script(["one", {"reply": "two", "times": 2}], loop=True)
    assert texts(script, *"abcde") == ["one", "two", "two", "one", "two"]


def test_an_exhausted_script_says_what_to_do() -> None:
    script = Script([{"when": "never", "reply": "x"}])
    with pytest.raises(UsedUp, match=r"it has 0 answers and no rule matches.*--loop"):
        script.take("hello")


def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no answers"):
        Script()


def test_entries_of_scripted_clients_are_accepted_here_too() -> None:
    reply = Reply(
        text="hi",
        tool_calls=(ToolCall("c1", "f", {"a": 1}),),
        reasoning="hm",
        usage=Usage(input_tokens=3, output_tokens=4, cached_tokens=1),
        finish_reason="length",
    )
    answer = as_answer(reply)
    assert (answer.reply, answer.reasoning, answer.finish_reason) == ("hi", "hm", "length")
    assert answer.tool_calls == (Call("f", {"a": 1}, "c1"),)
    assert answer.usage == Counts(input_tokens=3, output_tokens=4, cached_tokens=1)
    failed = as_answer(ModelError("no", status=429, retry_after_seconds=2.0))
    assert (failed.status, failed.error, failed.retry_after) == (429, "no", 2.0)


@given(st.text())
def test_pieces_make_up_the_whole_text(text: str) -> None:
    assert "".join(in_pieces(text)) == text
    assert "" not in in_pieces(text)
