"""`rlm index` from the shell: progress, summary, Ctrl-C, kill -9, --watch."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlm.data.corpus import Corpus

PROGRAM = [sys.executable, "-m", "rlm", "index"]
SLOW = """
import sys, time
from rlm.data.corpus import fulltext, indexing
add = fulltext.FullTextWriter.add
def slowly(self, piece):
    time.sleep(0.002)
    add(self, piece)
fulltext.FullTextWriter.add = slowly
indexing.BatchSize.__init__.__defaults__ = (2_000, 30.0)
from rlm.cli import main
main()
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rows(path: Path, number: int) -> None:
    path.write_text("".join(json.dumps({"id": n, "text": f"row{n}"}) + "\n" for n in range(number)))


def wait_for_batches(corpus: Path, number: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with Corpus(corpus) as opened:
                if opened.changes >= number:
                    return
        except Exception:
            pass
        time.sleep(0.02)
    raise AssertionError("no batch was finished")


def test_indexing_prints_a_summary_and_can_be_repeated(texts: Path, tmp_path: Path) -> None:
    (texts / "x.pdf").write_bytes(b"%PDF")
    first = run(texts, "-o", tmp_path / "corpus")
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    lines = first.stderr.splitlines()
    assert lines[0] == ("1 PDF, Office or e-book file left out: x.pdf (convert them to text first)")
    assert lines[1].startswith("12 documents indexed (0.0 MB in ")
    assert "corpus contains 12 documents, 0.0 MB. Next: rlm ask" in lines[2]
    again = run("-o", tmp_path / "corpus")
    assert "0 documents indexed" in again.stderr
    assert "3 files unchanged." in again.stderr
    assert run("-o", tmp_path / "corpus", "-q").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-o", "none"], 1, "Error: none is not a corpus"),
        (["none", "-o", "c"], 1, "Error: no such file or folder: none; check the path"),
        ([], 2, "Missing option '-o'"),
    ],
)
def test_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(*arguments)
    assert ended.returncode == code
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_index_keeps_its_progress(tmp_path: Path, number: signal.Signals) -> None:
    source, corpus = tmp_path / "rows.jsonl", tmp_path / "corpus"
    rows(source, 5_000)
    command = [sys.executable, "-c", SLOW, "index", str(source), "-o", str(corpus)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for_batches(corpus, 5)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "Stopped; finished work is kept." in said
    with Corpus(corpus) as opened:
        before = len(opened)
        assert 0 < before < 5_000
        assert len(opened.search("row0")) == 1
    ended = run("-o", corpus)
    assert ended.returncode == 0, ended.stderr
    assert f"{5_000 - before:,} documents indexed" in ended.stderr
    with Corpus(corpus) as opened:
        assert len(opened) == 5_000
        for each in range(0, 5_000, 250):
            assert len(opened.search(f"row{each}")) == 1


def test_watch_reindexes_changed_files(texts: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    command = [*PROGRAM, str(texts), "-o", str(corpus), "--watch", "--every", "0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for_batches(corpus, 1)
        (texts / "new.txt").write_text("something unheard of")
        until = time.monotonic() + 60
        found: list[str] = []
        while not found and time.monotonic() < until:
            with Corpus(corpus) as opened:
                found = [hit.name for hit in opened.search("unheard")]
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert found == ["docs/new.txt"]
    assert process.returncode == 130
    assert "Watching for changes" in said


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("walrus")
    assert run(tmp_path / "A", tmp_path / "A", tmp_path / "B", "-o", tmp_path / "c").returncode == 0
    (tmp_path / "A" / "a.txt").unlink()
    (tmp_path / "A").rmdir()
    ended = run("-o", tmp_path / "c")
    assert ended.returncode == 0
    first, second, third = ended.stderr.splitlines()
    assert first == f"1 source gone, with all their documents: {tmp_path / 'A'}"
    assert "1 file unchanged, 1 file changed or gone." in second
    assert "c contains 1 document" in third
