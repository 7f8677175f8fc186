"""Rebuild src/rlm/models/models.json from the installed `genai-prices` package.

In a separate environment:  pip install genai-prices && python tools/update_models.py
The section "supplement" of the file is written by hand and is kept.
"""

import argparse
import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "rlm" / "models" / "models.json"
PACKAGE = "genai-prices"
DIRECT = ("openai", "anthropic", "google", "groq", "openrouter", "azure")
BY_WAY_OF_LITELLM = (
    *("aws", "cerebras", "cohere", "deepseek", "fireworks", "minimax", "mistral", "moonshotai"),
    *("perplexity", "together", "x-ai", "zai"),
)
"""Which of the package's providers rlm can reach; the others stay out."""

TOKEN_PRICES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
NOT_BILLED = {
    *("input_audio_mtok", "cache_audio_read_mtok", "input_video_mtok"),
    *("cache_write_1h_mtok", "web_searches_kcount", "storage_searches_kcount"),
    *("social_searches_kcount", "code_executions_kcount"),
}
"""Billed only for what rlm never asks for: sound, video, caches that live an hour, tools."""

SEARCHES_BY_ITSELF = re.compile(r"search|sonar|online|pplx|r1-1776")
"""Such a model bills its searches, and their number is not known in advance."""

RULES = (("equals", "="), ("starts_with", "^"), ("contains", "*"), ("ends_with", "$"))
SPLIT_WINDOW = re.compile(r"(^|[/.])gpt-([56]|(\w+-)?latest$)")
OUTPUT_SHARE = 128_000
MAKERS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "x-ai": "x-ai"}
"""Whose models OpenRouter passes on to the maker: their window is the maker's, or less."""

