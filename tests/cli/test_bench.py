"""`rlm bench` as a user types it, without a key."""

import hashlib
import json
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from rlm.testing.fake_server import Asked, FakeServer
from rlm.testing.fake_server.script import Answer
from tests.cli.conftest import Run
from tests.cli.running import command, environment, in_terminals

OFFLINE = ("-m", "offline/extractive")
OWN_TASK = '''
from rlm.bench import Dice, Sample, Task


class Codes(Task):
    """Which code a kettle has."""

    name = "codes"
    about = "find a code"
    scoring = "1 if the code is in the answer"

    def __init__(self, variant="", number=3):
        super().__init__(variant)
        self.number = number

    def generate(self, seed, size):
        dice = Dice(self.name, seed, size)
        codes = {f"kettle-{n}": dice.between(1000, 9999) for n in range(self.number)}
        lines = [f"The code of {name} is {code}.\\n" for name, code in codes.items()]
        return Sample("What is the code of kettle-1?", lambda: lines, codes["kettle-1"])

    def score(self, answer, gold):
        return float(str(gold) in answer)
'''


def test_list(run: Run) -> None:
    code, out, err = run("bench", "list")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert names == ["s-niah", "oolong", "oolong-pairs", "multihop", "codeqa", "graphwalks"]
    assert "F1 over unordered pairs" in out
    code, out, _ = run("bench", "list", "--json")
    assert json.loads(out)[0]["variants"] == ["single", "multi-key", "multi-value", "multi-query"]


def test_a_benchmark_of_the_offline_model_can_be_continued(run: Run, tmp_path: Path) -> None:
    arguments = ("bench", "run", "s-niah/single", *OFFLINE, "--size", "2k", "--out", "results")
    code, out, err = run(*arguments, "--n", "2", "--method", "rlm,plain")
    assert code == 0, err
    head, first, second, last = out.splitlines()
    assert head.split()[:5] == ["task", "size", "method", "n", "hits"]
    assert first.split()[:6] == ["s-niah/single", "2k", "rlm", "2", "2", "100.0"]
    assert second.split()[:6] == ["s-niah/single", "2k", "plain", "2", "2", "100.0"]
    assert last == "results/report.md"
    assert "[4/4] s-niah/single 2k " in err
    assert err.splitlines()[0].startswith("4 runs planned, about 12 requests to models.")
    assert err.count(": score 100, $0.0000, ") == 4
    report = (tmp_path / "results" / "report.md").read_text("utf-8")
    assert "| s-niah/single | offline/extractive | rlm | 2k | 2 | 100.0 | 34–100 |" in report
    code, _, err = run(*arguments, "--n", "3", "--method", "rlm,plain")
    assert code == 0
    assert err.splitlines()[0] == "4 of 6 results found in results."
    assert err.splitlines()[1].startswith("2 runs planned, about 6 requests to models.")
    assert "[2/2] " in err
    code, _, err = run(*arguments, "--n", "3", "--max-steps", "7")
    assert code == 1
    assert 'contains results with limits {}, but this run has {"max_steps":7}' in err
    code, out, err = run("bench", "report", "results", "--out", "elsewhere")
    assert (code, out, err) == (0, "elsewhere/report.md\n", "")
    assert (tmp_path / "elsewhere" / "s-niah-score.svg").exists()


def test_a_quick_try(run: Run) -> None:
    arguments = ("bench", "run", "s-niah/single", *OFFLINE, "--size", "2k", "--quick")
    code, _, err = run(*arguments, "--method", "plain")
    assert code == 0, err
    assert err.splitlines()[0].startswith("2 runs planned, about 2 requests to models.")
    code, out, err = run(*arguments, "--n", "3")
    assert (code, out) == (2, "")
    assert "--quick and --n cannot be combined" in err


def test_samples_can_be_generated_for_other_engines(run: Run, tmp_path: Path) -> None:
    said = ("bench", "generate", "graphwalks", "s-niah/single,depth=50", "--size", "2k,4k")
    code, out, err = run(*said, "--n", "2", "--seed", "5", "--out", "one")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == "12 samples in one"
    assert run(*said, "--n", "2", "--seed", "5", "--out", "two", "--quiet") == (0, "", "")
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")}
    assert len(files) == 13
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    for line in (tmp_path / "one" / "samples.jsonl").read_text("utf-8").splitlines():
        sample = json.loads(line)
        context = (tmp_path / "one" / sample["context_file"]).read_bytes()
        assert hashlib.sha256(context).hexdigest() == sample["context_sha256"]
        assert len(context) == sample["context_chars"] <= 4 * sample["size"]
        assert sample["seed"] in {5, 6}
        assert sample["query"]
        assert sample["answer"]
    code, _, err = run(*said, "--out", "one")
    assert code == 1
    assert "samples.jsonl already exists" in err


