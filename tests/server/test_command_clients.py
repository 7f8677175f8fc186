"""`llm` and `curl`, as people type them, against `rlm serve`."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from rlm.testing.fake_server import Answer, FakeServer
from tests.cli.running import environment
from tests.server.command import MODEL, Served, served
from tests.server.serving import LARGE

pytestmark = pytest.mark.heavy

TOKEN = "token-of-the-tests"
RULES = [
    Answer(when="how long is it", reply="```repl\nFINAL(len(context))\n```"),
    Answer(when="my name is Ada", reply="Hello Ada."),
    Answer(when="", reply="hello from the model"),
]


@pytest.fixture(scope="module")
def model() -> Generator[FakeServer, None, None]:
    with FakeServer(RULES) as fake:
        yield fake


@pytest.fixture(scope="module")
def one(
    model: FakeServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("server")
    with served(folder, model, RLM_SERVE_TOKEN=TOKEN) as server:
        yield server


# -- llm ------------------------------------------------------------------------------------------


class Llm:
    """The command `llm`, set up by a file as its documentation says."""

    def __init__(self, folder: Path, base: str) -> None:
        pytest.importorskip("llm", reason="llm is not installed; see make test-server-clients")
        self._path = Path(sys.executable).with_name("llm")
        self._folder = folder
        (folder / "extra-openai-models.yaml").write_text(
            f"- model_id: mine\n  model_name: {MODEL}\n  api_base: {base}/v1\n"
            "  api_key_name: mine\n  supports_schema: true\n"
        )
        (folder / "keys.json").write_text(json.dumps({"mine": TOKEN}))

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [str(self._path), *arguments],
            input=stdin,
            env={**environment({}), "LLM_USER_PATH": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def llm(one: Served, tmp_path: Path) -> Llm:
    return Llm(tmp_path, one.base)


def test_llm_prints_an_answer(llm: Llm) -> None:
    assert llm("-m", "mine", "--no-stream", "hi") == "hello from the model"


def test_llm_streams(llm: Llm) -> None:
    assert llm("-m", "mine", "hi") == "hello from the model"


def test_llm_sends_piped_text_as_the_context(llm: Llm) -> None:
    answer = llm("-m", "mine", "how long is it?", stdin=LARGE)
    assert int(answer) >= len(LARGE)


def test_llm_continues_a_conversation(llm: Llm, model: FakeServer) -> None:
    assert llm("-m", "mine", "my name is Ada") == "Hello Ada."
    llm("-c", "what is my name?")
    asked = model.requests[-1].asked
    assert asked is not None
    assert [message["content"] for message in asked.body["messages"]] == [
        "my name is Ada",
        "Hello Ada.",
        "what is my name?",
    ]


def test_llm_keeps_a_system_prompt(llm: Llm, model: FakeServer) -> None:
    llm("-m", "mine", "-s", "answer in verse", "hi")
    asked = model.requests[-1].asked
    assert asked is not None
    assert asked.body["messages"][0] == {
        "role": "system",
        "content": "answer in verse",
    }


# -- curl -----------------------------------------------------------------------------------------


def curl(*arguments: str) -> str:
    path = shutil.which("curl")
    if path is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        [path, "-sS", *arguments],
        env={**os.environ, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _post(base: str, body: object, *more: str) -> str:
    return curl(
        *(*more, f"{base}/v1/chat/completions", "-H", f"Authorization: Bearer {TOKEN}"),
        *("-H", "Content-Type: application/json", "-d", json.dumps(body)),
    )


def test_curl_gets_an_answer(one: Served) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    assert json.loads(_post(one.base, body))["choices"][0]["message"]["content"] == (
        "hello from the model"
    )


def test_curl_streams(one: Served) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "how long is it?"}],
        "stream": True,
        "rlm": {"context": "12345"},
    }
    lines = [line for line in _post(one.base, body, "-N").splitlines() if line]
    assert all(line.startswith(("data: ", ":")) for line in lines)
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines[:-1] if line[0] == "d"]
    assert "".join(delta.get("content", "") for delta in deltas) == "5"


def test_curl_uploads_a_file_and_watches_a_run(one: Served, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x" * 1234)
    key = ("-H", f"Authorization: Bearer {TOKEN}")
    form = ("-F", "purpose=user_data", "-F", f"file=@{path}")
    kept = json.loads(curl(*key, *form, f"{one.base}/v1/files"))
    body = {"model": MODEL, "query": "how long is it?", "file_ids": [kept["id"]]}
    asked = ("-H", "Content-Type: application/json", "-d", json.dumps(body))
    run = json.loads(curl(*key, *asked, f"{one.base}/v1/runs"))
    events = curl(*key, "-N", f"{one.base}/v1/runs/{run['id']}/events")
    assert "event: end" in events
    assert json.loads(curl(*key, f"{one.base}/v1/runs/{run['id']}"))["answer"] == "1234"


def test_curl_sees_the_headers_of_errors(one: Served) -> None:
    said = curl("-i", f"{one.base}/v1/models")
    assert said.startswith("HTTP/1.1 401")
    assert "www-authenticate: Bearer" in said
    assert json.loads(said.splitlines()[-1])["error"]["code"] == "invalid_api_key"
