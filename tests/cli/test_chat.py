"""`rlm chat`, in a real terminal and through pipes."""

import json
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.cli._chat_input import message
from tests.cli.conftest import Run
from tests.cli.running import CONTROLS, QUESTION, TEXT, one_clear_line, rlm
from tests.cli.scripts import AS_CODE, submits
from tests.cli.talking import PROMPT, talking
from tests.endpoint import Answer, endpoint, texts

MODEL = ("-m", "openai-compatible/m")
FOUND = "The access code for silver-dolphin is 4821."


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(TEXT)
    return path


def by_query(**cells: str) -> Answer:
    """Return a script that gives a cell for each query, which is one word."""

    def answer(body: dict[str, Any]) -> str:
        first = str(body["messages"][1]["content"]).splitlines()[0]
        return f"```repl\n{cells[first.removeprefix('Query: ')]}\n```"

    return answer


# -- pipes ----------------------------------------------------------------------------------------


def test_each_line_of_stdin_is_a_turn(notes: Path, state: Path) -> None:
    script = by_query(one="n = len(context)\nFINAL(n)", two="FINAL([n, len(history)])")
    with endpoint(script) as server:
        done = rlm(
            *("chat", str(notes), *MODEL),
            stdin="one\n\ntwo\n",
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
    assert (done.returncode, done.stdout) == (0, f"{len(TEXT)}\n[{len(TEXT)}, 1]\n")
    assert done.stderr.endswith("The chat is saved; continue with: rlm chat --continue\n")
    kept = list((state / "chats").iterdir())
    assert [stat.S_IMODE(each.stat().st_mode) for each in kept] == [0o600]
    assert stat.S_IMODE((state / "chats").stat().st_mode) == 0o700


def test_a_chat_continues_in_another_process(notes: Path, state: Path) -> None:
    cells = by_query(one="n = 41\nFINAL(n)", two="FINAL(n + 1)", three="FINAL(len(history))")
    where: dict[str, Any] = {"RLM_STATE_DIR": str(state)}
    with endpoint(cells) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, **where}
        rlm("chat", str(notes), *MODEL, stdin="one\n", **known)
        again = rlm("chat", "--continue", "--json", *MODEL, stdin="two\n", **known)
        listed = json.loads(rlm("chat", "--list", "--json", **where).stdout)
        named = rlm("chat", "--load", listed[0]["chat"], *MODEL, stdin="three\n", **known)
    assert json.loads(again.stdout)["answer"] == "42"
    assert (json.loads(again.stdout)["turn"], json.loads(again.stdout)["query"]) == (2, "two")
    assert [(each["turns"], each["query"]) for each in listed] == [(2, "one")]
    assert named.stdout == "2\n"
    assert len(json.loads(rlm("runs", "--json", **where).stdout)) == 3


@pytest.mark.heavy
def test_a_chat_can_be_stored_in_a_given_file(notes: Path, state: Path) -> None:
    path = notes.with_name("own.rlm")
    where: dict[str, Any] = {"RLM_STATE_DIR": str(state)}
    with endpoint(by_query(one="n = 1\nFINAL(n)", two="FINAL(n)")) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, **where}
        first = rlm("chat", str(notes), "--save", str(path), *MODEL, stdin="one\n", **known)
        second = rlm("chat", "--load", str(path), *MODEL, stdin="two\n", **known)
    assert f"continue with: rlm chat --load {path}" in first.stderr
    assert (second.returncode, second.stdout) == (0, "1\n")
    assert not (state / "chats").exists()


def test_without_a_journal_no_chat_is_stored(notes: Path, state: Path) -> None:
    done = rlm("chat", str(notes), "--no-journal", stdin=QUESTION, RLM_STATE_DIR=str(state))
    assert done.returncode == 4
    assert f"   {FOUND}\n" in done.stdout
    assert not state.exists()


def test_exit_codes_are_those_of_ask(notes: Path, state: Path) -> None:
    where: dict[str, Any] = {"RLM_STATE_DIR": str(state)}
    with endpoint(submits("print(1)")) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, **where}
        limited = rlm(*("chat", str(notes), *MODEL, "--max-steps", "1"), stdin="a\nb\n", **known)
        used_up = rlm(*("chat", str(notes), *MODEL, "--max-tokens", "100"), stdin="a\nb\n", **known)
    assert limited.returncode == 3
    assert "Raise --max-steps to allow more." in limited.stderr  # a turn can't be continued
    assert used_up.returncode == 3


