"""Settings: their values, defaults and error messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elizaos_plugin_rlm import ConfigProblem, RLMConfig
from elizaos_plugin_rlm.config import variable_of


def test_the_defaults_are_those_of_the_document() -> None:
    config = RLMConfig.from_environment({})
    assert (config.backend, config.environment) == ("gemini", "local")
    assert (config.max_iterations, config.max_depth, config.verbose) == (4, 1, False)


def test_every_variable_of_the_document_is_read() -> None:
    config = RLMConfig.from_environment(
        {
            "ELIZA_RLM_BACKEND": "openai",
            "ELIZA_RLM_ENV": "docker",
            "ELIZA_RLM_MAX_ITERATIONS": "7",
            "ELIZA_RLM_MAX_DEPTH": "2",
            "ELIZA_RLM_VERBOSE": "true",
            "ELIZA_RLM_ROOT_MODEL": "gpt-5",
            "ELIZA_RLM_SUBCALL_MODEL": "gpt-5-nano",
            "ELIZA_RLM_MAX_RETRIES": "3",
        }
    )
    assert (config.backend, config.environment, config.verbose) == ("openai", "docker", True)
    assert (config.max_iterations, config.max_depth, config.max_retries) == (7, 2, 3)
    assert (config.root_model, config.subcall_model) == ("gpt-5", "gpt-5-nano")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ELIZA_RLM_MAX_ITERATIONS", "many", "whole number"),
        ("ELIZA_RLM_MAX_ITERATIONS", "0", "at least 1"),
        ("ELIZA_RLM_MAX_DEPTH", "-1", "at least 1"),
        ("ELIZA_RLM_MAX_DEPTH", "1.5", "whole number"),
        ("ELIZA_RLM_MAX_RETRIES", "-2", "at least 0"),
        ("ELIZA_RLM_VERBOSE", "perhaps", "true or false"),
        ("ELIZA_RLM_MAX_COST_USD", "0", "a positive number"),
        ("ELIZA_RLM_MAX_SECONDS", "nan", "a positive number"),
        ("ELIZA_RLM_STRATEGY", "guess", "one of rlm"),
    ],
)
def test_an_invalid_value_is_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(ConfigProblem, match=words) as caught:
        RLMConfig.from_environment({variable: value})
    assert variable in str(caught.value)


def test_validate_checks_a_manually_built_configuration() -> None:
    RLMConfig().validate()
    for wrong in (
        RLMConfig(max_iterations=0),
        RLMConfig(max_iterations=True),
        RLMConfig(backend=""),
        RLMConfig(retry_seconds=-1.0),
        RLMConfig(max_cost_usd=float("inf")),
    ):
        with pytest.raises(ConfigProblem):
            wrong.validate()


def test_each_field_is_taken_from_the_first_source_that_sets_it() -> None:
    config = RLMConfig.from_sources(
        [
            {"backend": "", "max_depth": 3}.get,
            {"backend": "openai", "max_depth": 2, "max_iterations": 9}.get,
        ]
    )
    assert (config.backend, config.max_depth, config.max_iterations) == ("openai", 3, 9)


def test_a_displayed_configuration_contains_no_key() -> None:
    config = RLMConfig(backend_kwargs={"api_key": "sk-secret"})
    assert "sk-secret" not in str(config.to_dict())


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)
names = st.sampled_from(sorted(RLMConfig.__dataclass_fields__))


@given(st.dictionaries(names, values))
def test_any_settings_give_a_valid_configuration_or_a_named_problem(
    settings: dict[str, object],
) -> None:
    try:
        config = RLMConfig.from_sources([settings.get])
    except ConfigProblem as problem:
        named = [name for name in settings if name in str(problem)]
    else:
        config.validate()
        named = ["none was wrong"]
    assert named


@given(names)
def test_every_field_has_its_own_variable(name: str) -> None:
    assert variable_of(name).startswith("ELIZA_RLM_")
    same = [
        each for each in RLMConfig.__dataclass_fields__ if variable_of(each) == variable_of(name)
    ]
    assert same == [name]
