"""Programs as models, all the way: asked, called, journaled, resumed, replayed, served, refused."""

import json
import urllib.request
from pathlib import Path

import pytest

from rlm import RLM
from rlm.testing.fake_server import FakeServer
from tests.cli.conftest import Run
from tests.clients.programs import program
from tests.server.command import served
from tests.server.serving import server as served_at

ROOT = """
asked = read()
open(sys.argv[1], "a").write("root\\n")
if "SUB SAID" in asked:
    print("```repl\\nFINAL('answer: ' + said)\\n```")
else:
    call = "said = llm_query('Which colour? ' + context)"
    print(f"```repl\\n{call}\\nprint('SUB ' + 'SAID', said)\\n```")
"""
SUB = """
asked = read()
open(sys.argv[1], "a").write("sub\\n")
print("blue" if "Which colour? the sky" in asked else "none")
"""


class Programs:
    """A model for runs and one for calls, and how often each was started."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.root = f"command/{program(folder, 'root', ROOT)} {self.log}"
        self.sub = f"command/{program(folder, 'sub', SUB)} {self.log}"

    @property
    def started(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_a_run_with_command_models_is_journaled_resumed_and_replayed(
    run: Run, programs: Programs
) -> None:
    ask = ("ask", "What colour is it?", "-m", programs.root, "--sub-model", programs.sub)
    code, out, err = run(*ask, stdin=b"the sky")
    assert (code, out) == (0, "answer: blue\n"), err
    assert err.count("its window is assumed to be 32,000 tokens and its price is unknown.") == 2
    assert programs.started == ["root", "sub", "root"]
    assert run("resume", "last", "--quiet")[:2] == (0, "answer: blue\n")
    code, out, err = run("replay", "last")
    assert code == 0, out + err
    assert programs.started == ["root", "sub", "root"], "nothing was paid for twice"


def test_a_stopped_run_resumes_with_paid_replies(run: Run, programs: Programs) -> None:
    ask = ("ask", "What colour is it?", "-m", programs.root, "--sub-model", programs.sub)
    code, _, err = run(*ask, "--max-steps", "1", stdin=b"the sky")
    assert code == 3, err
    before = programs.started
    code, out, err = run("resume", "last", "--max-steps", "5")
    assert (code, out) == (0, "answer: blue\n"), err
    assert programs.started[: len(before)] == before
    assert programs.started.count("sub") == 1


def test_rows_of_a_batch_are_answered(run: Run, programs: Programs, tmp_path: Path) -> None:
    rows = [{"query": "What colour?", "context": "the sky", "id": n} for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    models = ("-m", programs.root, "--sub-model", programs.sub)
    code, _, err = run("batch", "rows.jsonl", *models, "--concurrency", "2", "--quiet")
    assert code == 0, err
    answers = (tmp_path / "rows.jsonl.answers.jsonl", tmp_path / "rows.answers.jsonl")
    path = next(each for each in answers if each.exists())
    lines = path.read_text().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == ["answer: blue"] * 3


def test_a_money_limit_needs_a_price(run: Run, programs: Programs) -> None:
    code, _, err = run("ask", "?", "-m", programs.root, "--budget-usd", "1", stdin=b"the sky")
    assert code == 1
    assert "is unknown: pass --price" in err
    assert programs.started == []


def test_a_cell_cannot_start_another_program(programs: Programs, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = f"command/{program(tmp_path, 'evil', f'open({str(ran)!r}, chr(119))')}"
    tries = f"try:\n    said = llm_query('hi', model={evil!r})\n"
    tries += "except Exception as error:\n    said = str(error)\nprint(said)"
    cells = iter([f"```repl\n{tries}\n```", "```repl\nFINAL(said)\n```"])
    with RLM(lambda prompt: next(cells), models=[programs.sub]) as one:
        answer = str(one.ask("?", "the sky", limits={"max_steps": 3}).answer)
    assert "is not allowed here" in answer
    assert not ran.exists()
    assert programs.started == []


async def test_a_client_of_the_server_cannot_name_a_program(
    programs: Programs, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    evil = f"command/{program(tmp_path, 'evil', f'open({str(ran)!r}, chr(119))')}"
    messages = [{"role": "user", "content": "hi"}]
    async with served_at(tmp_path) as client:
        for name in (evil, f"rlm/{evil}", "command/cat", "rlm/command/cat"):
            for path, body in (
                ("/v1/chat/completions", {"messages": messages}),
                ("/v1/responses", {"input": "hi"}),
            ):
                answer = await client.ask("POST", path, json={"model": name, **body})
                assert answer.status == 404, answer.text
    assert not ran.exists()


def test_the_operator_of_a_server_may_offer_a_program(tmp_path: Path) -> None:
    name = f"command/{program(tmp_path, 'hello', 'read(); print(chr(104) + chr(105))')}"
    with FakeServer(["hello"]) as model, served(tmp_path, model, "-m", name) as one:
        body = {"model": f"rlm/{name}", "messages": [{"role": "user", "content": "Hello"}]}
        request = urllib.request.Request(
            f"{one.base}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    assert answer["choices"][0]["message"]["content"] == "hi"