@pytest.mark.heavy
def test_an_error_ends_a_piped_chat(notes: Path, state: Path) -> None:
    with endpoint(submits("raise ValueError('broken')")) as server:
        done = rlm(
            *("chat", str(notes), *MODEL),
            stdin="first\nsecond\n",
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
        asked = {str(body["messages"][1]["content"]).splitlines()[0] for body in server.bodies}
    assert done.returncode == 1
    assert asked == {"Query: first"}


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--save=gone/x.rlm", "the chat can't be saved to gone/x.rlm: gone: No such file"),
        ("--save=notes.txt/x.rlm", "notes.txt: Not a directory"),
        ("--save=.", ". is a folder; name a file to save the chat to"),
    ],
)
def test_what_can_not_be_saved_is_not_asked(
    notes: Path, state: Path, option: str, told: str
) -> None:
    with endpoint(submits("FINAL('paid for')")) as server:
        done = rlm(
            *("chat", notes.name, *MODEL, option),
            stdin="first\n",
            cwd=notes.parent,
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
    assert (done.returncode, done.stdout, server.bodies) == (1, "", [])
    assert told in one_clear_line(done.stderr)


def test_a_missing_or_invalid_chat_is_reported(run: Run) -> None:
    assert run("chat", "--load", "nothing", stdin=b"a\n")[0] == 1
    assert run("chat", "-", stdin=b"a\n")[0] == 2
    assert run("chat", "--load", "x", "--continue")[0] == 2
    assert run("chat", "/no/such/file", stdin=b"a\n")[0] == 1
    assert run("chat", "-m", "nobody/x", stdin=b"a\n")[0] == 1
    code, out, err = run("chat", "--continue")
    assert (code, out) == (1, "")
    assert "there is no chat to continue" in err
    assert "No chats yet" in run("chat", "--list")[2]


@pytest.mark.heavy
def test_an_answer_is_exact_in_a_pipe_and_harmless_in_json(notes: Path, state: Path) -> None:
    with endpoint(submits(f"FINAL({AS_CODE})")) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        exact = rlm("chat", str(notes), *MODEL, "--quiet", stdin="q\n", **known)
        as_json = rlm("chat", str(notes), *MODEL, "--quiet", "--json", stdin="q\n", **known)
    assert exact.stdout.startswith("\x1b]0;pwned\x07")
    assert CONTROLS.search(as_json.stdout.encode()) is None
    assert exact.stderr == as_json.stderr == ""


@pytest.mark.heavy
def test_commands_work_in_a_pipe_too(notes: Path, state: Path) -> None:
    script = by_query(one="names = ['Ada']\nFINAL(1)", **{"/two": "FINAL(context_1[:7])"})
    other = notes.with_name("other file.txt")
    other.write_text("another")
    said = (
        f"one\n/context '{other}'\n/vars\n/show names\n/show nobody\n/contexts\n/cost\n/steps\n"
        "/model\n//two\n/save own.rlm\n/clear\n/contexts\n/load own.rlm\n/quit\nnever\n"
    )
    with endpoint(script) as server:
        done = rlm(
            *("chat", str(notes), *MODEL),
            stdin=said,
            cwd=notes.parent,
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
    assert (done.returncode, done.stdout) == (0, "1\nanother\n")
    for line in (
        "context_1: a str of 7 characters in 1 line.",
        "names: list[1]",
        "['Ada']",
        "There is no nobody in the REPL; /vars lists its variables.",
        "in total: 510 tokens, cost unknown",
        "  > names = ['Ada']",
        "Model: openai-compatible/m",
        "Saved: own.rlm",
        "There is no context; /context FILE adds one.",
        "This chat has 2 turns so far.",
    ):
        assert line in done.stderr.splitlines(), (line, done.stderr)
    assert len(server.bodies) == 2


@pytest.mark.heavy
def test_a_mistyped_command_in_a_pipe_is_reported_and_skipped(notes: Path, state: Path) -> None:
    with endpoint(submits("FINAL(1)")) as server:
        done = rlm(
            *("chat", str(notes), *MODEL, "--quiet"),
            stdin="/contxt x.txt\n/nothing-like-it\n/load\none\n",
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert [line.partition(" To ask")[0] for line in done.stderr.splitlines()] == [
        "There is no command /contxt; did you mean /context?",
        "There is no command /nothing-like-it; /help lists them.",
        "Usage: /load FILE",
    ]


@pytest.mark.heavy
def test_switching_models_keeps_variables_and_history(notes: Path, state: Path) -> None:
    script = by_query(one="n = 7\nFINAL(n)", two="FINAL([n, len(history)])")
    with endpoint(script) as server:
        done = rlm(
            *("chat", str(notes), *MODEL),
            stdin="one\n/model openai-compatible/other\ntwo\n/model nobody/x\n",
            LLM_BASE_URL=server.url,
            RLM_STATE_DIR=str(state),
        )
    assert done.stdout == "7\n[7, 1]\n"
    assert [body["model"] for body in server.bodies] == ["m", "other"]
    assert done.returncode == 1  # there is no such provider


def test_the_oldest_chats_are_deleted(
    notes: Path, state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.cli._chat_commands.MAX_CHATS", 3)
    for _ in range(5):
        assert run("chat", str(notes), stdin=QUESTION.encode())[0] == 4
    assert len(list((state / "chats").iterdir())) == 3


def test_a_large_chat_is_stored_only_on_request(
    notes: Path, state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.cli._chatting.MAX_CONTEXT_BYTES", 10)
    code, _, err = run("chat", str(notes), stdin=QUESTION.encode())
    assert code == 4
    assert "use /save FILE" in err
    assert not (state / "chats").exists()


# -- a terminal -----------------------------------------------------------------------------------


def test_a_conversation_in_a_terminal(notes: Path, state: Path) -> None:
    with talking(str(notes), cwd=notes.parent, RLM_STATE_DIR=str(state)) as terminal:
        shown = terminal.say(QUESTION)
        assert f"   {FOUND}\n" in shown
        assert "No language model is configured." in shown
        assert "ended: passages" in shown
        assert "passages: Passages[1]" in terminal.say("/vars")
        assert "There is no command /nothing" in terminal.say("/nothing")
        assert "Usage: /context FILE..." in terminal.say("/context")
        assert "Error: " in terminal.say("/context /no/such/file")
        terminal.type("\x04")
        code, last = terminal.end()
    assert code == 0
    assert "The chat is saved; continue with: rlm chat --continue" in last
    history = state / "chat_history"
    assert history.read_text().splitlines()[0] == QUESTION
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_tab_completes_commands_and_files(notes: Path, state: Path) -> None:
    with talking(cwd=notes.parent, RLM_STATE_DIR=str(state)) as terminal:
        terminal.type("/contexts\x15/conte\t")
        terminal.type("\x15/context not\t\r")
        assert "context: a str of" in terminal.until(PROMPT)
        terminal.type("/he\t\r")
        assert "/quit" in terminal.until(PROMPT)


@pytest.mark.heavy
def test_several_lines_can_be_one_message(notes: Path, state: Path) -> None:
    with endpoint(submits("FINAL(1)")) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        with talking(str(notes), *MODEL, cwd=notes.parent, **known) as terminal:
            terminal.type("first\\\r")
            terminal.until(re.compile(r"\.\.\.> $"))
            terminal.say("second")
            terminal.type('"""quoted\r')
            terminal.until(re.compile(r"\.\.\.> $"))
            terminal.say('lines"""')
            terminal.type("\x1b[200~pasted\rat once\x1b[201~")
            terminal.say("")
        asked = [texts(body) for body in server.bodies]
    assert len(asked) == 3
    for text, query in zip(
        asked, ("first\nsecond", "quoted\nlines", "pasted\nat once"), strict=True
    ):
        assert f"Query: {query}\n" in text


def _slow(started: threading.Event, release: threading.Event) -> Answer:
    def answer(body: dict[str, Any]) -> str:
        query = str(body["messages"][1]["content"]).splitlines()[0]
        if query == "Query: slow":
            started.set()
            release.wait(60)
        code = {"Query: keep": "n = 5\nFINAL(n)", "Query: after": "FINAL(n + 1)"}.get(query, "0")
        return f"```repl\n{code}\n```"

    return answer


def test_ctrl_c_ends_a_turn_and_keeps_the_chat(notes: Path, state: Path) -> None:
    started, release = threading.Event(), threading.Event()
    with endpoint(_slow(started, release)) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        with talking(str(notes), *MODEL, cwd=notes.parent, **known) as terminal:
            terminal.say("keep")
            terminal.type("slow\r")
            assert started.wait(60)
            terminal.interrupt()
            assert "Cancelled: no answer yet" in terminal.until(PROMPT)
            release.set()
            assert terminal.say("after").endswith("6\n\nrlm> ")
            assert "Press Ctrl-D or type /quit to leave." in terminal.interrupt_the_prompt()
            assert "Cancelled" not in terminal.say("/contexts")
            terminal.type("/quit\r")
            assert terminal.end()[0] == 0


def test_ctrl_c_in_a_cell_keeps_its_variables(notes: Path, state: Path) -> None:
    script = by_query(
        keep="n = 5\nFINAL(n)",
        busy="n += 1\nllm_query('Query: started')\nwhile True: pass",
        started="pass",
        after="FINAL(n)",
    )
    with endpoint(script) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        with talking(str(notes), *MODEL, cwd=notes.parent, **known) as terminal:
            terminal.say("keep")
            terminal.type("busy\r")
            _settle(lambda: len(server.bodies) == 3)  # the third is from the cell
            terminal.interrupt()
            terminal.until(PROMPT)
            assert terminal.say("after").endswith("6\n\nrlm> ")


def _settle(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.heavy
def test_a_second_ctrl_c_quits_at_once_and_says_where_the_chat_is(notes: Path, state: Path) -> None:
    script = by_query(
        keep="n = 5\nFINAL(n)", stuck="sum(range(10**15))", after="FINAL(n + 1)"
    )  # signals are not handled in there
    with endpoint(script) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        with talking(str(notes), *MODEL, cwd=notes.parent, **known) as terminal:
            terminal.say("keep")
            terminal.type("stuck\r")
            terminal.until("cell 1")
            terminal.interrupt()
            terminal.until("press Ctrl-C again")
            terminal.interrupt()
            code, last = terminal.end()
        again = rlm("chat", "--continue", *MODEL, stdin="after\n", **known)
    assert code == 130
    assert "The chat is saved; continue with: rlm chat --continue" in last
    assert again.stdout == "6\n"


def test_hostile_answers_and_variables_are_escaped_in_a_terminal(notes: Path, state: Path) -> None:
    with endpoint(submits(f"x = {AS_CODE}\nFINAL(x)")) as server:
        known: dict[str, Any] = {"LLM_BASE_URL": server.url, "RLM_STATE_DIR": str(state)}
        with talking(str(notes), *MODEL, "--quiet", cwd=notes.parent, **known) as terminal:
            shown = terminal.say("q")
            shown += terminal.say("/show x") + terminal.say("/steps")
            raw = terminal.raw
    assert shown.count("\\x1b]0;pwned\\x07\\x1b[2J") >= 2
    for obeyed in (b"\x1b]0;pwned", b"\x1b[2J", b"\x1b[31m", b"\xc2\x9b", b"\xe2\x80\xae"):
        assert obeyed not in raw


# -- messages -------------------------------------------------------------------------------------


def said(*lines: str) -> list[str | None]:
    """All messages that these lines make."""
    left = list(lines)

    def line(_: bool) -> str | None:
        return left.pop(0) if left else None

    found = []
    while left:
        found.append(message(line))
    return found


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (["one", "two"], ["one", "two"]),
        (["one\\", "two", "three"], ["one\ntwo", "three"]),
        (["a path C:\\\\", "two"], ["a path C:\\\\", "two"]),
        (['"""one', "two", '"""', "three"], ["one\ntwo", "three"]),
        (['"""all in one"""', "two"], ["all in one", "two"]),
        (['"""never', "ended"], ["never\nended"]),
        (["one\\"], ["one"]),
        (["pasted\nat once"], ["pasted\nat once"]),
    ],
)
def test_lines_become_messages(lines: list[str], messages: list[str]) -> None:
    assert said(*lines) == messages


@given(st.lists(st.text(alphabet='ab"\\ \n/', max_size=12), max_size=8))
def test_no_text_is_lost_when_lines_become_messages(lines: list[str]) -> None:
    kept = "".join(each or "" for each in said(*lines))
    assert [char for char in "".join(lines) if char in "ab/"] == [c for c in kept if c in "ab/"]
