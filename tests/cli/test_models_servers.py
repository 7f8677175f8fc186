"""Model servers on this machine: detected, and trusted only as far as their replies are valid."""

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.cli import _models
from rlm.cli._models import Server, address_of, find_servers, first_model, is_local, probe
from tests.cli.local_servers import listed, nowhere, ollama, playing

LONG = 30.0
"""Seconds for servers that do answer, however slow the machine is."""


@pytest.mark.parametrize(
    ("provider", "pages", "windows"),
    [
        ("vllm", {"/v1/models": listed("m", max_model_len=40_960)}, {"m": 40_960}),
        ("vllm", {"/v1/models": listed("m", max_model_len="40960")}, {}),
        ("vllm", {"/v1/models": listed("m", max_model_len=-1)}, {}),
        ("vllm", {"/v1/models": listed("m", max_model_len=True)}, {}),
        ("ollama", ollama("m", "n", loaded=4_096), {"m": 4_096}),
        ("ollama", ollama("m"), {}),
        ("ollama", {"/v1/models": listed("m"), "/api/ps": b"<html>"}, {}),
        ("ollama", {"/v1/models": listed("m"), "/api/ps": {"models": [1, {"name": 2}, {}]}}, {}),
        ("ollama", {"/v1/models": listed("m"), "/api/ps": {"models": 5}}, {}),
        (
            "lmstudio",
            {
                "/v1/models": listed("m", "n"),
                "/api/v0/models": {"data": [{"id": "n", "loaded_context_length": 8_192}]},
            },
            {"n": 8_192},
        ),
        (
            "llamacpp",
            {
                "/v1/models": listed("m"),
                "/props": {"default_generation_settings": {"n_ctx": 16_384}},
            },
            {"m": 16_384},
        ),
        ("llamacpp", {"/v1/models": listed("m"), "/props": {"default_generation_settings": 1}}, {}),
        ("llamacpp", {"/v1/models": listed("m"), "/props": []}, {}),
    ],
)
def test_windows_are_read_from_each_kind_of_server(
    provider: str, pages: dict[str, Any], windows: dict[str, int]
) -> None:
    with playing(pages) as server:
        found = probe(provider, server.address, seconds=LONG)
    assert found.answers
    assert found.models[0] == "m"
    assert found.windows == windows


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>another program</html>", b"", b"[]", b"null", b'{"data": null}', b'{"data": 5}'),
        *(b'{"data": [1]}', b'{"data": [{"id": 1}]}', b'{"data": [{"id": ""}]}', b"[" * 90_000),
        b'{"data": [{"id": "' + b"x" * 300 + b'"}]}',
    ],
)
def test_a_server_that_is_not_a_model_server_is_ignored(body: bytes) -> None:
    with playing({"/v1/models": body}) as server:
        found = probe("ollama", server.address, seconds=LONG)
    assert found == Server("ollama", server.address, False)
    assert [path for _, path, _ in server.asked] == ["/v1/models"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "models",
                        "data",
                        "name",
                        "id",
                        "context_length",
                        "loaded_context_length",
                        "default_generation_settings",
                        "n_ctx",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_response_about_windows_is_handled(said: Any) -> None:
    for ask in _models.WINDOWS.values():
        found = ask(lambda path: said, ["m"])
        assert all(isinstance(name, str) for name in found)


def test_a_server_without_models_is_detected() -> None:
    with playing({"/v1/models": {"data": []}}) as server:
        assert probe("ollama", server.address, seconds=LONG) == Server(
            "ollama", server.address, True
        )


def test_a_missing_and_a_silent_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        assert not probe("ollama", address, seconds=0.05).answers
        found = find_servers(nowhere(LLAMACPP_BASE_URL=address), seconds=0.05)
    assert [each.answers for each in found] == [False] * 4
    assert not probe("ollama", address, seconds=LONG).answers


@pytest.mark.parametrize(
    "address", ["", "nonsense", "http://", "http://[", "ftp://localhost/v1", "http://h:99999/v1"]
)
def test_an_invalid_address_is_not_contacted(address: str) -> None:
    assert not probe("ollama", address, seconds=0.05).answers


def test_every_server_is_contacted_at_its_variables_address() -> None:
    with playing(ollama("q")) as one, playing({"/v1/models": listed("v")}, key="sk-1") as two:
        variables = nowhere(
            OLLAMA_HOST=f"127.0.0.1:{one.port}", VLLM_BASE_URL=two.address, VLLM_API_KEY="sk-1"
        )
        found = {each.provider: each for each in find_servers(variables, seconds=LONG)}
    assert {name: each.models for name, each in found.items() if each.answers} == {
        "ollama": ("q",),
        "vllm": ("v",),
    }
    assert {key for _, _, key in one.asked} == {None}
    assert two.asked == [("GET", "/v1/models", "Bearer sk-1")]


def test_only_requested_servers_are_contacted() -> None:
    with playing(ollama("q")) as server:
        variables = nowhere(OLLAMA_HOST=f"127.0.0.1:{server.port}")
        assert find_servers(variables, only={"vllm"}, seconds=LONG)[0].provider == "vllm"
        assert server.asked == []


def test_a_dotenv_cannot_send_requests_to_other_machines() -> None:
    elsewhere = {"VLLM_BASE_URL": "http://models.example.com/v1", "VLLM_API_KEY": "k"}
    assert address_of("vllm", elsewhere, ()) == "http://models.example.com/v1"
    assert address_of("vllm", elsewhere, ("VLLM_BASE_URL",)) == "http://localhost:8000/v1"
    here = {"VLLM_BASE_URL": "http://127.0.0.1:9/v1"}
    assert address_of("vllm", here, ("VLLM_BASE_URL",)) == "http://127.0.0.1:9/v1"
    assert address_of("vllm", {"VLLM_BASE_URL": ""}, ()) == "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://localhost:1234/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://0.0.0.0:11434/v1", True),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
    ],
)
def test_addresses_of_this_machine(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_the_first_chat_model_is_chosen() -> None:
    silent = Server("lmstudio", "a", False)
    embeds = Server("ollama", "b", True, ("nomic-embed-text", "bge-m3"))
    talks = Server("vllm", "c", True, ("mxbai-rerank", "qwen3"))
    assert first_model([silent, embeds, talks]) == (talks, "qwen3")
    assert first_model([silent, embeds]) is None
    assert first_model([]) is None
