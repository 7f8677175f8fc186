"""Numbers that msgspec reads slowly: they are counted outside of strings, and read by Python."""

import json
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm._util import slow_numbers
from rlm._util.slow_numbers import FEW, SlowNumbers, decode, decode_with, has_many, loads, slow_in
from rlm.worker.bounds import TooLarge


class Form(msgspec.Struct):
    name: str = ""
    ratio: float = 0.0
    count: int = 0
    by_number: dict[int, str] = {}
    anything: Any = None


def many(number: str, count: int = 100) -> str:
    return "[" + ",".join([number] * count) + "]"


@pytest.fixture
def read_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who decoded each document."""
    found: list[str] = []
    for module, name in ((msgspec.json, "decode"), (json, "loads")):
        real = getattr(module, name)

        def watched(*given: Any, name: str = name, real: Any = real, **named: Any) -> Any:
            found.append(name)
            return real(*given, **named)

        monkeypatch.setattr(module, name, watched)
    return found


SLOW = [
    "1e300",
    "1E-300",
    "-1.7976931348623157e308",
    "4.9e-324",
    "1e+300",
    "1.000000000000000000000000000000000001e-310",
    "1" * 400,
    "0." + "0" * 400 + "1",
    "-" + "9" * 300 + ".5",
]


@pytest.mark.parametrize("number", SLOW)
def test_many_slow_numbers_are_read_by_python(number: str, read_by: list[str]) -> None:
    text = many(number)
    for data in (text, text.encode(), memoryview(text.encode())):
        assert decode(data, list) == [json.loads(number)] * 100
    assert set(read_by[1::2]) == {"loads"}
    assert "decode" not in read_by


@pytest.mark.parametrize(
    "text",
    [
        many("1.5"),
        many("12345678901234567"),
        many("0.000012345678901234"),
        many("1e300", 8),
        many("true") + " ",
        json.dumps([[True, False, None]] * 500),
        json.dumps(["1e300,2e300 3e300"] * 100),
        json.dumps({f"{n}e5": f'"{n}e300" \\' for n in range(100)}),
        json.dumps(["1" * 10_000] * 10),
        json.dumps(["\\" * 3 + '",1e300,"' * 100]),
    ],
)
def test_other_documents_are_read_by_msgspec(text: str, read_by: list[str]) -> None:
    assert decode(text.encode(), Any) == json.JSONDecoder().decode(text)
    assert read_by == ["decode"]


@pytest.mark.parametrize("around", ['{{"a":[{{"b":{}}}]}}', '{{"anything":{}}}', "[[[[{}]]]]"])
def test_slow_numbers_count_at_every_depth(around: str) -> None:
    assert has_many(around.format(many("1e300")).encode())


def test_duplicate_keys_count() -> None:
    text = "{" + ",".join(['"ratio":1e300'] * 100) + "}"
    assert slow_in(text).exponents == 100
    assert decode(text, Form).ratio == 1e300


def test_what_is_wrong_is_refused_as_by_msgspec() -> None:
    slow = f'"anything": {many("1e300")}'
    decoder = msgspec.json.Decoder(Form)
    wrong = [
        '"count": 2.0',
        '"name": 3',
        '"ratio": 1e999',
        '"ratio": NaN',
        '"name": "\\ud800"',
        '"x',
    ]
    for each in wrong:
        for text in (f"{{{each}}}", f"{{{slow}, {each}}}"):
            with pytest.raises(ValueError):
                decode_with(decoder, text.encode())
    good = f'{{{slow}, "by_number": {{"1": "a"}}, "name": "\\ud83d\\ude00", "ratio": 3}}'
    assert decode_with(decoder, good).by_number == {1: "a"}
    assert decode_with(decoder, good).name == "😀"
    with pytest.raises(ValueError):
        decode(b'["\xff", ' + many("1e300").encode() + b"]", list)


def test_far_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_numbers, "MOST", SlowNumbers(200, 20_000))
    for text in (many("1e300", 201), many("1" * 400, 60)):
        for read in (loads, lambda text: decode(text, list)):
            with pytest.raises(TooLarge, match="allowed"):
                read(text)
    assert len(loads(many("1e300", 200))) == 200


def test_other_threads_run_while_slow_numbers_are_read() -> None:
    """Python calls a function of Python for each, where it lets go of the interpreter's lock."""
    calls: list[str] = []

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    texts = [many("1e300"), many("1" * 300)]
    reader = threading.Thread(target=lambda: [loads(text) for text in texts])
    threading.setprofile(count)
    try:
        reader.start()
        reader.join()
    finally:
        threading.setprofile(None)
    assert calls.count("_number") == 100
    assert calls.count("_whole") == 200 - 100


@given(
    st.recursive(
        st.floats(allow_nan=False) | st.text() | st.booleans() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_count_is_exact(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).replace("Infinity", "1")
    numbers: list[str] = []
    json.loads(text, parse_float=numbers.append)
    assert slow_in(text).exponents == sum("e" in each for each in numbers)


@given(
    st.lists(st.sampled_from(['"a\\\\"', '"\\""', '"1e5"', "1e5", '"é"', "null"])),
    st.integers(1, 9),
)
def test_slices_split_nothing(parts: list[str], size: int) -> None:
    text = f"[{', '.join(parts)}]".encode()
    whole = b"".join(slow_numbers.outside_strings(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow_numbers, "_SLICE_BYTES", size)
        assert b"".join(slow_numbers.outside_strings(text)) == whole
        assert has_many(text, SlowNumbers(0, 0)) is ("1e5" in parts)


def test_few_is_few() -> None:
    assert not has_many(many("1e300", FEW.exponents))
    assert has_many(many("1e300", FEW.exponents + 1))
