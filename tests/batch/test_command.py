"""`rlm batch` as a user runs it, and what remains when it is killed."""

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlm.cli import _batching
from rlm.cli.batch import batch
from rlm.testing.fake_server import Asked, FakeServer
from rlm.testing.fake_server.script import Answer
from tests.cli.running import command, environment, in_terminals, rlm
from tests.cli.scripts import submits
from tests.endpoint import endpoint

ROWS = 25
OFFLINE = ("-m", "offline/extractive")


def write_rows(folder: Path, count: int = ROWS) -> Path:
    tasks = folder / "tasks.jsonl"
    lines = [{"query": f"row {n} ?", "context": f"it is {n}", "id": n} for n in range(count)]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tasks


def reply(asked: Asked) -> str:
    """Answer each row with two steps and a call: look, ask about a part, submit."""
    if "LOOKED" in asked.text:
        return "```repl\nFINAL(context)\n```"
    return "```repl\nprint('LOOK' + 'ED', llm_query('a part: ' + context))\n```"


def server() -> FakeServer:
    return FakeServer(rules=[("", reply)])


def variables(server: FakeServer) -> dict[str, Any]:
    url = server.openai_url
    return {"LLM_BASE_URL": url, "LLM_API_KEY": "k", "RLM_MODEL": "openai-compatible/m"}


def asked_of(server: FakeServer) -> Counter[str]:
    return Counter(each.asked.text for each in server.requests if each.asked)


