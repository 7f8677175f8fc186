"""Input that is nearly right works, or says what is meant."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError, ScriptedClient


def model() -> ScriptedClient:
    return ScriptedClient(["FINAL(1)"] * 3)


def test_limits_may_be_a_dict() -> None:
    with RLM(model(), limits={"max_steps": 7}) as engine:
        assert engine.config.limits.max_steps == 7
        assert engine.ask("How many?", "x", limits={"max_calls": 3}).answer == "1"
    with pytest.raises(ConfigError, match="no limit 'max_step'; there are: max_steps, "):
        RLM(model(), limits={"max_step": 1})
    with pytest.raises(ConfigError, match="max_steps must be a positive"):
        RLM(model(), limits={"max_steps": 0})
    number: Any = 5
    with pytest.raises(ConfigError, match="or a dict, not int"):
        RLM(model(), limits=number)


def test_limits_of_one_run_change_only_what_they_name() -> None:
    script = ["nothing"] * 9
    with RLM(ScriptedClient(script), limits={"max_steps": 2}) as engine:
        result = engine.ask("How many?", "x", limits={"max_calls": 3})
    assert result.steps <= 2


def test_a_context_that_names_a_file_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "contract.txt"
    path.write_text("one")
    with RLM(model()) as engine:
        with pytest.warns(UserWarning, match=r"not the file of that name; .* Path\("):
            engine.ask("What?", str(path))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.ask("What?", path)
            engine.ask("What?", "just a text")
