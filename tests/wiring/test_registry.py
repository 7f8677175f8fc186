"""Names → clients: which address, which key, and never a key where it does not belong."""

import pytest

from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Request
from rlm.wiring.registry import make_client, split_model

KEY = "sk-secret"


def client(model: str, **variables: str) -> OpenAICompatClient:
    made, _ = make_client(model, variables)
    assert isinstance(made, OpenAICompatClient)
    return made


@pytest.mark.parametrize(
    ("model", "variables", "base_url"),
    [
        ("openai/gpt-5", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1"),
        ("gpt-5-nano", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1"),
        ("o3-mini", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1"),
        (
            "openai/gpt-5",
            {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://localhost:9/v1"},
            "http://localhost:9/v1",
        ),
        ("ollama/llama3", {}, "http://localhost:11434/v1"),
        ("ollama/llama3", {"OLLAMA_HOST": "127.0.0.1:7"}, "http://127.0.0.1:7/v1"),
        ("vllm/m", {"VLLM_BASE_URL": "http://localhost:8/v1"}, "http://localhost:8/v1"),
        ("openai-compatible/m", {"LLM_BASE_URL": "http://localhost:6/v1"}, "http://localhost:6/v1"),
    ],
)
def test_model_names_lead_to_the_providers_addresses(
    model: str, variables: dict[str, str], base_url: str
) -> None:
    assert client(model, **variables)._endpoint.base_url == base_url


def test_the_first_slash_separates_the_provider() -> None:
    assert split_model("openrouter/meta/llama-3") == ("openrouter", "meta/llama-3")


def test_keys_are_hidden_in_reprs() -> None:
    made = client("openai/gpt-5", OPENAI_API_KEY=KEY)
    assert KEY not in repr(made) + repr(vars(made))
    assert made._endpoint._headers["Authorization"] == f"Bearer {KEY}"


def test_a_local_server_gets_no_key_of_another_provider() -> None:
    for model in ("ollama/llama3", "vllm/m"):
        made = client(model, OPENAI_API_KEY=KEY)
        assert "Authorization" not in made._endpoint._headers


def test_a_local_server_gets_the_key_that_was_set_for_it() -> None:
    for model, variable in (("ollama/llama3", "OLLAMA_API_KEY"), ("vllm/m", "VLLM_API_KEY")):
        made = client(model, **{variable: KEY})
        assert made._endpoint._headers["Authorization"] == f"Bearer {KEY}"


def test_an_empty_model_name_is_refused() -> None:
    with pytest.raises(ConfigError):
        make_client("openai/", {"OPENAI_API_KEY": KEY})


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("model.gguf", "gguf"),
        ("./a b/Model.GGUF", "gguf"),
        ("/models/x.gguf", "gguf"),
        ("~/x.gguf", "gguf"),
        ("models/x.gguf", "gguf"),
        ("gguf:/x", "gguf"),
        ("gguf//models/x.gguf", "gguf"),
        ("lmstudio/x.gguf", "lmstudio"),
        ("google/x.gguf", "gemini"),
        ("command/run x.gguf", "command"),
    ],
)
def test_a_gguf_file_is_distinguished_from_a_providers_model(name: str, provider: str) -> None:
    assert split_model(name)[0] == provider
    if provider == "gguf":
        assert split_model(name)[1].lower().endswith((".gguf", "/x"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("opnai/gpt-5", r"'opnai'; did you mean openai/gpt-5\?$"),
        ("antropic/claude", "did you mean anthropic/claude"),
        ("comand/claude -p", "did you mean command/claude -p"),
        ("grokk/x", "did you mean grok/x"),
        ("moon/x", "there is no provider 'moon'; providers: "),
        ("openai/", "openai/ does not name a model: write openai/MODEL"),
        (
            "offline/foo",
            "there is no model offline/foo: the only offline one is ",
        ),
    ],
)
def test_a_mistyped_provider_gets_a_suggestion(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_client(name, {})


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-5", "OPENAI_BASE_URL"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_BASE_URL"),
        ("openai-compatible/m", "LLM_BASE_URL"),
    ],
)
async def test_a_wrong_address_names_the_variable_it_comes_from(model: str, variable: str) -> None:
    keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    with pytest.raises(ConfigError, match=f"^{variable} must start with http://"):
        make_client(model, {**keys, variable: "localhost:1/v1"})
    client, name = make_client(model, {**keys, variable: "http://127.0.0.1:1/v1"})
    request = Request(model=name, messages=(Message("user", "hello"),), max_output_tokens=10)
    with pytest.raises(ModelError, match=f"the address in {variable}; is the server running"):
        await client.complete(request, timeout_seconds=5)
    await client.close()
    given, _ = make_client(model, {**keys, variable: "nonsense"}, base_url="http://127.0.0.1:1/v1")
    with pytest.raises(ModelError) as caught:
        await given.complete(request, timeout_seconds=5)
    assert variable not in str(caught.value)
    await given.close()