def test_a_custom_task_can_be_loaded_from_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(OWN_TASK)
    said = ("tasks.py:Codes,number=5", *OFFLINE, "--n", "1", "--out", "own")
    code, _, err = run("bench", "run", *said)
    assert code == 0, err
    assert "[1/1] codes,number=5 8k rlm #0: score 100" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "nothing"), 1, "unknown task 'nothing'"),
        (("run", "s-niah", "--method", "magic"), 2, "'magic' is not one of rlm, plain, mapreduce"),
        (("run", "s-niah", "--method", "operators"), 2, "operators can't answer s-niah/single"),
        (("run", "s-niah", "--method", ","), 2, "name at least one method"),
        (("run", "s-niah", "--size", "many"), 2, "'many' is not a size in tokens"),
        (("run", "codeqa", "--size", "2k"), 2, "codeqa/calls needs a size of at least 4k tokens"),
        (("run",), 2, "Missing argument 'TASK...'"),
        (("report", "nowhere"), 1, "nowhere has no settings.json"),
        (("generate", "s-niah"), 2, "Missing option '--out'"),
    ],
)
def test_mistakes(run: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    extra = OFFLINE if arguments[0] == "run" else ()
    got, out, err = run("bench", *arguments, *extra)
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_money_needs_a_price(run: Run) -> None:
    said = ("bench", "run", "s-niah/single", "-m", "openai-compatible/m", "--budget-usd", "1")
    code, _, err = run(*said, "--n", "1", LLM_BASE_URL="http://127.0.0.1:9/v1", LLM_API_KEY="x")
    assert code == 1
    assert "--budget-usd is set, but a price is unknown" in err
    assert "pass --price IN,OUT" in err


def test_a_killed_trial_resumes_and_pays_only_for_the_rest(tmp_path: Path) -> None:
    """Each trial has two steps and a call; the server holds back replies from the sixth on."""
    out, holds_back = tmp_path / "out", True

    def reply(asked: Asked) -> str | Answer:
        if holds_back and one.count > 5:
            return Answer(behaviour="never")
        if "LOOKED" in asked.text:
            return "```repl\nFINAL(context[:9])\n```"
        return "```repl\nprint('LOOK' + 'ED', llm_query('a part: ' + context[:99]))\n```"

    with FakeServer(rules=[("", reply)]) as one:
        variables = {"LLM_BASE_URL": one.openai_url, "LLM_API_KEY": "k"}
        said = command(
            *("bench", "run", "s-niah/single", "-m", "openai-compatible/m", "--size", "2k"),
            *("--n", "3", "--concurrency", "1", "--out", str(out)),
        )
        process = subprocess.Popen(said, env=environment(variables), stderr=subprocess.PIPE)
        while one.count < 6:
            time.sleep(0.02)
            assert process.poll() is None, process.stderr
        process.kill()
        process.communicate(timeout=60)
        assert len((out / "results.jsonl").read_bytes().splitlines()) == 1
        assert len(list((out / "journal" / "runs").glob("*.sqlite"))) == 1
        holds_back = False
        done = subprocess.run(said, env=environment(variables), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        asked = Counter(each.asked.text for each in one.requests if each.asked)
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 1, 2]  # one line a trial
    assert [(line["requests"], line["calls"], line["steps"]) for line in lines] == [(3, 1, 2)] * 3
    assert sorted(asked.values()) == [*[1] * 8, 2]  # only requests in flight are repeated
    assert not (out / "journal").exists()


@pytest.mark.heavy
def test_bars_in_a_terminal(tmp_path: Path) -> None:
    seen = in_terminals(
        *("bench", "run", "s-niah", *OFFLINE, "--size", "2k", "--n", "2"),
        *("--out", str(tmp_path / "out")),
        TERM="xterm",
    )
    assert seen.code == 0
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.stderr.decode())
    for words in ("s-niah/single", "2/2", "score 100", "8/8", "$0.0000"):
        assert words in told


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_benchmark_leaves_complete_lines_and_can_be_continued(
    tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "out"
    said = command(
        *("bench", "run", "s-niah/single", *OFFLINE, "--size", "20k", "--n", "40"),
        *("--out", str(out), "--concurrency", "2"),
    )
    process = subprocess.Popen(said, env=environment({}), stderr=subprocess.PIPE)
    path = out / "results.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < 3:
        time.sleep(0.02)
        assert process.poll() is None, process.stderr
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-how if how == signal.SIGKILL else 130), err
    if how == signal.SIGINT:
        assert b"run the same command again to continue" in err
        assert not (out / ".contexts").exists()
    before = path.read_bytes()
    scored = {line["seed"] for line in map(json.loads, before.splitlines()) if line["score"]}
    assert 3 <= len(scored) < 40
    done = subprocess.run(said, env=environment({}), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    after = path.read_bytes()
    assert after.startswith(before)
    lines = [line for line in map(json.loads, after.splitlines()) if line["status"] == "scored"]
    assert sorted(line["seed"] for line in lines) == list(range(40))  # each exactly once
    assert not (out / ".contexts").exists()
