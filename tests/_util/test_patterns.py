"""Patterns matched by RE2 mean what they mean to `re`. `make test-adapters` installs RE2."""

import json
import re
import struct
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm._util import patterns

HAS_RE2 = find_spec("re2") is not None
needs_re2 = pytest.mark.skipif(not HAS_RE2, reason="RE2 is an extra; make test-adapters has it")

LINEAR = ["(a+)+$", r"(\w+\s?)*!", "^(a|a)*b", "[^x]{2,5}", r"\d{3}-\d{4}", "a{0,3}?b", r"[\W_]+"]
LINEAR += ["(?s)(a+)+$", "(?m)^(a|a)*b", "(?x) (a+)+ $"]
ONLY_RE = [r"\bword", "(?=a)b", r"(a)\1", "(?i:a)", "a{0,2000}", "(?<!a)b", "(?>a+)b", "a*+b"]
ONLY_RE += ["(?i)a", r"(?a)\w", "(?s:a)", "(?-i:a)"]


@pytest.mark.parametrize("pattern", [*LINEAR, *ONLY_RE])
def test_without_re2_patterns_are_compiled_by_re(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "find_spec", lambda name: None)
    assert isinstance(patterns.compile_for_lines(pattern), re.Pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", r"\p{L}"])
def test_invalid_patterns_are_refused_as_by_re(pattern: str) -> None:
    with pytest.raises(re.error):
        patterns.compile_for_lines(pattern)


@needs_re2
@pytest.mark.parametrize("pattern", LINEAR)
def test_patterns_re2_supports_are_matched_in_linear_time(pattern: str) -> None:
    compiled = patterns.compile_for_lines(pattern)
    assert not isinstance(compiled, re.Pattern)
    compiled.search("a" * 20_000 + "x")  # `re` would not end within a lifetime.


@needs_re2
@pytest.mark.parametrize("pattern", ONLY_RE)
def test_patterns_with_another_meaning_in_re2_stay_with_re(pattern: str) -> None:
    assert isinstance(patterns.compile_for_lines(pattern), re.Pattern)


@needs_re2
def test_case_insensitive_patterns_stay_with_re() -> None:
    assert isinstance(patterns.compile_for_lines("k", ignore_case=True), re.Pattern)
    assert patterns.compile_for_lines("k", ignore_case=True).search("\N{KELVIN SIGN}")


PIECES = ["a", "b", "é", ".", "^", "$", r"\w", r"\W", r"\d", r"\s", r"\S", "[ab]", "[^a]"]
PIECES += [r"[\d_]", "-"]
REPEATS = st.sampled_from(["", "*", "+", "?", "{1,3}", "{2}", "*?", "+?"])


@st.composite
def written(draw: st.DrawFn, pieces: Sequence[str] = PIECES, depth: int = 2) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        if depth and draw(st.booleans()):
            choices = [draw(written(pieces, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
            parts.append(f"({'|'.join(choices)}){draw(REPEATS)}")
        else:
            piece = draw(st.sampled_from(pieces))
            parts.append(piece if piece in "^$" else f"{piece}{draw(REPEATS)}")
    return "".join(parts)


LINES = st.text(st.one_of(st.sampled_from("aab é1_-٣\u2028\x1c\x85"), st.characters()), max_size=12)


@needs_re2
@given(pattern=written(), line=LINES)
def test_re_and_re2_match_the_same_lines(pattern: str, line: str) -> None:
    line = line.encode("utf-8", "replace").decode().replace("\n", " ")
    ours = re.compile(pattern).search(line)
    theirs = patterns.compile_for_lines(pattern).search(line)
    assert (ours is None) == (theirs is None)


def lines_that_pass(
    pattern: str, lines: list[str], *, ignore_case: bool, in_json: bool = False
) -> list[str] | None:
    """Lines as a filter finds them in the whole text; None if there is no filter."""
    passes = patterns.compile_filter(pattern, ignore_case=ignore_case, in_json=in_json)
    if passes is None:
        return None
    text, start, found = "\n".join(lines).encode(), 0, []
    while start <= len(text) and (place := passes(text, start)) >= 0:
        start = text.rfind(b"\n", start, place) + 1 or start
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        found.append(text[start:end].decode())
        start = end + 1
    return found


@needs_re2
@given(pattern=written(), lines=st.lists(LINES, min_size=1, max_size=5), ignore=st.booleans())
def test_a_prefilter_passes_every_matching_line(
    pattern: str, lines: list[str], ignore: bool
) -> None:
    lines = [each.encode("utf-8", "replace").decode().replace("\n", " ") for each in lines]
    passed = lines_that_pass(pattern, lines, ignore_case=ignore)
    compiled = re.compile(pattern, re.IGNORECASE if ignore else 0)
    missed = [each for each in lines if compiled.search(each) and each not in (passed or lines)]
    assert missed == []


JSON_PIECES = [*PIECES, '"', r"\\", "/", r"\t", r"[/\t]", "[^/]", "k", "[i-k]", "\U0001f600"]


@st.composite
def as_json(draw: st.DrawFn) -> tuple[str, str]:
    """Return a text of some lines, and one of the ways to write it as a string of JSON."""
    text = draw(
        st.text(st.one_of(st.sampled_from('aab é1_-٣\u2028"\\/\t\b\r\nkKİ😀'), st.characters()))
    )
    text = text.encode("utf-8", "replace").decode()
    written = []
    for character in text:
        units = json.dumps(character)[1:-1]
        if len(units) == 1:
            units = "".join(
                f"\\u{unit:04x}" for unit in struct.unpack("<H", character.encode("utf-16-le"))
            )
        ways = [units, re.sub(r"(?<=\\u)....", lambda found: found[0].upper(), units)]
        ways += ["\\/"] if character == "/" else []
        ways += [character] if character.isprintable() and character not in '"\\' else []
        written.append(draw(st.sampled_from(ways)))
    return text, f'{{"text": "{"".join(written)}"}}'


@needs_re2
@given(pattern=written(JSON_PIECES), row=as_json(), ignore=st.booleans())
def test_a_json_prefilter_passes_every_matching_string(
    pattern: str, row: tuple[str, str], ignore: bool
) -> None:
    text, line = row
    assert json.loads(line) == {"text": text}
    passed = lines_that_pass(pattern, ["{}", line], ignore_case=ignore, in_json=True)
    compiled = re.compile(pattern, re.IGNORECASE if ignore else 0)
    assert passed is None or line in passed or not any(map(compiled.search, text.split("\n")))


@needs_re2
def test_a_json_prefilter_rejects_most_other_lines() -> None:
    rows = [
        json.dumps(each)
        for each in ("caf\u00e9", "cafe", "a\ncaf\u00e9", "\u4e2d\u6587\u5b57\u5178")
    ]
    assert lines_that_pass("^café", rows, ignore_case=False, in_json=True) == [rows[0], rows[2]]
    assert lines_that_pass("[a-z]{5}", rows, ignore_case=False, in_json=True) == []


@needs_re2
@pytest.mark.parametrize("pattern", [*"abikstxz_9", "[a-z]", "[^a-z]", "[^iks]"])
def test_a_prefilter_knows_all_case_variants_of_a_letter(pattern: str) -> None:
    given = pattern if len(pattern) > 1 else re.escape(pattern)
    compiled = re.compile(given, re.IGNORECASE)
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    lines = [each for each in every if each != "\n" and compiled.search(each)]
    if len(lines) > 100:  # All others are rejected.
        lines = [each for each in every if each != "\n" and not compiled.search(each)]
        passed = lines_that_pass(given, lines, ignore_case=True)
        assert passed is not None
        assert len(passed) <= len(lines)
    else:
        assert lines_that_pass(given, lines, ignore_case=True) == lines


@needs_re2
@given(
    text=st.binary(max_size=30).map(lambda part: part * 40)
    | st.text("ab-", max_size=200).map(str.encode),
    literal=st.binary(min_size=1, max_size=4)
    | st.text("ab-", min_size=1, max_size=4).map(str.encode),
    start=st.integers(0, 50),
)
def test_a_literal_is_found_where_bytes_find_it(text: bytes, literal: bytes, start: int) -> None:
    passes = patterns.compile_literal(literal)
    for at in (0, min(start, len(text)), 0):  # It may have learnt that no byte is rare.
        assert passes(text, at) == text.find(literal, at)


@needs_re2
def test_a_frequent_byte_is_left_to_re2() -> None:
    passes: Any = patterns.compile_literal(b"aab")
    text = b"." * 70_000 + b"ab" * 2_500 + b"aab"
    assert passes(text, 0) == text.find(b"aab")
    assert not passes._is_rare
    assert passes(text, len(text) - 2) == -1


@needs_re2
def test_a_prefilter_ignores_boundaries_and_is_refused_for_unsupported_syntax() -> None:
    assert lines_that_pass(r"\bcat\b", ["concat", "dog", "cat"], ignore_case=False) == [
        *("concat", "cat")
    ]
    for pattern in (r"(a)\1", "(?=a)b", "(?s)a.b", r"[^\w]"):
        assert patterns.compile_filter(pattern, ignore_case=True) is None


@needs_re2
@pytest.mark.parametrize("sign", [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"])
def test_categories_are_those_of_this_python(sign: str) -> None:
    one = patterns.compile_for_lines(f"^{sign}$")
    assert not isinstance(one, re.Pattern)
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    expected = re.compile(sign)
    wrong = [c for c in every if (one.search(c) is None) != (expected.fullmatch(c) is None)]
    assert wrong == []


def test_a_pattern_too_large_for_re2_is_left_to_re(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooLarge(Exception):
        pass

    def refuse(pattern: str, options: object) -> object:
        raise TooLarge

    fake = SimpleNamespace(Options=SimpleNamespace, compile=refuse, error=TooLarge)
    monkeypatch.setitem(sys.modules, "re2", fake)
    monkeypatch.setattr(patterns, "find_spec", lambda name: object())
    assert isinstance(patterns.compile_for_lines("a"), re.Pattern)