NEVER_SERVED = {"openai": "gpt-oss"}
"""Rows of open models under a maker that does not serve them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--date", type=date.fromisoformat, default=date.today(), help="YYYY-MM-DD")
    today = parser.parse_args().date
    package = importlib.import_module("genai_prices.data")
    before = json.loads(TARGET.read_text("utf-8")) if TARGET.exists() else {}
    notice = next(
        path.read_text("utf-8")
        for path in importlib.metadata.files(PACKAGE) or ()
        if "LICENSE" in path.name.upper()
    )
    source = {
        "name": PACKAGE,
        "version": importlib.metadata.version(PACKAGE),
        "date": today.isoformat(),
        "licence": "MIT",
        "notice": " ".join(notice.split()),
    }
    providers = tables(package.providers, today)
    TARGET.write_text(written(source, before.get("supplement", {}), providers), "utf-8")
    rows = sum(len(each["models"]) for each in providers.values())
    print(f"{TARGET.name}: {rows} models of {len(providers)} providers", file=sys.stderr)


def written(source: Any, supplement: Any, providers: dict[str, Any]) -> str:
    """Return the file with one row per line, so that an update can be reviewed."""
    windows = supplement.get("windows", {})
    lines = ['{\n "source": ' + json.dumps(source, indent=2) + ","]
    lines.append(f' "supplement": {{\n  "date": {json.dumps(supplement.get("date", ""))},')
    lines.append(f'  "about": {json.dumps(supplement.get("about", ""))},\n  "windows": {{')
    for number, (name, rows) in enumerate(windows.items()):
        shown = ",\n".join(f"    {json.dumps(each)}" for each in rows)
        lines.append(
            f"   {json.dumps(name)}: [\n{shown}]" + ("," if number + 1 < len(windows) else "")
        )
    lines.append('  }\n },\n "providers": {')
    for number, (name, each) in enumerate(providers.items()):
        rows = [json.dumps(_trimmed(row), separators=(",", ":")) for row in each["models"]]
        fallback = json.dumps(each["fallback"])
        lines.append(f'  {json.dumps(name)}: {{"fallback": {fallback}, "models": [')
        lines.append(",\n".join(rows))
        lines.append("  ]}" + ("," if number + 1 < len(providers) else ""))
    return "\n".join([*lines, " }", "}", ""])


def tables(providers: Iterable[Any], today: date) -> dict[str, Any]:
    """Return the rows [id, rules, window, price] of each provider, in the order of lookup."""
    by_id = {each.id: each for each in providers}
    kept = [name for name in (*DIRECT, *BY_WAY_OF_LITELLM) if name in by_id]
    found: dict[str, Any] = {}
    for name in kept:
        models = [model for model in by_id[name].models if _is_served(name, model.id)]
        rows = [row(model, today) for model in models]
        fallback = [other for other in by_id[name].fallback_model_providers or () if other in kept]
        found[name] = {"fallback": fallback, "models": rows}
    for each in found.get("openrouter", {"models": []})["models"]:
        each[2] = _narrower(each, by_id)
    return found


def row(model: Any, today: date) -> list[Any]:
    searches = SEARCHES_BY_ITSELF.search(model.id.lower())
    price = None if searches else price_of(model, today)
    return [model.id, list(rules_of(model.match)), window_of(model), price]


def _is_served(provider: str, model: str) -> bool:
    """Return whether the provider serves a model; old rows of OpenRouter lack the maker."""
    if provider == "openrouter" and "/" not in model:
        return False
    return not (provider in NEVER_SERVED and model.startswith(NEVER_SERVED[provider]))


# -- rules ----------------------------------------------------------------------------------------


def rules_of(clause: Any) -> Iterator[str | list[str]]:
    """Return rules, any of which must match; all of a list. A sign says how to compare."""
    if hasattr(clause, "or_"):
        for each in clause.or_:
            yield from rules_of(each)
    elif hasattr(clause, "and_"):
        parts = [list(rules_of(each)) for each in clause.and_]
        if any(len(part) != 1 or isinstance(part[0], list) for part in parts):
            raise ValueError(f"a rule is nested too deep: {clause}")
        yield [str(part[0]) for part in parts]
    elif hasattr(clause, "regex"):
        re.compile(clause.regex)
        yield f"~{clause.regex}"
    else:
        yield next(
            sign + getattr(clause, how).lower() for how, sign in RULES if hasattr(clause, how)
        )


# -- windows --------------------------------------------------------------------------------------


def window_of(model: Any) -> int | None:
    """Return what a prompt may hold: since gpt-5, OpenAI reserves part of the window for output."""
    window: int | None = model.context_window
    if window is not None and window >= 400_000 and SPLIT_WINDOW.search(model.id):
        return window - OUTPUT_SHARE
    return window


def _narrower(openrouters: list[Any], by_id: dict[str, Any]) -> int | None:
    maker, _, name = openrouters[0].removeprefix("~").partition("/")
    own: int | None = openrouters[2]
    if maker not in MAKERS or MAKERS[maker] not in by_id:
        return own
    name = name.partition(":")[0].lower()
    match = next((each for each in by_id[MAKERS[maker]].models if each.match.is_match(name)), None)
    makers = None if match is None or not _is_served(maker, match.id) else window_of(match)
    return min((each for each in (own, makers) if each is not None), default=None)


# -- prices ---------------------------------------------------------------------------------------


def price_of(model: Any, today: date) -> list[Any] | None:
    """Return the price, or None if more is billed than tokens of input and output.

    If prices depend on the hour or start on a later day, return the highest, so a budget holds.
    """
    levels = [_levels(each) for each in _in_force(model.prices, today)]
    if not levels or any(each is None for each in levels):
        return None
    if model.id.endswith(":free") and levels == [{0: [None] * 4}]:
        return [0, 0]
    known = [each for each in levels if each is not None]
    starts = sorted({start for each in known for start in each})
    dearest = [_dearest([_level_at(each, start) for each in known]) for start in starts]
    if any(each[0] is None or each[1] is None for each in dearest):
        return None
    longer: list[Any] | None = None
    for start, each in reversed(list(zip(starts, dearest, strict=True))):
        longer = [start, _trimmed([*each, longer])]
    return None if longer is None else longer[1]


def _in_force(prices: Any, today: date) -> list[Any]:
    """Return prices from the last one that holds today at any hour on; a later one wins."""
    if not isinstance(prices, list):
        return [prices]
    holding = [number for number, each in enumerate(prices) if _holds(each.constraint, today)]
    return [each.prices for each in prices[max(holding, default=0) :]]


def _holds(constraint: Any, today: date) -> bool:
    start = getattr(constraint, "start_date", None)
    return constraint is None or (start is not None and start <= today)


def _levels(prices: Any) -> dict[int, list[Decimal | None]] | None:
    """Return input sizes and the prices from there on; None if that is not possible."""
    given = {name: value for name, value in vars(prices).items() if value is not None}
    input_price = given.get("input_mtok")
    for name, value in given.items():
        if name in TOKEN_PRICES or name in NOT_BILLED:
            continue
        if name in {"input_image_mtok", "cache_image_read_mtok"} and value == input_price:
            continue
        return None
    tiers = [each for each in given.values() if hasattr(each, "tiers")]
    starts = {0, *(tier.start for each in tiers for tier in each.tiers)}
    return {
        start: _with_surcharge([_at(given.get(name), start) for name in TOKEN_PRICES])
        for start in starts
    }


def _with_surcharge(level: list[Any]) -> list[Any]:
    """Add the input price to a cache-write price that is lower, because it is a surcharge."""
    plain, written = level[0], level[3]
    if plain is not None and written is not None and written < plain:
        level[3] = plain + written
    return level


def _at(price: Any, start: int) -> Any:
    if not hasattr(price, "tiers"):
        return price
    reached = [tier.price for tier in price.tiers if tier.start <= start and start]
    return reached[-1] if reached else price.base


def _level_at(levels: dict[int, list[Any]], start: int) -> list[Any]:
    return levels[max(each for each in levels if each <= start)]


def _dearest(levels: list[list[Any]]) -> list[Any]:
    """Return the highest of each part; a missing part counts as that row's input price."""
    found: list[Any] = []
    for part in range(len(TOKEN_PRICES)):
        values = [level[part] for level in levels]
        if part >= 2 and any(value is not None for value in values):
            values = [level[0] if level[part] is None else level[part] for level in levels]
        known = [value for value in values if value is not None]
        whole = len(known) == len(values)
        found.append(_number(max(known)) if known and (whole or part >= 2) else None)
    return found


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _trimmed(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


if __name__ == "__main__":
    main()
