"""The tool that rebuilds the data file: every form of price the source has, and of rule."""

import importlib.util
from datetime import date, time
from decimal import Decimal
from types import SimpleNamespace as Made
from typing import Any

import pytest

from tests.shape.tree import ROOT

TODAY = date(2026, 6, 1)


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("update_models", ROOT / "tools/update_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


def prices(**given: Any) -> Made:
    return Made(**{k: Decimal(v) if isinstance(v, str) else v for k, v in given.items()})


def tiers(base: str, *above: tuple[int, str]) -> Made:
    return Made(
        base=Decimal(base), tiers=[Made(start=start, price=Decimal(p)) for start, p in above]
    )


def model(price: Any, name: str = "m") -> Made:
    return Made(id=name, match=Made(equals=name), context_window=None, prices=price)


def when(constraint: Any, **given: Any) -> Made:
    return Made(constraint=constraint, prices=prices(**given))


def plain(name: str) -> dict[str, str]:
    return {"input_mtok": name, "output_mtok": name}


AT_NIGHT = Made(start_time=time(0), end_time=time(6))


@pytest.mark.parametrize(
    ("price", "row"),
    [
        (prices(input_mtok="1", output_mtok="2.5"), [1, 2.5]),
        (
            prices(input_mtok="1", output_mtok="2", cache_read_mtok="0.1", cache_write_mtok="1.25"),
            [1, 2, 0.1, 1.25],
        ),
        (prices(input_mtok="1", output_mtok="2", cache_write_mtok="0.5"), [1, 2, None, 1.5]),
        (
            prices(input_mtok=tiers("1", (10, "2"), (20, "4")), output_mtok="3"),
            [1, 3, None, None, [10, [2, 3, None, None, [20, [4, 3]]]]],
        ),
        (
            prices(input_mtok=tiers("1", (10, "2")), output_mtok=tiers("3", (20, "5"))),
            [1, 3, None, None, [10, [2, 3, None, None, [20, [2, 5]]]]],
        ),
        ([when(None, **plain("5")), when(Made(start_date=date(2026, 5, 1)), **plain("4"))], [4, 4]),
        ([when(None, **plain("5")), when(Made(start_date=date(2026, 7, 1)), **plain("9"))], [9, 9]),
        ([when(None, **plain("5")), when(Made(start_date=date(2026, 7, 1)), **plain("2"))], [5, 5]),
        ([when(None, **plain("5")), when(AT_NIGHT, **plain("2"))], [5, 5]),
        ([when(None, **plain("2")), when(AT_NIGHT, **plain("5"))], [5, 5]),
        (
            [when(None, **plain("2"), cache_read_mtok="1"), when(AT_NIGHT, **plain("5"))],
            [5, 5, 5],
        ),
        (prices(**plain("1"), web_searches_kcount="10", input_audio_mtok="7"), [1, 1]),
        (prices(**plain("1"), input_image_mtok="1"), None),
        (prices(**plain("1"), output_image_mtok="9"), None),
        (prices(**plain("1"), requests_kcount="5"), None),
        (prices(**plain("1"), output_reasoning_mtok="5"), None),
        (prices(audio_hours="1"), None),
        (prices(input_mtok="1"), None),
        (prices(), None),
    ],
)
def test_prices(price: Any, row: list[Any] | None) -> None:
    if isinstance(price, Made) and hasattr(price, "input_image_mtok"):
        assert tool.price_of(model(price), TODAY) == [1, 1]  # pictures at the price of text
        price.input_image_mtok = Decimal(2)
    assert tool.price_of(model(price), TODAY) == row


def test_only_models_labelled_free_are_free() -> None:
    assert tool.price_of(model(prices(), "a/b:free"), TODAY) == [0, 0]
    assert tool.price_of(model(prices(), "a/b"), TODAY) is None


def test_a_model_with_built_in_search_has_no_price() -> None:
    assert tool.row(model(prices(**plain("1")), "gpt-4o-search-preview"), TODAY)[3] is None
    assert tool.row(model(prices(**plain("1")), "gpt-4o"), TODAY)[3] == [1, 1]


def test_matching_rules_are_converted() -> None:
    both = Made(and_=[Made(starts_with="A"), Made(regex="^(?!b)")])
    any_of = Made(or_=[Made(equals="X"), Made(contains="y"), Made(ends_with="z"), both])
    assert list(tool.rules_of(any_of)) == ["=x", "*y", "$z", ["^a", "~^(?!b)"]]
    with pytest.raises(ValueError, match="nested too deep"):
        list(tool.rules_of(Made(and_=[any_of, Made(equals="a")])))


@pytest.mark.parametrize(
    ("name", "window", "kept"),
    [
        ("gpt-5-mini", 400_000, 272_000),
        ("openai/gpt-5.4", 1_050_000, 922_000),
        ("~openai/gpt-latest", 1_050_000, 922_000),
        ("global.openai.gpt-5.6-sol", 1_000_000, 872_000),
        ("gpt-5.3", 128_000, 128_000),
        ("gpt-4.1", 1_047_576, 1_047_576),
        ("claude-opus-5", 1_000_000, 1_000_000),
        ("gpt-5", None, None),
    ],
)
def test_windows(name: str, window: int | None, kept: int | None) -> None:
    assert tool.window_of(Made(id=name, context_window=window)) == kept


class Equal(Made):
    def is_match(self, name: str) -> bool:
        return bool(name == self.equals)


def test_the_smaller_of_two_windows_counts() -> None:
    def made(name: str, window: int | None) -> Made:
        return Made(id=name, match=Equal(equals=name), context_window=window, prices=prices())

    maker = Made(id="anthropic", models=[made("c", 200)], fallback_model_providers=None)
    seller = Made(
        id="openrouter",
        models=[
            made("anthropic/c", 900),
            made("anthropic/c:fast", None),
            made("qwen/q", 7),
            made("c", 5),
        ],
        fallback_model_providers=["anthropic", "nobody"],
    )
    found = tool.tables([maker, seller], TODAY)
    assert found["openrouter"]["fallback"] == ["anthropic"]
    assert [(row[0], row[2]) for row in found["openrouter"]["models"]] == [
        ("anthropic/c", 200),
        ("anthropic/c:fast", 200),
        ("qwen/q", 7),
    ]


def test_a_written_table_can_be_read_back() -> None:
    import json

    supplement = {"date": "d", "about": "a", "windows": {"x": [[["=m"], 5, "s"]], "y": []}}
    rows = {"x": {"fallback": ["y"], "models": [["m", ["=m"], None, None], ["n", ["=n"], 3, [1]]]}}
    read = json.loads(tool.written({"name": "n"}, supplement, {**rows, "y": rows["x"]}))
    assert read["supplement"] == supplement
    assert read["providers"]["x"] == {
        "fallback": ["y"],
        "models": [["m", ["=m"]], ["n", ["=n"], 3, [1]]],
    }