def test_rows_become_answers(tmp_path: Path) -> None:
    context = "Nothing here.\nThe access code for silver-dolphin is 4821.\n"
    row = {"query": "What is the access code for silver-dolphin?", "context_file": "log.txt"}
    (tmp_path / "log.txt").write_text(context)
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(row)}\n" * 3)
    done = rlm("batch", "tasks.jsonl", *OFFLINE, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "tasks.answers.jsonl\n")
    assert "No language model is configured" in done.stderr
    assert re.search(r"3/3 rows · .* tokens", done.stderr)
    lines = (tmp_path / "tasks.answers.jsonl").read_text().splitlines()
    assert all("4821" in json.loads(line)["answer"] for line in lines)
    assert len(lines) == 3
    again = rlm("batch", "tasks.jsonl", *OFFLINE, "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (4, "")
    assert (tmp_path / "tasks.answers.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tasks.jsonl").write_text(text)
    done = rlm("batch", "tasks.jsonl", *OFFLINE, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: tasks.jsonl has no rows: write one JSON object on each line\n"
    assert [each.name for each in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.parametrize(("concurrency", "calls"), [("8", 64), ("300", 300)])
def test_concurrency_follows_from_the_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: str, calls: int
) -> None:
    given: list[_batching.BatchOptions] = []

    def answer_all(tasks: Path, options: _batching.BatchOptions) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr(_batching, "answer_all", answer_all)
    words = [str(write_rows(tmp_path)), *OFFLINE, "--concurrency", concurrency]
    done = CliRunner().invoke(batch, words)
    assert done.exit_code == 0, done.output
    (options,) = given
    assert options.of_one_row().limits().max_concurrent_calls == calls


def test_invalid_rows_are_reported_and_the_rest_answered(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, 2)
    tasks.write_text(tasks.read_text() + "nonsense\n" * 7)
    done = rlm("batch", str(tasks), *OFFLINE, "--skip-bad-rows")
    assert done.returncode == 1
    assert (
        "7 rows failed; correct those that are wrong, and run the same command again" in done.stderr
    )
    assert "\nline 3: JSON is malformed" in done.stderr
    assert "and 2 more" in done.stderr


@pytest.mark.heavy
def test_every_row_is_checked_before_anything_is_sent(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    bad = ["nonsense", '{"qery": 1}', '{"query": "a", "context_file": ["tasks.jsonl", "gone"]}']
    tasks.write_text("\n".join(['{"query": "Why?"}', "", *bad, *["[]"] * 9]))
    model = ("-m", "openai-compatible/m")
    with endpoint(submits("FINAL(7)")) as server:
        done = rlm("batch", str(tasks), *model, "--quiet", LLM_BASE_URL=server.url)
        assert (done.returncode, done.stdout, server.bodies) == (1, "", [])
        lines = done.stderr.splitlines()
        assert lines[0].startswith("Error: 12 of 13 rows in ")
        assert [line.partition(":")[0] for line in lines[1:11]] == [
            f"line {n}" for n in range(3, 13)
        ]
        assert lines[3] == "line 5: context_file gone: No such file or directory"
        assert lines[11:] == [
            "… and 2 more",
            "Correct them, or pass --skip-bad-rows to answer the others.",
        ]
        tasks.write_text('{"query": "Why?"}\n')
        assert rlm("batch", str(tasks), *model, "--quiet", LLM_BASE_URL=server.url).returncode == 0
    (answer,) = tasks.with_name("tasks.answers.jsonl").read_text().splitlines()
    assert json.loads(answer).items() >= {"row": 0, "line": 1, "answer": "7"}.items()


def test_a_missing_file_is_reported_with_the_most_similar_one(tmp_path: Path) -> None:
    write_rows(tmp_path, 1)
    done = rlm("batch", "taks.jsonl", *OFFLINE, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: taks.jsonl: No such file or directory; did you mean tasks.jsonl?\n"
    )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--on", "spark"], 2, "give ray or ray://ADDRESS"),
        (["--on", "ray", "--environment", "docker"], 2, "cannot be combined"),
        (["--budget-usd", "1", "-m", "openai-compatible/m"], 1, "is unknown: pass --price"),
        (["--concurrency", "0"], 2, "0 is not in the range"),
        (["-o", "nowhere/out.jsonl", *OFFLINE], 4, ""),
        (["-o", ".", *OFFLINE], 1, ". is a folder: name a file for the answers with --out"),
    ],
)
def test_wrong_options_are_reported(
    tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    tasks = write_rows(tmp_path, 1)
    done = rlm("batch", str(tasks), *options, cwd=tmp_path, LLM_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, 1)
    assert rlm("batch", str(tasks), *OFFLINE).returncode == 4
    done = rlm("batch", str(tasks), *OFFLINE, "--max-depth", "2")
    assert done.returncode == 1
    assert "max_depth was None" in done.stderr
    assert rlm("batch", str(tasks), *OFFLINE, "--max-depth", "2", "--overwrite").returncode == 4


def test_a_budget_stops_a_batch_and_a_larger_one_continues_it(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, 10)
    with server() as one:
        done = rlm("batch", str(tasks), "--max-tokens", "16000", **variables(one))
        assert done.returncode == 3, done.stderr
        assert "Stopped: the budget of the batch, 16,000 tokens, does not allow" in done.stderr
        assert "Run the same command again with a larger --max-tokens to continue." in done.stderr
        done = rlm("batch", str(tasks), "--max-tokens", "300000", **variables(one))
        assert done.returncode == 0, done.stderr
        asked = asked_of(one)
    assert set(asked.values()) == {1}
    # Every row makes three requests. One more asks for a final answer when a row is stopped: each
    # once beside the others, and one of them again, alone.
    assert 30 < len(asked) <= 30 + 10 + 1


@pytest.mark.heavy
def test_progress_is_drawn_in_a_terminal(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, 5)
    seen = in_terminals("batch", str(tasks), *OFFLINE)
    assert seen.code == 4
    assert seen.stdout.split() == [str(tmp_path / "tasks.answers.jsonl").encode()]
    assert "5/5 rows" in seen.stderr.decode()
    assert "━" in seen.stderr.decode()


def test_after_ctrl_c_the_same_command_continues(tmp_path: Path) -> None:
    tasks, holds_back = write_rows(tmp_path), True

    def held_back(asked: Asked) -> str | Answer:
        return Answer(behaviour="never") if holds_back and one.count > 20 else reply(asked)

    with FakeServer(rules=[("", held_back)]) as one:
        process = started(tasks, one)
        while one.count < 26:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        holds_back = False
        assert process.returncode == 130, err
        assert "rows answered. Run the same command again to continue." in err
        assert rlm("batch", str(tasks), **variables(one)).returncode == 0
    assert_whole(tasks)


def started(tasks: Path, server: FakeServer) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command("batch", str(tasks), "--concurrency", "8"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(variables(server)),
        text=True,
    )


def assert_whole(tasks: Path, count: int = ROWS) -> None:
    text = tasks.with_name("tasks.answers.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["row"], line["answer"]) for line in lines] == [
        (number, f"it is {number}") for number in range(count)
    ]


def kill_often(folder: Path, seed: int, kills: int, count: int) -> None:
    """Every row exactly once, and no journaled request is sent again."""
    dice, tasks = random.Random(seed), write_rows(folder, count)
    lost = 0
    with server() as one:
        for _ in range(kills):
            process = started(tasks, one)
            goal = one.count + dice.randrange(1, count)
            while process.poll() is None and one.count < goal:
                time.sleep(0.005)
            process.kill()
            process.communicate()
            lost += 8  # at most this many requests were in flight
        assert rlm("batch", str(tasks), **variables(one)).returncode == 0
        asked = asked_of(one)
    assert_whole(tasks, count)
    assert len(asked) == 3 * count
    assert asked.total() - len(asked) <= lost


@pytest.mark.heavy
def test_killed_three_times_a_batch_ends_with_every_row_once(tmp_path: Path) -> None:
    kill_often(tmp_path, 5, 3, ROWS)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_killed_ten_times_a_batch_ends_with_every_row_once(tmp_path: Path, seed: int) -> None:
    kill_often(tmp_path, seed, 10, 150)
