"""`rlm ask` in a pipe: the answer on stdout, exactly; the rest on stderr; the right exit code."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from rlm import RLM, RunResult
from rlm.citations import Citation
from rlm.cli._progress import Manner, RunDisplay
from tests.cli.conftest import Run
from tests.cli.running import QUESTION, TEXT, command, environment, one_clear_line, rlm
from tests.cli.scripts import AS_CODE, HOSTILE, submits
from tests.endpoint import endpoint

JSON_KEYS = [
    "answer",
    "stop_reason",
    "answer_source",
    "model",
    "run_id",
    "steps",
    "calls",
    "tokens",
    "cost_usd",
    "seconds",
    "limit",
    "detail",
    "rejected_answer",
    "citations",
    "unsupported_quotes",
    "omitted_citations",
    "samples",
]


def test_a_question_about_a_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    done = rlm("ask", QUESTION, "-f", str(tmp_path / "notes.txt"))
    assert done.returncode == 4
    assert done.stdout.startswith("No language model is configured. These are the best passages")
    assert "\n\n1. notes.txt:1–3\n   Nothing here.\n   The access code for silver" in done.stdout
    assert "step 1" in done.stderr
    assert "ended: passages, 2 steps" in done.stderr
    assert "> " not in done.stderr


def test_options_of_the_environment(tmp_path: Path) -> None:
    given = ("--environment", "agent", "--environment-option", "read_only_paths=[]")
    done = rlm("ask", QUESTION, *given, "--environment-option", "max_threads=9", stdin=TEXT)
    assert (done.returncode, "4821" in done.stdout) == (4, True)


def test_ctrl_c_while_the_engine_closes_does_not_lose_the_answer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: RLM) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RLM, "close", interrupted)
    code, out, err = run("ask", QUESTION, "-m", "offline/extractive", "-q", stdin=TEXT.encode())
    assert "4821" in out
    assert (code, err.splitlines()[-1]) == (130, "Cancelled.")


def test_what_is_piped_in_and_json_out() -> None:
    done = rlm("ask", QUESTION, "--json", "--quiet", stdin=TEXT)
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert list(result) == JSON_KEYS
    assert "4821" in result["answer"]
    assert (result["stop_reason"], result["model"]) == ("passages", "offline/extractive")


def test_citations_are_footnotes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    asked = ("ask", QUESTION, "-f", str(tmp_path / "notes.txt"), "--cite")
    done = rlm(*asked)
    footnote = f"\n[1] notes.txt:1–3 “{' '.join(TEXT.split())}”\n"
    assert done.stdout.endswith(footnote)
    [citation] = json.loads(rlm(*asked, "--json", "--quiet").stdout)["citations"]
    assert (citation["file"], citation["text"]) == ("notes.txt", TEXT.strip())
    assert tuple(citation) == Citation.__struct_fields__
    assert rlm(*asked[:-1]).stdout == done.stdout.removesuffix(footnote)


@pytest.mark.heavy
def test_a_citation_that_does_not_occur_is_reported(tmp_path: Path) -> None:
    with endpoint(submits("cite('not in it'); FINAL('x')")) as server:
        asked = ("ask", "q?", "-m", "openai-compatible/m", "--cite")
        done = rlm(*asked, stdin=TEXT, LLM_BASE_URL=server.url)
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert "1 quote is not in the context: don't rely on it." in done.stderr


def test_files_that_were_not_read_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name, data in (("a.txt", TEXT.encode()), ("b.bin", b"\0\1"), ("c.pdf", b"%PDF-1.4")):
        (folder / name).write_bytes(data)
    for name in (".gitignore", "d.tmp"):
        (folder / name).write_text("*.tmp\n")
    lines = rlm("ask", QUESTION, "-f", str(folder)).stderr.splitlines()
    assert lines[0] == "1 binary file left out: b.bin"
    assert lines[1].startswith("1 document that needs an extra left out: c.pdf (pip install ")
    assert not any("d.tmp" in line for line in lines)


def test_reaching_a_limit_is_reported_even_with_quiet(tmp_path: Path) -> None:
    with endpoint(submits("print(1)")) as server:
        asked = ("ask", "q?", "-m", "openai-compatible/m", "-q", "--max-tokens", "10")
        done = rlm(*asked, stdin=TEXT, LLM_BASE_URL=server.url)
    assert (done.returncode, done.stdout) == (3, "")
    assert "--max-tokens" in done.stderr


def test_a_query_and_a_file_in_the_wrong_order_are_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    path = str(tmp_path / "notes.txt")
    done = rlm("ask", path, "Who?")
    assert done.returncode == 2
    assert f"name files with -f, before other options: rlm ask 'Who?' -f {path}" in done.stderr


@pytest.mark.heavy
def test_several_samples(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    asked = ("ask", QUESTION, "-f", str(tmp_path / "notes.txt"), "--samples", "3")
    done = rlm(*asked, "--json")
    assert "2 of 2 samples agree." in done.stderr
    result = json.loads(done.stdout)
    assert [(each["votes"], each["stop_reason"]) for each in result["samples"]] == [
        (2, "passages"),
        (2, "passages"),
    ]
    wrong = rlm("ask", QUESTION, "--samples", "65", stdin=TEXT)
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize(
    "given", [["a.txt", "b.txt"], ["."], ["*.txt"], ["a.txt", "b.tx?"], ["a[1].txt", "*b.txt"]]
)
def test_several_sources(tmp_path: Path, given: list[str]) -> None:
    for name in ("a.txt", "a[1].txt"):
        (tmp_path / name).write_text("Nothing at all.\n")
    (tmp_path / "b.txt").write_text(TEXT)
    sources = [part for name in given for part in ("-f", name)]
    done = rlm("ask", QUESTION, "--quiet", *sources, cwd=tmp_path)
    assert "4821" in done.stdout, done.stderr


def test_stdin_beside_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("of a file")
    with endpoint(submits("FINAL(repr(context))")) as server:
        done = rlm(
            *("ask", "?", "-m", "openai-compatible/m", "--quiet", "-f", "-", "-f", "a.txt"),
            stdin="piped",
            cwd=tmp_path,
            LLM_BASE_URL=server.url,
        )
    assert done.stdout == "{'stdin': 'piped', 'a.txt': 'of a file'}\n"


UNREAD = "Standard input is not read, because -f names the context: add -f - to read it too."


@pytest.mark.parametrize(
    ("options", "piped", "told"),
    [
        (("-f", "a.txt"), "piped", 1),
        (("-f", "a.txt", "--quiet"), "piped", 0),
        (("-f", "a.txt"), "", 0),
        (("-f", "a.txt", "-f", "-"), "piped", 0),
        (("-f", "/dev/stdin"), "piped", 0),
    ],
)
def test_unread_piped_input_is_reported_once(
    tmp_path: Path, options: tuple[str, ...], piped: str, told: int
) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    done = rlm("ask", QUESTION, "-m", "offline/extractive", *options, stdin=piped, cwd=tmp_path)
    assert done.stderr.splitlines().count(UNREAD) == told, done.stderr


@pytest.mark.heavy
def test_an_unread_redirected_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text("other")
    (tmp_path / "empty.txt").touch()
    for source, told in (("other.txt", 1), ("a.txt", 0), ("empty.txt", 0), ("/dev/null", 0)):
        with (tmp_path / source).open("rb") as stdin:
            done = subprocess.run(
                command("ask", QUESTION, "-m", "offline/extractive", "-f", "a.txt"),
                stdin=stdin,
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env=environment({}),
            )
        assert done.stderr.splitlines().count(UNREAD) == told, done.stderr


NO_CONTEXT = "Standard input is empty, so the query is asked without a context."


@pytest.mark.parametrize(
    ("source", "quiet"),
    [
        ("/dev/null", ()),
        ("pipe", ("--quiet",)),
        *(
            pytest.param(source, quiet, marks=pytest.mark.heavy)
            for source, quiet in [
                ("pipe", ()),
                ("file", ()),
                ("/dev/null", ("--quiet",)),
                ("file", ("--quiet",)),
            ]
        ),
    ],
)
def test_empty_standard_input_is_not_a_context(
    tmp_path: Path, source: str, quiet: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    path = {"/dev/null": Path(os.devnull), "file": tmp_path / "file"}.get(source)
    shows_context = submits("FINAL(repr(context))")
    with endpoint(shows_context) as server, contextlib.ExitStack() as opened:
        empty = subprocess.PIPE if path is None else opened.enter_context(path.open("rb"))
        process = subprocess.Popen(
            command("ask", "?", "-m", "openai-compatible/m", *quiet),
            env=environment({"LLM_BASE_URL": server.url}),
            stdin=empty,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"''\n")
    assert (NO_CONTEXT in err.decode()) == (source != "/dev/null" and not quiet)


@pytest.mark.heavy
def test_a_binary_file_that_was_named_is_read_or_refused(tmp_path: Path) -> None:
    (tmp_path / "small.log.gz").write_bytes(b"\x1f\x8b\0\0")
    (tmp_path / "LICENSE").write_text(TEXT)
    alone = rlm("ask", QUESTION, "-f", "small.log.gz", cwd=tmp_path)
    assert alone.stderr.startswith("small.log.gz is not text: it is bytes in the REPL\n")
    beside = rlm("ask", QUESTION, "-f", "small.log.gz", "-f", "LICENSE", "--quiet", cwd=tmp_path)
    assert (beside.returncode, beside.stdout) == (1, "")
    assert one_clear_line(beside.stderr).endswith(
        "small.log.gz can't be read beside other files: it is a binary file; pass it alone, or "
        "leave it out"
    )


def test_an_explicitly_named_empty_source_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for source in (str(tmp_path / "empty.txt"), "-"):
        done = rlm("ask", QUESTION, "-f", source)
        assert (done.returncode, done.stdout) == (1, "")
        assert "the context is empty" in done.stderr
        assert "leave -f out" in done.stderr


def test_a_named_pipe_can_be_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        command("ask", QUESTION, "--quiet", "-f", str(tmp_path / "pipe")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment({}),
    )
    (tmp_path / "pipe").write_text(TEXT)
    assert b"4821" in process.communicate(timeout=60)[0]


def test_the_answer_is_exact_in_a_pipe_and_escaped_elsewhere() -> None:
    with endpoint(submits(f"print({AS_CODE})\nFINAL({AS_CODE})")) as server:
        done = rlm(
            *("ask", "?", "-m", "openai-compatible/m", "--verbose"),
            LLM_BASE_URL=server.url,
        )
    assert done.stdout == HOSTILE + "\n"
    assert "| \\x1b]0;pwned\\x07\\x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr
    assert "> FINAL(" in done.stderr


@pytest.mark.heavy
def test_bytes_that_are_not_text_are_printed_unchanged() -> None:
    done = rlm("ask", QUESTION, "--quiet", stdin=TEXT.encode() + b"The access code is \xff\xfe.")
    assert "4821" in done.stdout
    with endpoint(submits("FINAL(context)")) as server:
        done = rlm(
            *("ask", "?", "-m", "openai-compatible/m", "--quiet"),
            stdin=b"\xff\x00\r\n\xfe",
            LLM_BASE_URL=server.url,
        )
    assert done.stdout.encode("utf-8", "surrogateescape") == b"\xff\x00\r\n\xfe\n"


def test_a_search_is_refused_a_schema_before_it_starts(tmp_path: Path, run: Run) -> None:
    (tmp_path / "schema.json").write_text(json.dumps({"type": "integer"}))
    code, out, err = run("ask", QUESTION, "--schema", "schema.json", stdin=TEXT.encode())
    assert (code, out) == (1, "")
    line = one_clear_line(err)
    assert "--schema needs a language model, but offline/extractive only finds passages" in line
    assert "or leave out --schema" in line


def test_without_a_model_and_a_context_there_is_nothing_to_search(run: Run) -> None:
    code, _, err = run("ask", QUESTION, "-m", "offline/extractive")
    assert code == 4
    assert "There is no context to search, and no language model" in err
    assert "answers from what it knows" not in err


def test_a_schema_makes_the_answer_a_value(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    options = ("-m", "openai-compatible/m", "--quiet", "--schema", str(tmp_path / "schema.json"))
    with endpoint(submits("FINAL({'n': 4})")) as server:
        plain = rlm("ask", "How many?", *options, LLM_BASE_URL=server.url)
        as_json = rlm("ask", "How many?", *options, "--json", LLM_BASE_URL=server.url)
    assert json.loads(plain.stdout) == {"n": 4}
    assert json.loads(as_json.stdout)["answer"] == {"n": 4}


def test_reaching_a_limit_has_its_own_exit_code() -> None:
    done = rlm("ask", QUESTION, "--max-tokens", "25", stdin=TEXT)
    assert done.returncode == 3
    assert re.search(
        r"^Stopped early: a step and a final answer need 10,112 tokens \(--max-tokens\); there is "
        r"no answer\. Raise --max-tokens to continue the run\.$",
        done.stderr,
        re.MULTILINE,
    )
    quietly = rlm("ask", QUESTION, "--max-tokens", "25", "--quiet", stdin=TEXT).stderr
    assert quietly.startswith("Stopped early: ")
    assert quietly.count("\n") == 1


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_best_guess_is_labelled_as_such_on_standard_error(quiet: tuple[str, ...]) -> None:
    options = ("-m", "openai-compatible/m", "--max-steps", "1", *quiet)
    with endpoint(lambda body: "I think it is 1911.") as server:
        done = rlm("ask", "When?", *options, stdin=TEXT, LLM_BASE_URL=server.url)
    assert done.returncode == 3
    assert done.stdout == "I think it is 1911.\n"
    assert "Stopped early: " in done.stderr
    assert "; this is a best guess. Raise --max-steps" in done.stderr


@pytest.mark.heavy
def test_a_money_limit_needs_a_price() -> None:
    options = ("ask", "?", "-m", "openai-compatible/m", "--budget-usd", "1")
    with endpoint(submits("FINAL(4)")) as server:
        unknown = rlm(*options, "--quiet", LLM_BASE_URL=server.url)
        asked = len(server.bodies)
        known = rlm(*options, "--price", "10,100", "--json", LLM_BASE_URL=server.url)
    assert (unknown.returncode, unknown.stdout, asked) == (1, "", 0)
    line = one_clear_line(unknown.stderr)
    assert "--price IN,OUT" in line
    assert "--max-tokens" in line
    assert json.loads(known.stdout)["cost_usd"] == pytest.approx((500 * 10 + 10 * 100) / 1e6)


def test_a_log_of_every_event(tmp_path: Path) -> None:
    done = rlm("ask", QUESTION, "--log-dir", str(tmp_path / "logs"), stdin=TEXT)
    (log,) = (tmp_path / "logs").iterdir()
    assert f"Log: {log}" in done.stderr
    kinds = [json.loads(line)["type"] for line in log.read_text().splitlines()]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")


def test_a_closed_output_pipe_is_not_an_error() -> None:
    process = subprocess.Popen(
        command("ask", QUESTION, "--quiet"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({}),
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(TEXT.encode(), timeout=60)[1] == b""
    assert process.returncode == 1


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("ask", QUESTION, "--quiet"),
            input=TEXT.encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment({}),
            timeout=60,
        )
    assert done.returncode == 1
    assert "No space left" in one_clear_line(done.stderr.decode())


@pytest.mark.parametrize("arguments", [("ask", QUESTION), ("chat",), ("resume", "last")])
def test_nothing_is_asked_if_the_answer_can_be_printed_nowhere(arguments: tuple[str, ...]) -> None:
    with endpoint(submits("FINAL('lost')")) as server:
        done = subprocess.run(
            ["/bin/sh", "-c", '"$@" >&-', "-", *command(*arguments)],
            input=TEXT.encode(),
            stderr=subprocess.PIPE,
            env=environment({"LLM_BASE_URL": server.url, "RLM_MODEL": "openai-compatible/m"}),
            timeout=60,
            check=False,
        )
    assert (done.returncode, server.bodies) == (1, [])
    assert "standard output is closed" in one_clear_line(done.stderr.decode())


def test_output_of_a_library_is_not_printed_as_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ray, for example, reports lost nodes on stdout."""

    def ask() -> RunResult:
        print("a node is lost")
        return engine.ask("What?", "The access code for silver-dolphin is 4821.")

    manner = Manner(as_json=False, log_dir=None, quiet=True, verbose=False)
    with RLM("offline/extractive", environment="inprocess") as engine:
        result = RunDisplay(manner, journaled=False).run(engine, ask)
    shown = capsys.readouterr()
    assert (result.stop_reason, shown.out) == ("passages", "")
    assert "a node is lost" in shown.err
