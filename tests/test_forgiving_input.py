"""Input that is nearly right works, or says what is meant."""

import io
import itertools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError, ScriptedClient
from rlm.context import store_context, streams, warn_of_path
from tests.shape.tree import ROOT


def model() -> ScriptedClient:
    return ScriptedClient(["FINAL(1)"] * 3)


def test_limits_may_be_a_dict() -> None:
    with RLM(model(), limits={"max_steps": 7}) as engine:
        assert engine.config.limits.max_steps == 7
        assert engine.ask("How many?", "x", limits={"max_calls": 3}).answer == "1"
    with pytest.raises(ConfigError, match=r"unknown limit 'max_step'; did you mean 'max_steps'\?$"):
        RLM(model(), limits={"max_step": 1})
    with pytest.raises(ConfigError, match="unknown limit 'colour'; choose one of max_steps, "):
        RLM(model(), limits={"colour": 1})
    with pytest.raises(ConfigError, match="max_steps must be a positive"):
        RLM(model(), limits={"max_steps": 0})
    number: Any = 5
    with pytest.raises(ConfigError, match="or a dict, not int"):
        RLM(model(), limits=number)


def test_limits_of_one_run_change_only_the_named_fields() -> None:
    script = ["nothing"] * 9
    with RLM(ScriptedClient(script), limits={"max_steps": 2}) as engine:
        result = engine.ask("How many?", "x", limits={"max_calls": 3})
    assert result.steps <= 2


def test_a_context_that_is_the_name_of_a_file_gives_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "contract.txt"
    path.write_text("one")
    with RLM(model()) as engine:
        with pytest.warns(UserWarning, match=r"not the file of that name; .* Path\("):
            engine.ask("What?", str(path))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.ask("What?", path)
            engine.ask("What?", "just a text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "contract.pdf",
            "no file of that name exists here; to read the file, pass Path('contract.pdf')",
        ),
        ("~/my reports/2024 (final).XLSX", "no file of that name exists here"),
        ("tests/context", "not the file of that name"),
        ("The file is called contract.pdf, or so.", None),
        ("a\nb.txt", None),
        ("", None),
        ("version 1.5", None),
    ],
)
def test_text_that_looks_like_a_file_name_gives_a_warning(
    text: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_path(text)
    assert len(caught) == (said is not None)
    assert said is None or said in str(caught[0].message)


def seen(value: Any) -> Any:
    """What cells see as `context`."""
    return store_context(value)


def test_an_open_file_is_read_from_its_position(tmp_path: Path) -> None:
    path = tmp_path / "minutes.txt"
    path.write_text("first\nsecond\n")
    with path.open() as file:
        file.readline()
        assert seen(file).text() == "second\n"
    with path.open("rb") as binary:
        stored = seen(binary)
        assert (stored.kind, stored.size_bytes) == ("bytes", 13)
    assert seen(io.StringIO("text")).text() == "text"
    assert seen(io.StringIO("")).text() == ""
    with RLM(ScriptedClient(["```repl\nFINAL(context.upper())\n```"])) as engine:
        assert engine.ask("What?", io.StringIO("abc")).answer == "ABC"


def test_an_iterator_becomes_a_list() -> None:
    script = ["```repl\nFINAL(f'{type(context).__name__} {context}')\n```"]
    with RLM(ScriptedClient(script)) as engine:
        answer = engine.ask("What?", (str(n) for n in range(3))).answer
    assert answer == "list ['0', '1', '2']"
    assert seen(iter([{"a": 1}])).kind == "json"
    assert seen(map(Path, ["docs/README.md"])).documents == ("README.md",)


def test_files_and_iterators_are_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_READ_CHARS", 100)
    monkeypatch.setattr(streams, "MAX_ITEMS", 10)
    with pytest.raises(ConfigError, match=r"more than 100 characters; write it to a file and pass"):
        seen(io.StringIO("x" * 101))
    with pytest.raises(ConfigError, match=r"the count yields more than 10 items"):
        seen(itertools.count())
    with pytest.raises(ConfigError, match=r"the generator contains more than 100 characters"):
        seen("x" * 60 for _ in range(9))


def test_an_unreadable_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_bytes(b"caf\xe9")
    misread = pytest.raises(ConfigError, match=r"old.txt is not utf-8: open it with its encoding=")
    with path.open(encoding="utf-8") as file, misread:
        seen(file)
    with pytest.raises(ConfigError, match=r"old.txt can't be read: .* closed file"):
        seen(file)

    class Odd:
        def read(self, size: int) -> Any:
            return [1]

    with pytest.raises(ConfigError, match=r"reads as list, not as text or bytes"):
        seen(Odd())


class DataFrame:
    """Has the methods by which tables of pandas are recognized."""

    def to_csv(self) -> None: ...

    def to_dict(self) -> None: ...


class PolarsFrame:
    def write_csv(self) -> None: ...

    def to_dicts(self) -> None: ...


class Series:
    def to_frame(self) -> None: ...

    def to_list(self) -> None: ...

    def to_csv(self) -> None: ...

    def to_dict(self) -> None: ...


class LazyFrame:
    def lazy(self) -> None: ...

    def collect(self) -> None: ...


class Array:
    def tolist(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (DataFrame(), "df.to_csv(index=False), or as a list, df.to_dict('records')"),
        (PolarsFrame(), "df.write_csv(), or as df.to_dicts()"),
        (Series(), "pass a Series as a table, values.to_frame(), or as a list, values.to_list()"),
        ({"orders": LazyFrame()}, "collect a LazyFrame first, and pass the frame: df.collect()"),
        (["text", Array()], "values.tolist()"),
        (Array(), "values.tolist()"),
    ],
)
def test_a_table_is_refused_with_the_line_to_write(value: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)) as refused:
        seen(value)
    assert "docs/guides/contexts.md" in str(refused.value)


def test_an_error_in_a_generator_is_raised_to_the_caller() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise LookupError("mine")

    with RLM(model()) as engine, pytest.raises(LookupError, match="mine"):
        engine.ask("What?", broken())


@pytest.mark.parametrize("name", ["ask", "aask", "completion", "acompletion", "stream", "iter"])
def test_docstrings_show_arguments_an_example_and_the_result(name: str) -> None:
    text = getattr(RLM, name).__doc__ or ""
    assert len(text.splitlines()) > 4, name
    assert "context" in text
    assert f"rlm.{name}(" in text or name == "acompletion"
