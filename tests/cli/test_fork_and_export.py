"""`rlm fork` reads replies from files; `rlm export` writes runs to files; neither can do harm."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLMLogger
from rlm.cli import _exporting
from rlm.cli._resuming import MAX_BYTES, as_block
from rlm.cli.runs import FORMATS
from rlm.engine.cells import parse_reply
from rlm.records.journal import Places
from rlm.records.trajectories import exports
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.running import one_clear_line

# -- fork -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("code.py", "FINAL('by code')", "by code"),
        ("reply.md", "Here it is:\n```repl\nFINAL('by reply')\n```\n", "by reply"),
        ("-", "```repl\nFINAL('by stdin')\n```", "by stdin"),
    ],
)
def test_a_fork_with_an_edited_reply_or_cell(
    state: Path, tmp_path: Path, run: Run, name: str, text: str, answer: str
) -> None:
    first = kept.offline(state)
    (tmp_path / name).write_text(text)
    code, out, err = run("fork", "last", "--step", "2", "--edit", name, stdin=text.encode())
    assert (code, out.splitlines()[-1]) == (4, answer), err
    assert f" forks from {first.run_id} at step 2.\n" in err
    assert "ended: passages, 2 steps, 0 requests" in err
    assert f"forked from {first.run_id} at step 2" in run("show", "last")[1]
    again = run("resume", first.run_id)[1]
    assert again == f"{kept.FOUND}\n"


def test_a_fork_whose_key_is_missing_leaves_no_run(state: Path, run: Run) -> None:
    first = kept.offline(state)
    facts = {
        "run_id": first.run_id,
        "query": "?",
        "started": 1.0,
        "context": {"kind": "text", "sha256": "0" * 64, "size_bytes": 1, "description": ""},
        "settings": {"config": {"model": "openai/gpt-5", "sub_model": "openai/gpt-5"}},
    }
    kept.rewrite(state, first.run_id, "run", facts)
    code, out, err = run("fork", first.run_id, "--step", "1")
    assert (code, out) == (1, "")
    assert "needs a key" in one_clear_line(err)
    assert [each.run_id for each in Places(state).listed()] == [first.run_id]


def test_a_fork_can_be_made_without_running_it(state: Path, run: Run) -> None:
    first = kept.offline(state)
    code, out, err = run("fork", first.run_id, "--step", "1", "--no-run")
    assert (code, err) == (0, "")
    run_id = out.strip()
    assert run_id in {each.run_id for each in Places(state).listed()} - {first.run_id}
    code, out, err = run("show", run_id)
    assert (code, out) == (1, "")
    assert f"run {run_id} has not begun: start it with `rlm resume {run_id}`" in err
    code, out, _ = run("resume", run_id)
    assert (code, out) == (4, f"{kept.FOUND}\n")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"  \n", "is empty; leave out --edit"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"x" * (MAX_BYTES + 1), "no reply is that long"),
    ],
)
def test_an_invalid_edit_is_refused(
    state: Path, tmp_path: Path, run: Run, data: bytes, told: str
) -> None:
    kept.offline(state)
    (tmp_path / "reply").write_bytes(data)
    code, out, err = run("fork", "last", "--step", "2", "--edit", "reply")
    assert (code, out) == (1, "")
    assert told in one_clear_line(err)
    code, _, err = run("fork", "last", "--step", "9")
    assert (code, "can be forked at steps 1 to 2, not at 9" in one_clear_line(err)) == (1, True)
    code, _, err = run("fork", "last", "--step", "2", "--edit", "missing.py")
    assert (code, "missing.py: No such file" in one_clear_line(err)) == (1, True)
    assert len(list(Places(state).listed())) == 1


@given(st.lists(st.sampled_from(["```", "````", "`", "\n", "x = 1", "'''"])).map("".join))
def test_a_code_block_holds_exactly_its_code(text: str) -> None:
    code = f'fences = """{text}"""\nprint(fences)'
    (cell,) = parse_reply(as_block(code)).cells
    assert cell.code.strip() == code.strip()


# -- export ---------------------------------------------------------------------------------------


def test_the_offered_formats_are_the_existing_ones() -> None:
    assert list(FORMATS) == list(exports.FORMATS)


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_goes_to_stdout_or_a_file(
    state: Path, tmp_path: Path, run: Run, form: str
) -> None:
    kept.offline(state, logger=RLMLogger(log_dir=tmp_path / "logs"))
    code, out, err = run("export", "last", "--format", form)
    assert (code, err) == (0, "")
    assert "silver-dolphin" in out
    code, printed, err = run("export", "last", "--format", form, "-o", "report")
    assert (code, printed) == (0, "")
    assert f"Wrote report ({len(out.encode()):,} bytes)." in err
    report = tmp_path / "report"
    assert report.read_text("utf-8") == out
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert run("export", "logs", "--format", form)[1] == out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["logs", "report", "state"]


def test_a_file_is_overwritten_only_on_request(state: Path, tmp_path: Path, run: Run) -> None:
    kept.offline(state)
    (tmp_path / "there").write_text("precious")
    code, out, err = run("export", "last", "--format", "html", "-o", "there")
    assert (code, out) == (1, "")
    assert "pass --force" in one_clear_line(err)
    assert (tmp_path / "there").read_text() == "precious"
    assert run("export", "last", "--format", "html", "-o", "there", "--force")[0] == 0
    assert "silver-dolphin" in (tmp_path / "there").read_text()
    for place in ("/dev/null", "."):
        code, _, err = run("export", "last", "--format", "html", "-o", place, "--force")
        assert (code, "is not a file" in one_clear_line(err)) == (1, True)


def test_a_partial_export_is_never_visible(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "one"
        assert [each.name for each in tmp_path.iterdir()] != ["out"]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        _exporting.write_new(tmp_path / "out", pieces())
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_are_refused(run: Run) -> None:
    code, _, err = run("export", "last", "--format", "pdf")
    assert (code, "'pdf' is not one of" in one_clear_line(err)) == (2, True)
    code, _, err = run("export", "last")
    assert (code, "Missing option '--format'" in one_clear_line(err)) == (2, True)
