"""Parameters of elizaOS: which become the context, and which reach the models."""

import json
from typing import Any

import pytest
from elizaos.types.model import GenerateTextParams
from hypothesis import given
from hypothesis import strategies as st

from elizaos_plugin_rlm.generation import Generation, ParamsProblem, as_params


def test_a_prompt_is_the_context_unchanged() -> None:
    generation = Generation.of({"prompt": "a\nb"})
    assert generation.context == "a\nb"
    assert "context" in generation.query


def test_messages_override_the_prompt() -> None:
    messages = [{"role": "user", "content": "hello"}]
    assert Generation.of({"prompt": "ignored", "messages": messages}).context == messages


def test_an_empty_list_of_messages_leaves_the_prompt() -> None:
    assert Generation.of({"prompt": "p", "messages": []}).context == "p"


def test_a_system_text_is_kept_with_the_messages_and_not_in_the_query() -> None:
    generation = Generation.of({"prompt": "p", "system": "Be brief."})
    assert generation.context == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "p"},
    ]
    assert "Be brief." not in generation.query


def test_a_system_text_already_in_the_messages_is_not_repeated() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert Generation.of({"system": "S", "messages": messages}).context == messages


def test_objects_and_texts_are_accepted_as_messages() -> None:
    class Said:
        role, content = "assistant", "yes"

    context = Generation.of({"messages": [Said(), "and?"]}).context
    assert context == [
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and?"},
    ]


def test_every_control_is_forwarded_under_the_servers_name() -> None:
    generation = Generation.of(
        {
            "prompt": "p",
            "maxTokens": 1000,
            "temperature": 0.7,
            "topP": 0.9,
            "stopSequences": ["END"],
            "user": "u1",
            "stream": False,
            "seed": 7,
            "frequencyPenalty": 0.1,
            "presencePenalty": 0.2,
            "topK": 40,
        }
    )
    assert generation.sampling == {
        "max_tokens": 1000,
        "temperature": 0.7,
        "top_p": 0.9,
        "stop": ["END"],
        "user": "u1",
        "seed": 7,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "top_k": 40,
    }


def test_snake_case_names_are_accepted_too() -> None:
    sampling = Generation.of({"prompt": "p", "max_tokens": 900, "stop_sequences": []}).sampling
    assert sampling == {"max_tokens": 900}


def test_a_very_small_cap_is_raised_so_that_code_can_be_written() -> None:
    assert Generation.of({"prompt": "p", "maxTokens": 10}).sampling == {"max_tokens": 512}


@pytest.mark.parametrize(
    "wanted", ["json_object", {"type": "json_object"}, {"type": "json_schema"}]
)
def test_a_response_format_applies_to_the_answer_and_not_to_replies(wanted: Any) -> None:
    generation = Generation.of({"prompt": "p", "responseFormat": wanted})
    assert "valid JSON" in generation.query
    assert generation.sampling == {}
    assert "JSON" not in Generation.of({"prompt": "p", "responseFormat": {"type": "text"}}).query


def test_an_answer_ends_at_the_first_stop_sequence() -> None:
    generation = Generation.of({"prompt": "p", "stopSequences": ["END", "\n\n"]})
    assert generation.ended("one\n\ntwo END three") == "one"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"prompt": ""},
        {"prompt": 7},
        {"messages": 7},
        {"messages": [7]},
        {"messages": b"bytes"},
        {"prompt": "p", "stopSequences": [1]},
    ],
)
def test_invalid_parameters_are_reported(params: dict[str, Any]) -> None:
    with pytest.raises(ParamsProblem):
        Generation.of(params)


def test_the_parameters_of_elizaos_own_type_are_read() -> None:
    given_params = GenerateTextParams(prompt="p", maxTokens=700, topP=0.5)
    sampling = Generation.of(as_params(given_params, {})).sampling
    assert sampling == {"max_tokens": 700, "top_p": 0.5}


def test_keywords_override_parameters() -> None:
    assert as_params({"prompt": "a"}, {"prompt": "b"}) == {"prompt": "b"}
    assert as_params(None, {"prompt": "b"}) == {"prompt": "b"}
    with pytest.raises(ParamsProblem):
        as_params(7, {})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
known = st.sampled_from(
    ["prompt", "messages", "system", "maxTokens", "stopSequences", "topP", "user", "stream"]
)


@given(st.dictionaries(known, anything))
def test_any_parameters_give_a_serializable_context_or_a_problem(
    params: dict[str, Any],
) -> None:
    try:
        generation = Generation.of(params)
    except ParamsProblem:
        return
    json.dumps(generation.context)
    assert isinstance(generation.ended("text"), str)
