"""The real `llm` command with the plugin: what it lists, reads, logs and leaves behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llm_command import Cli
from scripted_models import cell

from rlm.testing.fake_server import Answer, FakeServer

Serve = Callable[..., FakeServer]

LINES = "\n".join(f"line {number}" for number in range(1_000))
LENGTH = cell("FINAL(len(context))")


def sent(server: FakeServer) -> str:
    return "\n".join(json.dumps(request.asked.body) for request in server.requests if request.asked)


# -- what it lists --------------------------------------------------------------------------------


def test_llm_lists_the_plugin_its_tools_and_models(cli: Cli, serve: Serve) -> None:
    serve("unused")
    listed = json.loads(cli.ok("plugins"))
    hooks = next(each for each in listed if each["name"] == "llm-rlm")["hooks"]
    assert set(hooks) == {
        *("register_commands", "register_models", "register_tools", "register_fragment_loaders")
    }
    tools = cli.ok("tools")
    assert "RLMToolbox_execute_python(code: str, context: str = '') -> str" in tools
    assert "RLMToolbox_submit_answer(" in tools
    models = cli.ok("models")
    assert "RLM: rlm/mine" in models
    assert "RLM: rlm/gpt-4o (aliases: rlm/4o)" in models
    assert "rlm/rlm/" not in models
    assert "rlm:" in cli.ok("fragments", "loaders")
    options = cli.ok("models", "-m", "rlm/mine", "--options")
    assert "sub_model: str" in options
    assert "temperature: float" in options


def test_the_wrapped_models_can_be_chosen(cli: Cli, serve: Serve) -> None:
    serve("unused")
    listed = cli.ok("models", LLM_RLM_MODELS="mine, gpt-4o")
    assert listed.count("RLM: ") == 2


def test_a_long_list_of_models_is_one_line(cli: Cli) -> None:
    rows = [
        f"- model_id: many-{number}\n  model_name: m\n  api_base: http://127.0.0.1:9/v1\n"
        for number in range(100)
    ]
    (cli.home / "extra-openai-models.yaml").write_text("".join(rows))
    listed = cli.ok("models")
    assert listed.count("RLM: ") == 1
    assert "llm models -q rlm/" in listed
    assert cli.ok("models", "-q", "rlm/many-").count("RLM: ") == 100
    assert cli("-m", "rlm/many-7", "?", "-o", "max_steps", "0").err.startswith("Error: max_steps")


@pytest.mark.parametrize("arguments", [("--help",), ("models",), ("tools",), ("rlm", "--help")])
def test_the_engine_is_not_imported_before_it_is_needed(
    cli: Cli, arguments: tuple[str, ...]
) -> None:
    look = (
        "import sys, atexit\n"
        "def look(): print('LOADED', [n for n in sys.modules if f'{n}.'[:4] == 'rlm.'])\n"
        "atexit.register(look)\n"
        f"sys.argv = ['llm', *{arguments!r}]\n"
        "from llm.cli import cli\ncli()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, env=cli.variables, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"


# -- what it reads --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [(), ("--async",), ("--no-stream",), ("--async", "--no-stream")])
def test_a_file_is_the_context(cli: Cli, serve: Serve, mode: tuple[str, ...]) -> None:
    server = serve(LENGTH)
    (cli.folder / "big.log").write_text(LINES)
    assert cli.ok("-m", "rlm/mine", *mode, "-f", "big.log", "How long?").strip() == str(len(LINES))
    assert "line 17" not in sent(server)


@pytest.mark.parametrize("mode", [(), ("--async",)])
def test_piped_input_is_separated_from_the_question(
    cli: Cli, serve: Serve, mode: tuple[str, ...]
) -> None:
    server = serve(LENGTH)
    assert cli.ok("-m", "rlm/mine", *mode, "How long?", stdin=LINES).strip() == str(len(LINES))
    assert "How long?" in sent(server)
    assert "line 17" not in sent(server)


def test_a_question_may_be_piped_in(cli: Cli, serve: Serve) -> None:
    server = serve(LENGTH)
    (cli.folder / "big.log").write_text(LINES)
    said = cli.ok("-m", "rlm/mine", "-f", "big.log", stdin="How long is it?")
    assert said.strip() == str(len(LINES))
    assert "How long is it?" in sent(server)


def test_a_long_task_that_is_piped_in_is_the_context(cli: Cli, serve: Serve) -> None:
    server = serve(LENGTH)
    assert cli.ok("-m", "rlm/mine", stdin=LINES).strip() == str(len(LINES))
    assert "line 17" not in sent(server)


@pytest.mark.parametrize(
    ("template", "question"),
    [
        ("Count the lines of: $input", "(the text in `context`) please"),
        ("Count the lines.", "please"),
    ],
)
def test_template_text_is_not_part_of_the_piped_input(
    cli: Cli, serve: Serve, template: str, question: str
) -> None:
    server = serve(LENGTH)
    cli.ok("--save", "count", template)
    said = cli.ok("-m", "rlm/mine", "-t", "count", "please", stdin=LINES)
    assert said.strip() == str(len(LINES))
    assert question in sent(server)
    assert template.removesuffix("$input") in sent(server)
    assert "line 17" not in sent(server)


def test_files_given_by_path_or_pattern_are_not_logged(cli: Cli, serve: Serve) -> None:
    server = serve(LENGTH, cell("FINAL(len(context))"))
    (cli.folder / "big.log").write_text(LINES)
    (cli.folder / "more.log").write_text("other lines")
    assert cli.ok("-m", "rlm/mine", "-f", "rlm:big.log", "?").strip() == str(len(LINES))
    assert cli.ok("-m", "rlm/mine", "-f", "rlm:*.log", "?").strip() == "2"
    assert "line 17" not in sent(server)
    assert "line 17" not in cli.stored()


def test_fragments_are_stored_once_by_llm_and_not_again_by_us(cli: Cli, serve: Serve) -> None:
    serve(cell("print(context)\nFINAL(1)"))
    (cli.folder / "big.log").write_text(LINES)
    cli.ok("-m", "rlm/mine", "-f", "big.log", "?")
    assert cli.stored().count("line 517\n") == 1


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("rlm:missing.log", "no such file: missing.log"),
        ("rlm:.", "is a folder"),
        ("rlm:pipe", "not a regular file"),
    ],
)
def test_an_argument_that_is_not_a_file_is_reported(
    cli: Cli, serve: Serve, argument: str, words: str
) -> None:
    server = serve("unused")
    os.mkfifo(cli.folder / "pipe")
    done = cli("-m", "rlm/mine", "-f", argument, "?")
    assert done.code == 1
    assert words in done.err
    assert server.count == 0


# -- what it writes -------------------------------------------------------------------------------


def test_the_logs_show_the_trajectory_and_its_usage(cli: Cli, serve: Serve) -> None:
    serve(
        cell("print(llm_batch(['a', 'b']))", "First I ask."),
        cell("FINAL('the answer')"),
        rules=[("You are a sub-LLM", "sub reply")],
    )
    done = cli("-m", "rlm/mine", "?", "-u")
    assert done.out.strip() == "the answer"
    assert "step 1: First I ask." in done.err
    assert '"sub_calls": {"requests": 2' in done.err
    logged = cli.ok("logs", "-n", "1", "-u")
    for words in ("Reasoning", "First I ask.", "### Tool calls", "llm_batch(['a', 'b'])"):
        assert words in logged
    assert "['sub reply', 'sub reply']" in logged
    assert "the answer" in logged
    row: Any = cli.last_log()
    assert row["model"] == "rlm/mine"
    assert row["response_json"]["stop_reason"] == "answer"
    assert json.loads(row["token_details"])["sub_calls"]["requests"] == 2


def test_reasoning_can_be_hidden(cli: Cli, serve: Serve) -> None:
    serve(cell("FINAL('x')", "First I think."))
    assert "First I think." not in cli("-m", "rlm/mine", "?", "-R").err


def test_a_schema_is_honoured(cli: Cli, serve: Serve) -> None:
    serve(cell("FINAL({'lines': len(context.splitlines())})"))
    said = cli.ok("-m", "rlm/mine", "How many?", "--schema", "lines int", stdin=LINES)
    assert json.loads(said) == {"lines": 1_000}


def test_a_conversation_goes_on_in_another_process(cli: Cli, serve: Serve) -> None:
    server = serve(
        LENGTH, cell("FINAL((len(context), earlier[1]['content']))"), Answer(reply="plain")
    )
    (cli.folder / "big.log").write_text(LINES)
    first = cli.ok("-m", "rlm/mine", "-f", "rlm:big.log", "How long?").strip()
    assert cli.ok("-c", "And twice that?").strip() == f"({len(LINES)}, '{first}')"
    assert "Earlier query: How long?" in sent(server)
    assert "line 17" not in sent(server)
    assert cli.ok("-c", "-m", "mine", "And without?").strip() == "plain"


def test_a_chat_keeps_its_session(cli: Cli, serve: Serve) -> None:
    server = serve(cell("kept = len(context)\nFINAL('one')"), cell("FINAL(kept)"))
    (cli.folder / "big.log").write_text(LINES)
    said = cli.ok("chat", "-m", "rlm/mine", "-f", "big.log", stdin="One?\nTwo?\nquit\n")
    assert "one" in said
    assert str(len(LINES)) in said
    assert "line 17" not in sent(server)


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=401, error="no such key"), "401"),
        (Answer(status=400, error="context length exceeded"), "context length exceeded"),
    ],
)
def test_errors_of_the_provider_are_one_line(
    cli: Cli, serve: Serve, answer: Answer, words: str
) -> None:
    serve(answer)
    done = cli("-m", "rlm/mine", "?", "-R")
    assert done.code == 1
    assert words in done.err
    assert "Traceback" not in done.err
    assert cli.ok("logs", "list", "--json").strip() == "[]"


@pytest.mark.parametrize(
    "options", [("-o", "max_steps", "x"), ("-o", "environment", "moon"), ("-o", "budget", "1")]
)
def test_wrong_options_are_reported_before_anything_is_sent(
    cli: Cli, serve: Serve, options: tuple[str, ...]
) -> None:
    server = serve("unused")
    done = cli("-m", "rlm/mine", "?", *options)
    assert done.code == 1
    assert "Error: " in done.err
    assert "Traceback" not in done.err
    assert server.count == 0


def test_lone_surrogates_are_shown_and_logged_escaped(cli: Cli, serve: Serve) -> None:
    serve(cell("print('a\\ud800b')\nFINAL('x\\ud800y')", "I am \ud800 odd."))
    done = cli("-m", "rlm/mine", "?")
    assert (done.code, done.out.strip()) == (0, "x\ufffdy")
    assert "a\ufffdb" in cli.ok("logs", "-n", "1")


def test_an_unknown_model_is_reported(cli: Cli) -> None:
    done = cli("-m", "rlm/nobody", "?")
    assert done.code == 1
    assert "Unknown model: rlm/nobody" in done.err


# -- what it leaves -------------------------------------------------------------------------------


def below(pid: int) -> set[int]:
    """Return all descendants of a process."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                child = int(stat.parent.name)
                found |= {child, *below(child)}
    return found


