"""Contexts in shared pages: the same values as anywhere, in every process, at no cost in memory."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm import worker
from rlm.context import store_context
from rlm.environments._shared import SharedContext, shared_context
from rlm.worker import selftest, shared
from rlm.worker.forms import Table
from tests.environments.test_python_versions import find_python
from tests.worker.alike import differences

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared pages are for Linux")

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHERS = [version for version in ("3.9", "3.10", "3.11", "3.12", "3.13") if version != HERE]
PYTHONS = [HERE, *(pytest.param(version, marks=pytest.mark.heavy) for version in OTHERS)]
MAX_PRIVATE_BYTES = 20 << 20

CHARACTERS = st.sampled_from("aB 1\n\r\0\té\xff\u0100中\u2028\ufeff\ud83d\ude00\udc80😀\U0010ffff")
ANY_CHARACTER = CHARACTERS | st.characters(codec=None, exclude_categories=())
ANY_TEXT = st.text(ANY_CHARACTER, max_size=60) | st.text(st.characters(codec="ascii"), max_size=60)

SAMPLES = [
    "",
    "a",
    "é",
    "中",
    "😀",
    "12",
    "1.5",
    "ab",
    "a b\r\na",
    "[1]",
    "caf\xe9\0",
    "中\ufeff ab",
]
SAMPLES += ["\ud83d\ude00", "😀a", "x" * 5_000, "é" * 5_000, "中\n" * 5_000, "😀" * 5_000]
SAMPLES += [f"name_{number}" for number in range(50)]
VALUES: list[Any] = [
    *SAMPLES,
    SAMPLES,
    {f"{number} é😀": text for number, text in enumerate(SAMPLES)},
    {"\ud83d\ude00": "ab", "😀": "cd"},
    b"",
    b"a",
    b"12",
    bytes(range(256)) * 40,
    {"a": [1, 2.5, None, {"é": "😀" * 100}], "b": "x" * 5_000},
    [1, "two"],
]


def made_of(value: Any, *, zero_copy: bool) -> Any:
    source = store_context(value)
    context = shared_context(source)
    return shared.value_of(context.fd, context.layout, zero_copy=zero_copy)


def start(python: str, what: str, contexts: Sequence[SharedContext]) -> subprocess.Popen[bytes]:
    """A child process that is handed the files, as a worker is, and nothing else of rlm."""
    child = Path(__file__).with_name("shared_child.py")
    folder = Path(worker.__file__).parent
    told = json.dumps([[context.fd, context.layout] for context in contexts])
    command = [python, "-S", str(child), str(folder), str(child.parent), what, told]
    fds = [context.fd for context in contexts]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, pass_fds=fds, stdin=pipe, stdout=pipe, stderr=pipe)


def answer(process: subprocess.Popen[bytes], said: bytes = b"") -> str:
    output, errors = process.communicate(said)
    assert process.returncode == 0, errors.decode()
    return output.decode().strip()


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    if request.param == HERE:
        return sys.executable
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"there is no Python {request.param} here")
    return found


# -- the same value, however it is made ---------------------------------------------------------


@pytest.mark.parametrize("zero_copy", [True, False])
@given(text=ANY_TEXT)
@example(text="\ud83d\ude00")
@example(text="a\ud83d\ude00😀")
@example(text="ab\0")
def test_any_text_can_be_shared(zero_copy: bool, text: str) -> None:
    assert differences(made_of(text, zero_copy=zero_copy), text) == []


@pytest.mark.parametrize("zero_copy", [True, False])
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=8))
@example(texts=["", "a", "é", "😀", "ab"])
def test_any_list_of_texts_can_be_shared(zero_copy: bool, texts: list[str]) -> None:
    made = made_of(texts, zero_copy=zero_copy)
    assert made == texts
    assert differences(made, texts) == []
    assert "".join(made) == "".join(texts)
    assert sorted(made) == sorted(texts)


@pytest.mark.parametrize("zero_copy", [True, False])
@given(texts=st.dictionaries(ANY_TEXT, ANY_TEXT, min_size=1, max_size=6))
def test_any_dict_of_texts_can_be_shared(zero_copy: bool, texts: dict[str, str]) -> None:
    made = made_of(texts, zero_copy=zero_copy)
    assert made == texts
    assert list(made) == list(texts)
    assert differences(made, texts) == []


@pytest.mark.parametrize("zero_copy", [True, False])
@given(data=st.binary(max_size=60))
def test_any_bytes_can_be_shared(zero_copy: bool, data: bytes) -> None:
    assert differences(made_of(data, zero_copy=zero_copy), data) == []


@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize(
    "value", VALUES, ids=lambda value: repr(value)[:12].encode("ascii", "replace")
)
def test_sample_values_can_be_shared(zero_copy: bool, value: Any) -> None:
    assert differences(made_of(value, zero_copy=zero_copy), value) == []


def test_empty_and_single_character_texts_are_not_shared() -> None:
    for text in ("", chr(97), chr(233)):  # CPython has these only once
        assert made_of(text, zero_copy=True) is text
        assert made_of([text, "ab"], zero_copy=True)[0] is text


def test_invalid_json_is_a_value_error() -> None:
    source = store_context("{" * 10)
    context = shared_context(source)
    for zero_copy in (True, False):
        with pytest.raises(ValueError, match="double quotes"):
            shared.value_of(context.fd, {**context.layout, "kind": "json"}, zero_copy=zero_copy)


@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"kind": "odd"}, "kind 'odd'"),
        ({"kind": "text", "form": "ascii", "chars": 10_000}, "too short"),
        ({"kind": "bytes", "size": 10_000}, "too short"),
        ({"kind": "texts", "count": 1_000, "table": 0, "names": None}, "too short"),
    ],
)
def test_an_inconsistent_layout_is_refused(
    zero_copy: bool, layout: dict[str, Any], words: str
) -> None:
    source = store_context("a short text")
    with pytest.raises(ValueError, match=words):
        shared.value_of(shared_context(source).fd, layout, zero_copy=zero_copy)


def test_a_truncated_table_is_refused() -> None:
    with pytest.raises(ValueError, match="incomplete"):
        Table.parse(bytes(33), 2)


# -- where it is tried at all ---------------------------------------------------------------------


def test_this_python_version_supports_sharing() -> None:
    assert shared.is_supported() is (HERE in {"3.9", "3.10", "3.11", "3.12", "3.13"})


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (sys, "version_info", (3, 15, 0)),
        (sys, "version_info", (3, 8, 0)),
        (sys, "byteorder", "big"),
        (sys, "maxsize", (1 << 31) - 1),
        (sys, "abiflags", "t"),
        (sys, "abiflags", "d"),
        (sys, "gettotalrefcount", len),
        (os, "memfd_create", None),
    ],
)
def test_the_self_test_declines_an_unusual_interpreter(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, value: Any
) -> None:
    with monkeypatch.context() as patch:
        if value is None:
            patch.delattr(place, name)
        else:
            patch.setattr(place, name, value, raising=False)
        assert not selftest.passes()


def test_one_difference_fails_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = list(selftest._SAMPLES)
    assert selftest.passes()
    monkeypatch.setattr(selftest, "_encoded", lambda form: samples[0].encode() + bytes(4))
    assert not selftest.passes()  # wide texts over narrow data


def test_the_self_test_runs_once_and_its_result_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail() -> bool:
        asked.append(1)
        return False

    monkeypatch.setattr(selftest, "passes", fail)
    monkeypatch.setattr(shared, "_supported", None)
    source = store_context("x" * 1_000)
    context = shared_context(source)
    values = [shared.value_of(context.fd, context.layout) for _ in range(3)]
    assert values == ["x" * 1_000] * 3
    assert asked == [1]


# -- in other processes ---------------------------------------------------------------------------


def test_another_process_sees_the_same_values(python: str) -> None:
    sources = [store_context(value) for value in VALUES]
    process = start(python, "compare", [shared_context(source) for source in sources])
    assert answer(process, pickle.dumps(VALUES)) == "alike"


def test_a_process_that_writes_into_a_context_harms_only_itself() -> None:
    source = store_context("a" * 10_000)
    context = shared_context(source)
    process = start(sys.executable, "overwrite", [context])
    output, _ = process.communicate()
    assert output.decode().split() == ["-1", str(errno.EACCES)]
    assert process.returncode == -signal.SIGSEGV
    assert shared.value_of(context.fd, context.layout) == "a" * 10_000


def test_many_processes_share_one_large_text() -> None:
    source = store_context("some text, again and again\n" * 3_900_000)
    context = shared_context(source)
    assert context.size_bytes > 100_000_000
    processes = [start(sys.executable, "measure", [context]) for _ in range(5)]
    for process in processes:
        seen, private = json.loads(answer(process))
        assert seen == source.size_bytes + 2 * 3_900_000  # an e in two words of every line
        assert private < MAX_PRIVATE_BYTES


@pytest.mark.heavy
@pytest.mark.parametrize("mixed", [False, True])
def test_many_documents_take_little_memory(python: str, mixed: bool) -> None:
    ends = ["é", "中", "😀", "e"] if mixed else ["e"]
    documents = [f"{number} " + "x" * 1_000 + ends[number % len(ends)] for number in range(100_000)]
    source = store_context(documents)
    seen, private = json.loads(answer(start(python, "measure", [shared_context(source)])))
    assert seen == sum(map(len, documents)) + sum("e" in text for text in documents)
    assert private < MAX_PRIVATE_BYTES


def test_random_work_for_a_second() -> None:
    _stress(sys.executable, seconds=1.0)


@pytest.mark.heavy
def test_random_work_for_a_long_time(python: str) -> None:
    _stress(python, seconds=20.0)


def _stress(python: str, seconds: float) -> None:
    texts = [text for text in SAMPLES if len(text) < 100] + [
        "a é中😀"[: number % 6] * number for number in range(60)
    ]
    sources = [store_context(text) for text in ("ab" * 50, "é" * 40, "中" * 30, "😀" * 20)]
    sources.append(store_context(texts))
    process = start(python, "stress", [shared_context(source) for source in sources])
    assert int(answer(process, json.dumps([seconds, 7]).encode())) > 10
