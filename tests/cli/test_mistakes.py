"""Mistakes of users and failures of the system: one clear line each, and the right exit code."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rlm.calls import scheduler
from rlm.cli import _asking, _errors, commands
from tests.cli.conftest import Run
from tests.cli.running import QUESTION, one_clear_line, rlm
from tests.clients.misbehaving import replies, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "text.txt").write_text("no { json")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "no-schema.json").write_text(json.dumps({"type": "nonsense"}))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["-m", "nowhere/x"], {}, "there is no provider 'nowhere'"),
        (["-m", "nonsense"], {}, "does not name a provider"),
        (["-m", "openai/gpt-5"], {}, "set OPENAI_API_KEY"),
        ([], {"RLM_MODEL": "openai/gpt-5"}, "set OPENAI_API_KEY"),
        (["--environment-option", "moon=1"], {}, "'local' has no option 'moon'"),
        (["-f", "missing.txt"], {}, "missing.txt: No such file or directory"),
        (["-f", "txt.txt"], {}, "txt.txt: No such file or directory; did you mean text.txt?"),
        (["-f", "gone/text.txt"], {}, "gone/text.txt: No such file or directory"),
        (["-f", "*.missing"], {}, "no file matches *.missing"),
        (["-f", "-"], {}, "the context is empty"),
        (["-f", "loop"], {}, "loop: Too many levels of symbolic links"),
        (["-f", "empty.txt"], {}, "the context is empty"),
        (["--log-dir", "empty.txt"], {}, "log_dir='empty.txt' is not writable: File exists"),
    ],
)
def test_what_can_not_work(
    arguments: list[str], variables: dict[str, str], told: str, folder: Path
) -> None:
    done = rlm("ask", QUESTION, "--quiet", *arguments, cwd=folder, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in one_clear_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ask", QUESTION, "-f", "ftp://example.org/a.pdf"), "ftp:// can't be read; s3://, gs://"),
        (("ask", QUESTION, "-f", "S3A://bucket/a.txt"), "write s3://bucket/a.txt"),
        (("ask", QUESTION, "--table", "gcs://bucket/a.csv"), "write gs://bucket/a.csv"),
        (("chat", "htps://u:pw@example.org/a.pdf?token=x"), "write https://example.org/a.pdf"),
        (("resume", "last", "-f", "file:///etc/passwd"), "pass its path, without file://"),
        (("index", "abfs://c/x", "-o", "corpus"), "write az://c/x"),
    ],
)
def test_an_invalid_address_is_reported(arguments: tuple[str, ...], told: str) -> None:
    done = rlm(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    line = one_clear_line(done.stderr)
    assert told in line
    assert "pw" not in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "?", "-f", "gone.x"),
        ("ask", "?", "--table", "gone.x"),
        ("ask", "?", "--schema", "gone.x"),
        ("ask", "?", "--setup-code", "gone.x"),
        ("batch", "gone.x"),
        ("chat", "gone.x"),
        ("fake-server", "gone.x"),
        ("fork", "last", "--step", "1", "--edit", "gone.x"),
        ("index", "gone.x", "-o", "corpus"),
        ("provenance", "verify", "gone.x"),
        ("replay", "./gone.x"),
        ("show", "./gone.x"),
        ("view", "./gone.x"),
    ],
)
def test_a_file_that_is_missing_is_an_error_and_no_misuse(
    run: Run, arguments: tuple[str, ...]
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, ""), err


def test_a_device_is_refused(run: Run) -> None:
    for device in ("/dev/zero", "/dev/null"):
        code, out, err = run("ask", "?", "-m", "offline/extractive", "-q", "-f", device)
        assert (code, out) == (1, "")
        assert f"{device} is a device, not a file" in one_clear_line(err)


@pytest.mark.parametrize("command", ["show", "view", "replay", "judge"])
def test_a_file_that_is_no_log_is_called_that(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "sales.csv").write_text("place,sold\nHere,3\n")
    for name in ("sales.csv", "./sales.csv"):
        code, out, err = run(command, name)
        assert (code, out) == (1, "")
        assert "sales.csv is not a log: those have a JSON object" in one_clear_line(err)


@pytest.mark.parametrize("environment", ["e2b", "modal"])
def test_an_environment_that_can_not_start_records_no_run(run: Run, environment: str) -> None:
    named = ("--environment", environment)
    code, out, err = run("ask", "?", "-m", "offline/extractive", "-q", *named, stdin=b"text")
    assert (code, out) == (1, "")
    assert f"environment='{environment}' needs" in one_clear_line(err)
    assert json.loads(run("runs", "--json")[1]) == []


def test_an_index_without_its_library_leaves_no_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    (tmp_path / "notes.txt").write_text("text")
    code, out, err = run("index", "notes.txt", "-o", "corpus")
    assert (code, out) == (1, "")
    assert "a corpus needs tantivy" in err
    assert not (tmp_path / "corpus").exists()


def test_an_output_that_can_not_be_written_has_its_own_name(run: Run) -> None:
    run("ask", "?", "-m", "offline/extractive", "-q", stdin=b"text")
    code, out, err = run("export", "last", "--format", "sft", "-o", "gone/out.jsonl")
    assert (code, out) == (1, "")
    assert one_clear_line(err).endswith("/gone/out.jsonl: No such file or directory")


def test_ctrl_c_while_it_starts_has_no_traceback() -> None:
    program = """