def living(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "rlm/mine", "?"),
        ("-m", "rlm/mine", "--async", "?"),
        ("-m", "mine", "-T", 'RLMToolbox({"sub_model": "mine"})', "?"),
    ],
)
def test_ctrl_c_ends_the_run_and_leaves_no_process(
    cli: Cli, serve: Serve, arguments: tuple[str, ...]
) -> None:
    code = "import time\ntime.sleep(600)"
    slow = [{"name": "RLMToolbox_execute_python", "arguments": {"code": code}}]
    server = serve({"tool_calls": slow} if "-T" in arguments else cell(code), loop=True)
    process = subprocess.Popen(
        [str(cli.path), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cli.folder,
        env=cli.variables,
    )
    while process.poll() is None and not (server.count and len(below(process.pid)) >= 2):
        time.sleep(0.05)
    started = below(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert started
    for _ in range(200):
        if not living(started):
            break
        time.sleep(0.05)
    assert living(started) == set()


# -- the engine's own commands --------------------------------------------------------------------


def test_llm_rlm_ask_accepts_models_of_llm(cli: Cli, serve: Serve) -> None:
    serve(LENGTH, loop=True)
    (cli.folder / "big.log").write_text(LINES)
    expected = str(len(LINES))
    asked = ("rlm", "ask", "How long?", "-f", "big.log", "--quiet", "--no-journal")
    assert cli.ok(*asked, "-m", "mine").strip() == expected
    assert cli.ok(*asked, "-m", "rlm/mine", "--sub-model=mine").strip() == expected
    (cli.home / "default_model.txt").write_text("mine")
    assert cli.ok(*asked).strip() == expected


def test_llm_rlm_forwards_help_errors_and_exit_codes(cli: Cli) -> None:
    assert "Usage: rlm ask" in cli.ok("rlm", "ask", "--help")
    assert "Usage: rlm view" in cli.ok("rlm", "view", "--help")
    assert json.loads(cli.ok("rlm", "doctor", "--json"))["ok"] is True
    assert cli("rlm", "ask", "?", "--bogus").code == 2
    assert cli("rlm", "ask", "?", "-f", "missing.txt").code == 1
    listed = cli.ok("rlm", "--help")
    assert [name for name in ("ask", "doctor", "view") if name in listed] == [
        *("ask", "doctor", "view")
    ]
