"""Keys, passwords and headers appear in no error, log or journal, in whatever form they return."""

from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rlm import RLM
from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ConfigError, ModelError
from rlm.logger import RLMLogger
from rlm.testing.fake_server import FakeServer

KEY = 'sk-"very+secret/key=='
HEADER = "header-value-that-is-secret"
MODEL = "openai/gpt-4o"
CELL = "```repl\nFINAL(1)\n```"


def engine(url: str, key: str | None, **more: Any) -> RLM:
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key or ""}
    return RLM(MODEL, variables=variables, **more)


def failure(one: RLM, **more: Any) -> str:
    with pytest.raises(ModelError) as caught:
        one.ask("q", "c", **more)
    one.close()
    return str(caught.value)


@pytest.mark.parametrize(
    "form",
    [KEY, quote(KEY, safe=""), KEY.replace('"', '\\"'), b64encode(KEY.encode()).decode()],
)
def test_a_key_is_hidden_in_url_json_and_base64_encoding(form: str) -> None:
    with FakeServer([{"status": 401, "error": f"bad key <{form}>"}]) as server:
        told = failure(engine(server.openai_url, KEY))
    assert "bad key <[secret]>" in told


def test_secrets_in_a_base_url_are_hidden() -> None:
    basic = b64encode(b"user:pass word").decode()
    token = "a-long-token-as-user"
    for before, said in (("user:pass%20word@", ("pass word", basic)), (f"{token}@", (token,))):
        with FakeServer([{"status": 403, "error": f"not {' '.join(said)} here"}]) as server:
            url = server.openai_url.replace("http://", f"http://{before}")
            client = OpenAICompatClient(url, None)
            told = failure(RLM(MODEL, clients={"openai": client}))
        assert f"not {' '.join('[secret]' for _ in said)} here" in told


@pytest.mark.parametrize("name", ["extra_headers", "extra_query"])
def test_headers_and_query_values_of_one_call_are_hidden(name: str) -> None:
    with FakeServer([{"status": 400, "error": f"what is {HEADER}?"}]) as server:
        told = failure(engine(server.openai_url, "none"), sampling={name: {"x-key": HEADER}})
    assert "what is [secret]?" in told


@pytest.mark.parametrize("per_call", [True, False])
def test_sampling_is_recorded_without_possible_secrets(tmp_path: Path, per_call: bool) -> None:
    sampling = {
        "extra_headers": {"x-anything": HEADER},
        "extra_query": {"q": HEADER},
        "extra_body": {"provider": {"api_key": HEADER, "order": ["kept-in-records"]}},
        "max_tokens": 777,
    }
    given: dict[str, Any] = {"sampling": sampling, "sub_sampling": sampling}
    logger = RLMLogger(log_dir=tmp_path / "logs")
    with FakeServer([CELL]) as server:
        at_first, at_call = ({}, given) if per_call else (given, {})
        one = engine(
            server.openai_url, "none", logger=logger, journal=tmp_path / "journal", **at_first
        )
        assert one.ask("q", "c", **at_call).answer == "1"
        one.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert HEADER.encode() not in written
    assert b"kept-in-records" in written
    assert b"777" in written


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://localhost:99999/v1",
        "http://localhost:x/v1",
        "http://\ud800/v1",
        "http://a b/v1",
        "http://\r\nlocalhost/v1",
        "file:///etc/passwd",
        "http://",
        "//localhost/v1",
    ],
)
def test_an_invalid_base_url_is_a_config_error(url: str) -> None:
    names = {"foundry": "ANTHROPIC_FOUNDRY_BASE_URL", "azure": "AZURE_OPENAI_ENDPOINT"}
    names |= {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
    keys = ("ANTHROPIC_FOUNDRY_API_KEY", "AZURE_OPENAI_API_KEY", "OPENAI_API_KEY")
    variables = dict.fromkeys((*keys, "ANTHROPIC_API_KEY"), "none")
    for provider, name in names.items():
        if "://" not in url and provider == "foundry":
            continue
        with pytest.raises(ConfigError, match=f"^{name} must start with http://"):
            RLM(f"{provider}/some", variables={**variables, name: url})
    options = {"model_name": "some", "base_url": url}
    with pytest.raises(ConfigError, match="the base URL must start with http://"):
        RLM("vllm", options)
