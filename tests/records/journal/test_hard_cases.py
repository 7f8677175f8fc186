"""Journals on bad days: no room, no permission, other versions, damage, company, sheer size."""

import asyncio
import fcntl
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
import tracemalloc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rlm import RLM, ConfigError, ScriptedClient
from rlm.events import CallEnded
from rlm.messages import Message, Reply, ReplyKey, Request
from rlm.records.journal import Archive, Journal, Places, events_of

T = TypeVar("T")
RUN_ID = "20261115-120000-000-abcdef01"
NOBODY = 65_534
REQUEST = Request(model="m", messages=(Message("user", "?"),), max_output_tokens=9)
CELL = "```repl\n{}\n```"


def run_python(
    code: str, *given: str, before: list[str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Another process, with its own Python."""
    command = [*(before or []), sys.executable, "-c", textwrap.dedent(code), *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# -- no room --------------------------------------------------------------------------------------

FILLING = """
    import logging, sys
    from rlm import RLM, ScriptedClient
    logging.basicConfig(format="%(levelname)s %(message)s")
    cells = ["x = [llm_query(f'{n} ' + 'y' * 5_000) for n in range(60)]", "FINAL(len(x))"]
    script = [f"```repl\\n{cell}\\n```" for cell in cells]
    client = ScriptedClient(script, rules=[("y" * 5_000, "z" * 5_000)])
    with RLM(client, journal=sys.argv[1]) as rlm:
        result = rlm.ask("How many?", "none", run_id="20261115-1")
    print(result.answer, result.stop_reason, result.usage.total.requests, len(client.requests))
"""
SMALL_DISK = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))


def on_a_small_disk(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it where little fits: on a disk of its own, or, who may not mount, with small files."""
    folder.mkdir()
    if os.geteuid() == 0 and shutil.which("unshare"):
        words = ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh", "250k", str(folder)]
        done = run_python(code, str(folder), before=words)
        if "permission denied" not in done.stderr.lower():
            return done
    return run_python(code, str(folder), preexec_fn=_small_files)


def test_on_a_full_disk_a_run_still_ends_with_one_warning(tmp_path: Path) -> None:
    done = on_a_small_disk(FILLING, tmp_path / "small")
    assert done.stdout == "60 answer 62 62\n", done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1, done.stderr
    assert "is no longer writable: " in warnings[0]
    assert warnings[0].endswith("the run continues, but can't be resumed from here on")
    assert "Traceback" not in done.stderr


def test_a_context_too_large_for_the_disk_is_dropped_and_the_run_continues(tmp_path: Path) -> None:
    code = FILLING.replace('"none"', "'c' * 3_000_000").replace("range(60)", "range(3)")
    done = on_a_small_disk(code, tmp_path / "small")
    assert done.stdout == "3 answer 5 5\n", done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1, done.stderr
    assert "the context can't be stored for resuming: " in warnings[0]


# -- no permission --------------------------------------------------------------------------------


@contextmanager
def without_powers(folder: Path) -> Generator[None, None, None]:
    """Run as a user whom permissions bind; root is not bound by them."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder that others could reach too, with one run in it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    ask(folder / "state", [CELL.format("FINAL(1)")])
    yield folder / "state"
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)


def ask(folder: Path, script: list[Any], run_id: str = RUN_ID) -> str | None:
    with RLM(ScriptedClient(script), journal=folder) as rlm:
        answer: str | None = rlm.ask("Why?", "x", run_id=run_id).answer
    return answer


def refusal(folder: Path, run_id: str = RUN_ID) -> str:
    """What is said when a run can't begin; nothing may have been asked."""
    client = ScriptedClient([CELL.format("FINAL(2)")])
    with RLM(client, journal=folder) as rlm, pytest.raises(ConfigError) as caught:
        rlm.ask("Why?", "x", run_id=run_id)
    assert client.requests == []
    return str(caught.value)


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_paid(state: Path) -> None:
    state.chmod(0o500)
    with without_powers(state):
        said = refusal(state / "below")
    assert f"{state / 'below'} can't be created: Permission denied" in said
    assert "a writable folder" in said


@pytest.mark.parametrize("run_id", [RUN_ID, "20261115-new"])
def test_a_read_only_runs_folder_is_named_before_anything_is_paid(state: Path, run_id: str) -> None:
    if run_id != RUN_ID:
        (state / "runs").chmod(0o500)
    else:
        (state / "runs" / f"{RUN_ID}.sqlite").chmod(0o400)
        (state / "runs" / f"{RUN_ID}.lock").chmod(0o400)
    with without_powers(state):
        said = refusal(state, run_id)
    assert f"{state}/runs/{run_id}" in said
    assert "is not writable" in said
    assert "ermission denied" in said
    assert "check the folder's permissions and free space, or run without a journal" in said


def test_a_read_only_journal_is_named_before_anything_is_paid(state: Path) -> None:
    path = state / "runs" / f"{RUN_ID}.sqlite"
    path.chmod(0o400)
    with without_powers(state):
        said = refusal(state)
        (found,) = Archive(Places(state)).summaries()
    assert f"the journal {path} is not writable" in said
    assert not isinstance(found, ConfigError)
    assert found.answer == "1"


def test_a_state_path_that_is_not_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert f"{tmp_path / 'file'} can't be created" in refusal(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# -- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".sqlite", ".lock"])
@pytest.mark.parametrize("content", [b"", b"a page of my diary\n" * 300])
def test_a_link_to_another_users_file_is_not_followed(
    tmp_path: Path, ending: str, content: bytes
) -> None:
    places = Places(tmp_path / "state")
    places.prepare()
    diary = tmp_path / "diary"
    diary.write_bytes(content)
    diary.chmod(0o644)
    (places.runs / f"{RUN_ID}{ending}").symlink_to(diary)
    assert "is not writable" in refusal(places.root)
    assert diary.read_bytes() == content
    assert diary.stat().st_mode & 0o777 == 0o644
    assert list(places.listed()) == []


def test_a_link_in_place_of_a_context_is_not_written_through(tmp_path: Path) -> None:
    ask(tmp_path / "state", [CELL.format("FINAL(1)")])
    (context,) = (tmp_path / "state" / "contexts").iterdir()
    diary = tmp_path / "diary"
    diary.write_bytes(b"mine")
    context.unlink()
    context.symlink_to(diary)
    assert ask(tmp_path / "state", [CELL.format("FINAL(2)")], "20261115-2") == "2"
    assert diary.read_bytes() == b"mine"
    archive = Archive(Places(tmp_path / "state"))
    with pytest.raises(ConfigError, match="has changed"):
        archive.context_of(archive.facts(archive.places.find("20261115-2")))


def test_the_state_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    assert ask(tmp_path / "state", [CELL.format("FINAL(1)")]) == "1"
    assert ask(tmp_path / "state", []) == "1"


def test_a_database_of_another_program_is_not_touched(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.prepare()
    other = sqlite3.connect(places.journal_of(RUN_ID))
    other.execute("create table mine (x)")
    other.commit()
    other.close()
    before = places.journal_of(RUN_ID).read_bytes()
    assert "is not a journal of rlm" in refusal(tmp_path)
    assert places.journal_of(RUN_ID).read_bytes() == before


# -- other versions -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_journal_of_another_version_is_refused_and_unchanged(
    tmp_path: Path, version: int
) -> None:
    ask(tmp_path, [CELL.format("FINAL(1)")])
    path = Places(tmp_path).journal_of(RUN_ID)
    other = sqlite3.connect(path)
    other.execute(f"pragma user_version={version}")
    other.close()
    before = path.read_bytes()
    said = refusal(tmp_path)
    assert (
        f"the journal {path} has format {version}, but this version of rlm reads format 1" in said
    )
    assert "use the version of rlm that wrote it, or remove it with `rlm rm`" in said
    (found,) = Archive(Places(tmp_path)).summaries()
    assert isinstance(found, ConfigError)
    with pytest.raises(ConfigError, match=f"has format {version}"):
        list(events_of(path))
    assert path.read_bytes() == before
    archive = Archive(Places(tmp_path))
    archive.remove(archive.places.find(RUN_ID))
    assert ask(tmp_path, [CELL.format("FINAL(2)")]) == "2"


def test_damaged_events_do_not_hide_an_answer(tmp_path: Path) -> None:
    ask(tmp_path, [CELL.format("FINAL('forty-two')")])
    path = Places(tmp_path).journal_of(RUN_ID)
    data = path.read_bytes()
    assert data.count(b'"type":"step_started"') == 1
    path.write_bytes(data.replace(b'"type":"step_started"', b'"type":"step_st\xffrted"'))
    assert ask(tmp_path, []) == "forty-two"


# -- company --------------------------------------------------------------------------------------

HOLDING = """
    import sys, time
    from pathlib import Path
    from rlm.records.journal import Journal
    journal = Journal(Path(sys.argv[1]))
    print("open", flush=True)
    time.sleep(60)
"""


@contextmanager
def holder_of(path: Path) -> Generator[subprocess.Popen[str], None, None]:
    """Another process that has this journal open."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDING), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_of_two_processes_one_runs_and_the_other_names_it(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.prepare()
    with holder_of(places.journal_of(RUN_ID)) as process:
        said = refusal(tmp_path)
        assert f"process {process.pid} is executing run {RUN_ID}; wait for it, or end" in said
    # Killed while it held the lock: the kernel has let go of it.
    assert ask(tmp_path, [CELL.format("FINAL(1)")]) == "1"


RESUMING = """
    import sys
    from pathlib import Path
    from rlm import RLM, ConfigError, ScriptedClient
    client = ScriptedClient(["```repl\\nimport time; time.sleep(1.5); FINAL(1)\\n```"])
    with RLM(client, journal=sys.argv[1]) as rlm:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            print("answer", rlm.ask("Why?", "x", run_id="20261115-1").answer, len(client.requests))
        except ConfigError as error:
            print("refused", error)
"""


def test_of_five_processes_that_start_the_same_run_one_runs_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(RESUMING), str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(5)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = {}
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        said[process.pid] = process.communicate(timeout=60)[0]
    asked = [pid for pid, text in said.items() if text == "answer 1 1\n"]
    assert len(asked) == 1, said
    for pid, text in said.items():
        waited = text == "answer 1 0\n"  # It came so late that the run had ended.
        assert pid in asked or waited or f"process {asked[0]} is executing" in text, said


def test_a_removed_lock_file_is_not_mistaken_for_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened just before `rlm rm` removed it: locking it would keep no process out."""
    path = tmp_path / "1.sqlite"
    flock, others = fcntl.flock, list[Journal]()

    def removed_first(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.with_suffix(".lock").unlink()
        others.append(Journal(path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with pytest.raises(ConfigError, match="is executing run"):
        Journal(path)
    others[0].close()
    Journal(path).close()


def test_readers_do_not_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rlm runs` holds the lock for an instant."""
    path = tmp_path / "1.sqlite"
    Journal(path).close()
    looking = path.with_suffix(".lock").open()
    fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def stop_looking(seconds: float) -> None:
        if seconds:
            looking.close()

    monkeypatch.setattr(time, "sleep", stop_looking)
    Journal(path).close()


def test_reading_does_not_disturb_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "1.sqlite"
    journal = Journal(path)

    async def write_and_read() -> None:
        for number in range(20):
            await journal.put(ReplyKey("root", "a", number), Reply(text=str(number)))
            journal.record(CallEnded(run_id="r", call_id=str(number), kind="llm", model="m"))
            journal.flush()
            assert len(list(events_of(path))) == number + 1

    asyncio.run(write_and_read())
    journal.close()


# -- sheer size -----------------------------------------------------------------------------------

EVENTS = 100_000


@pytest.mark.heavy
def test_a_hundred_thousand_events_need_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "1.sqlite"
    journal = Journal(path)
    tracemalloc.start()
    try:
        for number in range(EVENTS):
            call_id = f"{RUN_ID}.{number:010x}.0"
            journal.record(
                CallEnded(run_id=RUN_ID, call_id=call_id, kind="llm", model="m", reply="Paris")
            )
        journal.close()
        _, written_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        count = sum(1 for line in events_of(path) if b"call_ended" in line)
        _, read_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = path.stat().st_size
    assert count == EVENTS
    assert size > 20_000_000
    assert written_peak < size / 20, f"{written_peak:,}"
    assert read_peak < size / 20, f"{read_peak:,}"


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    path = tmp_path / "1.sqlite"
    journal = Journal(path)
    for number in range(1_000):
        journal.record(CallEnded(run_id="r", call_id=str(number), kind="llm", model="m"))
    journal.close()
    lines = events_of(path)
    assert b'"call_id":"0"' in next(lines)
    del lines
    Journal(path).close()
