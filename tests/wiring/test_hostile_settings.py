"""Settings that are no numbers, negative, huge or unprintable are refused with their names."""

import math
from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.errors import ConfigError
from rlm.messages import Price, Usage
from rlm.wiring.registry import split_model

MODEL = "ScriptedClient"


def engine(**more: Any) -> RLM:
    return RLM(ScriptedClient(["```repl\nFINAL(1)\n```"]), **more)


@pytest.mark.parametrize("price", [-1, -1e-9, math.nan, math.inf, "1", True, None])
def test_a_negative_or_invalid_price_is_refused(price: Any) -> None:
    for given in ((price, 1), (1, price)):
        with pytest.raises(ConfigError, match="a price must be at least 0 US dollars"):
            engine(prices={MODEL: given}, limits=Limits(max_cost_usd=1))
    if price is not None:
        with pytest.raises(ConfigError, match="a price must be"):
            Price(1, 1, cached_per_million=price)
    assert Price(0, 0.5).cost(Usage(input_tokens=1, output_tokens=1)) > 0


@pytest.mark.parametrize("given", [(1,), (), 5, (1, 2, 3, 4, 5, 6)])
def test_a_malformed_price_is_refused_with_the_model(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"prices\['ScriptedClient'\] must be \(input, output\)"):
        engine(prices={MODEL: given})


@pytest.mark.parametrize("window", [0, -1, math.nan, 1.5, "x", True])
def test_a_window_is_a_positive_number_of_tokens(window: Any) -> None:
    with pytest.raises(ConfigError, match=r"windows\['ScriptedClient'\] must be a positive number"):
        engine(windows={MODEL: window})


@pytest.mark.parametrize("name", ["cell_memory_bytes", "output_chars", "kept_output_chars"])
def test_a_limit_too_large_for_the_system_is_refused(name: str) -> None:
    given: dict[str, Any] = {name: 2**63}
    with pytest.raises(ConfigError, match=f"{name} must be at most"):
        Limits(**given)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("options", [{"\ud800": 1}, {"x": object()}, {"x": CYCLE}])
def test_sampling_must_be_serializable_as_json(options: Any) -> None:
    with pytest.raises(ConfigError, match="sub_sampling must be representable as JSON"):
        engine(sub_sampling=options)
    one = engine()
    with pytest.raises(ConfigError, match="sampling must be representable as JSON"):
        one.ask("q", "c", sampling=options)
    one.close()


@pytest.mark.parametrize(
    "name", ["openai/x\r\nSet-Cookie: y", "openai/\x1b[31m", "openai/\ud800", "gpt-" + "x" * 500]
)
def test_a_model_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="can't name a model") as caught:
        split_model(name)
    assert str(caught.value).isprintable()
    with pytest.raises(ConfigError, match="can't name a model"):
        RLM(model_name=name, variables={"OPENAI_API_KEY": "none"})