import sys
import rlm.__main__

class Interrupted:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
rlm.__main__.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Cancelled.\n")


@pytest.mark.parametrize("option", ["-f", "--table"])
def test_an_address_whose_library_is_missing_is_reported(option: str) -> None:
    done = rlm("ask", QUESTION, "--quiet", option, "s3://bucket/a.csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert "to read s3:// addresses, pip install 'recursivelm[s3]'" in one_clear_line(done.stderr)


def test_a_missing_file_is_the_first_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("servers were looked for")

    monkeypatch.setattr(_asking, "find_servers", looked)
    for model in ((), ("-m", "nowhere/x")):
        code, out, err = run("ask", "?", "-f", "absent.txt", *model)
        assert (code, out) == (1, "")
        assert one_clear_line(err) == "Error: absent.txt: No such file or directory"


def test_a_missing_database_is_not_called_a_table(run: Run) -> None:
    for source in (("--db", "sqlite:///absent.db"), ("--table", "absent.db")):
        code, _, err = run("ask", "?", "-m", "offline/extractive", *source)
        assert code == 1
        assert one_clear_line(err) == (
            "Error: the file 'absent.db' can't be read: No such file or directory"
        )


def test_a_missing_extra_is_no_wrong_usage(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = folder / "schema.json"
    schema.write_text('{"type": "object"}')
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "pip" or None)
    code, _, err = run("ask", "?", "-m", "offline/extractive", "--schema", str(schema), stdin=b"t")
    assert code == 1
    assert "a JSON schema for answers needs: pip install 'recursivelm[typed]'" in err


def test_an_unreachable_server_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "FIRST_WAIT_SECONDS", 0.0)
    model = ("-m", "openai-compatible/m")
    dead = "http://127.0.0.1:9/v1"
    code, out, err = run("ask", QUESTION, "--quiet", *model, stdin=b"text", LLM_BASE_URL=dead)
    assert (code, out) == (1, "")
    assert "127.0.0.1:9" in one_clear_line(err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ask"], "Missing argument 'QUERY'"),
        (["ask", " "], "QUERY is empty"),
        (["ask", QUESTION, "-m", ""], "'--model': the name is empty; leave the option out"),
        (["ask", QUESTION, "--sub-model", " "], "'--sub-model': the name is empty"),
        (["ask", QUESTION, "-f", ""], "'-f' / '--file': the name is empty; leave it out"),
        (["ask", QUESTION, "-f", "a.txt", "--table", ""], "'--table': the name is empty"),
        (["chat", ""], "'[FILE|FOLDER]...': the name is empty"),
        (["index", ""], "'[FOLDER|FILE|ADDRESS]...': the name is empty"),
        (["ask", "?", "--max-steps", "-1"], "'--max-steps': -1"),
        (["ask", "?", "--max-tokens", "0"], "'--max-tokens': 0"),
        (["ask", "?", "--timeout", "-3"], "'--timeout': '-3' is not a number above 0"),
        (["ask", "?", "--budget-usd", "nan"], "'--budget-usd': 'nan' is not a number above 0"),
        (["ask", "?", "--price", "1"], "'--price': '1' is not two prices such as 0.25,2"),
        (["ask", "?", "--strategy", "guess"], "'guess' is not one of"),
        (["ask", "?", "--quiet", "--verbose"], "cannot be combined"),
        (["ask", "?", "--nonsense"], "No such option"),
        (["ask", "?", "--max-stepts", "1"], "'--max-stepts'. Did you mean '--max-steps'? See"),
        (["ask", "?", "--budjet", "1"], "'--budjet'. Did you mean '--budget-usd'? See"),
        (["ask", "?", "--env", "x"], "Did you mean '--environment' or '--environment-option'? See"),
        (["bench", "run", "--metod", "x"], "'--metod'. Did you mean '--method'? See"),
        (["aks", "?"], "No such command 'aks'. Did you mean 'ask'? See 'rlm --help'."),
        (["gateway"], "No such command 'gateway'. Did you mean 'mcp'? See 'rlm --help'."),
        (["logs"], "No such command 'logs'. Did you mean 'runs'? See 'rlm --help'."),
        (["benchmark"], "No such command 'benchmark'. Did you mean 'bench'? See 'rlm --help'."),
        (["ask", "?", "--max-steps", "two"], "'two' is not a valid whole number."),
        (["view", "--context", "a.txt"], "--context is for the runs of one log: give the LOG too"),
        (["nonsense\x1b[31m"], "No such command 'nonsense\\x1b[31m'"),
        (["ask", "?", "--environment", "moon"], "unknown environment 'moon'"),
        (["bench", "run", "s-niah", "--size", "8q"], "'--size': '8q' is not a size"),
        (
            ["bench", "generate", "s-niah", "--size", "1", "--out", "x"],
            "'--size': a context must have",
        ),
        (["runs", "--where", "foo=1"], "'--where': "),
        (["export", "--format", "sft", "--where", "foo=1"], "'--where': "),
        (["judge", "last", "--score", "nan"], "'--score': a score must be a number"),
        (["judge", "last", "--tag", "a b"], "'--tag': 'a b' can't be a tag"),
        (["ask", "?", "--schema", "text.txt"], "text.txt is not JSON"),
        (["ask", "?", "--schema", "b.bin"], "b.bin is not a text in UTF-8, so it is not JSON"),
        (["ask", "?", "--schema", "list.json"], "list.json is not a JSON schema"),
        (
            ["ask", "?", "--schema", "no-schema.json"],
            'at type: expected one of ["array", "boolean"',
        ),
    ],
)
def test_wrong_usage_is_one_line_that_mentions_help(
    arguments: list[str],
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert _errors.run(commands, arguments) == 2
    seen = capfd.readouterr()
    assert seen.out == ""
    line = one_clear_line(seen.err)
    assert told in line
    assert "--help" in line


def groups() -> list[str]:
    """Return all groups that do nothing without a command: `rlm models` lists models."""
    found = commands.commands.items()
    return [n for n, each in found if isinstance(each, click.Group) and each.no_args_is_help]


def test_groups_without_a_default_command() -> None:
    assert groups() == ["bench", "config", "env", "keys", "provenance"]


@pytest.mark.parametrize("group", groups())
def test_a_group_without_its_command_shows_its_help(
    group: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _errors.run(commands, [group]) == 0
    seen = capfd.readouterr()
    assert seen.err == ""
    lines = seen.out.splitlines()
    assert lines[0].startswith(f"Usage: rlm {group} ")
    assert "Commands:" in lines


def test_mcp_alone_shows_help_in_a_terminal_and_an_error_to_a_client(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = rlm("mcp", stdin="")
    assert done.returncode == 1
    assert "--root DIR" in one_clear_line(done.stderr)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert _errors.run(commands, ["mcp"]) == 0
    assert capfd.readouterr().out.startswith("Usage: rlm mcp ")


def test_wrong_usage_exits_with_status_2() -> None:
    done = rlm("ask", "?", "--max-steps", "-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'--max-steps'" in one_clear_line(done.stderr)


async def test_a_wrong_key_is_reported() -> None:
    async with serving() as server:
        server.behave = replies({"error": {"message": "bad key\n\x1b[31m"}}, status=401)
        done = await asyncio.to_thread(
            rlm,
            *("ask", "?", "-m", "openai/gpt-5", "--quiet"),
            OPENAI_API_KEY="sk-secret",
            OPENAI_BASE_URL=server.url,
        )
    assert (done.returncode, done.stdout) == (1, "")
    line = one_clear_line(done.stderr)
    assert "401" in line
    assert "OPENAI_API_KEY" in line
    assert "sk-secret" not in line
    assert "\x1b" not in line


def test_an_unexpected_error_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("oops\x1b[31m\nmore")

    monkeypatch.setattr("rlm.cli._asking.answer", fails)
    assert _errors.run(commands, ["ask", "?"]) == 1
    line = one_clear_line(capfd.readouterr().err)
    assert line.startswith("Error: ZeroDivisionError: oops")
    assert "--verbose" in line
    assert _errors.run(commands, ["ask", "?", "--verbose"]) == 1
    shown = capfd.readouterr().err
    assert "Traceback" in shown
    assert "\x1b" not in shown


def test_the_unexpected_names_no_option_that_the_command_lacks(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("rlm.cli._benching.show_tasks", fails)
    monkeypatch.setattr("rlm.cli._listing.show_runs", fails)
    for asked in (["bench", "list"], ["runs"]):
        assert _errors.run(commands, asked) == 1
        line = one_clear_line(capfd.readouterr().err)
        assert line.startswith("Error: ZeroDivisionError: oops (unexpected: in test_mistakes.py:")


def test_map_reduce_without_a_context_is_wrong_usage(run: Run) -> None:
    code, out, err = run("ask", "who?", "-m", "offline/extractive", "--strategy", "mapreduce")
    assert (code, out) == (2, "")
    assert "there is none: use --strategy direct" in one_clear_line(err)
