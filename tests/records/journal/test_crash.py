"""SIGKILL at random moments: the run resumes, ends the same, and pays for nothing twice.

The server's own list of requests is the witness. Moments are drawn from a seed, which a failure
prints; what the machine makes of them differs each time.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places, database, events_of
from tests.records.journal.counting_model import BATCH, CountingModel, Request
from tests.records.journal.crashing import PLACES, Death, Plan

ROOT = Path(__file__).resolve().parents[3]
MAX_SECONDS = 120


class Victim:
    """One run, killed and resumed as often as one likes, and what the server saw of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.model = CountingModel(seed)
        self.run_id = f"20261115-{seed}"
        self.path = Places(folder / "state").journal_of(self.run_id)
        self.tool_log = folder / "tool_log"
        self.result: dict[str, Any] | None = None
        folder.mkdir()

    def start(self, death: Death | None = None) -> subprocess.Popen[str]:
        self.model.begin_attempt()
        plan = self.folder / "plan.json"
        variables = self.model.server.variables
        plan.write_bytes(
            msgspec.json.encode(
                Plan(str(self.folder / "state"), self.run_id, variables, str(self.tool_log), death)
            )
        )
        return subprocess.Popen(
            [sys.executable, "-m", "tests.records.journal.crashing", str(plan)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait(self, process: subprocess.Popen[str]) -> bool:
        """Whether it was killed; if not, it has answered."""
        try:
            said, complained = process.communicate(timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if process.returncode == -signal.SIGKILL:
            return True
        assert process.returncode == 0, complained
        self.result = msgspec.json.decode(said)
        return False

    def finish(self) -> None:
        """Resume until the run ends by itself."""
        assert not self.wait(self.start())

    # -- what the journal holds --------------------------------------------------------------

    def journaled(self) -> set[int]:
        """The numbers of the requests whose replies are in the journal."""
        return {int(reply.reasoning) for kind, reply in self._replies() if kind in {"step", "llm"}}

    def journaled_tools(self) -> set[str]:
        """The words whose weight is in the journal."""
        return {
            msgspec.json.decode(reply.text)[0]
            for kind, reply in self._replies()
            if kind == "tool" and reply.finish_reason != "failed"
        }

    def _replies(self) -> Iterator[tuple[str, Any]]:
        if not self.path.exists() or self.path.stat().st_size == 0:  # Killed before its tables.
            return
        try:
            with database.reading(self.path) as connection:
                found = list(database.replies_in(connection))
        except ConfigError:
            if self.model.labels():
                raise
            return
        yield from ((key.kind, reply) for *_, key, reply in found)

    def tool_calls(self) -> Counter[str]:
        return Counter(self.tool_log.read_text().split() if self.tool_log.exists() else ())


class Undisturbed:
    """The result and the requests of a run that is not killed."""

    def __init__(self, victim: Victim) -> None:
        self.result = victim.result
        self.labels = victim.model.labels()
        self.tool_calls = victim.tool_calls()
        self.requests = self.labels.total()

    def request_at(self, part: float) -> int:
        """The number of a request; threads, batch and children get a third of the moments each."""
        described = sum(n for label, n in self.labels.items() if label.startswith("Describe"))
        bounds = (0, described + 1, described + 2 + BATCH, self.requests)
        third = min(int(part * 3), 2)
        first, end = bounds[third], bounds[third + 1]
        return first + int((part * 3 - third) * (end - first))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    victim = Victim(tmp_path_factory.mktemp("undisturbed") / "run", 0)
    with victim.model.server:
        victim.finish()
    found = Undisturbed(victim)
    assert victim.journaled() == set(range(found.requests))
    assert sum(n for label, n in found.labels.items() if label.startswith("Rate")) == BATCH
    assert {n for label, n in found.labels.items() if "step" in label} == {1}
    return found


# -- moments --------------------------------------------------------------------------------------


HOW = {"request": 12, "before write": 3, "after write": 3, "recall": 2, "start": 1}
"""Ways to die, and how often each is drawn."""


def kill_once(victim: Victim, draw: random.Random, target: int) -> bool:
    """Start or resume the run and kill it after about this number of answered requests."""
    known = len(victim.journaled())
    (how,) = draw.choices(list(HOW), list(HOW.values()))
    after, delay = max(1, target - known), draw.expovariate(1 / 0.01)
    number = draw.randint(1, max(1, known) if how == "recall" else 60)
    print(
        f"  attempt {victim.model.attempt + 1}: {known} replies known; {how}: "
        f"{after=} {delay=:.4f} {number=}"
    )
    if how in {"request", "start"}:
        process = victim.start()
        if how == "request":
            victim.model.kill(process.pid, after, delay)
        else:
            time.sleep(draw.uniform(0, 0.6))
            process.kill()
    else:
        process = victim.start(msgspec.convert({"moment": how, "number": number}, Death))
    return victim.wait(process)


def kill_often(folder: Path, seed: int, kills: int, undisturbed: Undisturbed) -> None:
    """So many kills, all over the run; a run that has ended is followed by a fresh one."""
    print(f"seed {seed} (run with CRASH_SEED={seed})")
    draw = random.Random(seed)
    killed, runs = 0, 0
    while killed < kills:
        runs += 1
        victim = Victim(folder / str(runs), 1_000 * seed + runs)
        with victim.model.server:
            left = kills - killed
            for number in range(left):
                target = undisturbed.request_at((number + draw.random()) / left)
                if not attempt(victim, draw, target, undisturbed):
                    break
                killed += 1
            if victim.result is None:
                before = Before(victim)
                victim.finish()
                before.check(victim, undisturbed)
        check_end(victim, undisturbed)


def attempt(victim: Victim, draw: random.Random, target: int, undisturbed: Undisturbed) -> bool:
    before = Before(victim)
    killed = kill_once(victim, draw, target)
    before.check(victim, undisturbed)
    return killed


# -- what must hold -------------------------------------------------------------------------------


class Before:
    """What was in the journal before an attempt."""

    def __init__(self, victim: Victim) -> None:
        self.journaled = victim.journaled()
        self.tools = victim.journaled_tools()
        self.tool_calls = victim.tool_calls()

    def check(self, victim: Victim, undisturbed: Undisturbed) -> None:
        """The attempt asked for nothing that was there, and lost only what was on its way."""
        requests = victim.model.requests()
        have = Counter(requests[number].label for number in self.journaled)
        now = [each for each in requests if each.attempt == victim.model.attempt]
        wanted = undisturbed.labels - have
        assert Counter(each.label for each in now) <= wanted
        bodies = {requests[number].body for number in self.journaled}
        assert not [each.label for each in now if each.body in bodies and not wanted[each.label]]
        journaled = victim.journaled()
        assert journaled >= self.journaled
        lost = {each.number for each in now} - journaled
        assert lost <= on_their_way(now)
        for word in self.tools:
            assert victim.tool_calls()[word] == self.tool_calls[word]


def on_their_way(requests: list[Request]) -> set[int]:
    """The requests of an attempt that may not have been committed at its end.

    A connection carries one at a time, so it is the last of each; or the one before, if the next
    was sent in the very turn of the event loop in which that reply had come.
    """
    by_connection: dict[int, list[int]] = {}
    for each in requests:
        by_connection.setdefault(each.connection, []).append(each.number)
    assert len(by_connection) <= PLACES
    return {number for numbers in by_connection.values() for number in numbers[-2:]}


def check_end(victim: Victim, undisturbed: Undisturbed) -> None:
    """The same end as ever, everything paid for once, and all recorded events can be read."""
    assert victim.result == undisturbed.result
    requests = victim.model.requests()
    journaled = victim.journaled()
    assert Counter(requests[number].label for number in journaled) == undisturbed.labels
    lost = len(requests) - undisturbed.requests
    attempts = victim.model.attempt
    assert lost == len(requests) - len(journaled)
    print(f"  {attempts} attempts, {lost} of {len(requests)} requests were asked for again")
    (summary,) = Archive(Places(victim.folder / "state")).summaries()
    assert not isinstance(summary, ConfigError)
    assert (summary.status, summary.requests) == ("answer", undisturbed.requests)
    last = [msgspec.json.decode(line) for line in events_of(victim.path, last_only=True)]
    assert [last[0]["type"], last[-1]["type"]] == ["run_started", "run_ended"]
    assert victim.tool_calls().keys() == undisturbed.tool_calls.keys()


# -- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in (2, 3, 4))]
)
def test_a_run_killed_five_times_ends_the_same_and_pays_once(
    tmp_path: Path, seed: int, undisturbed: Undisturbed
) -> None:
    kill_often(tmp_path, int(os.environ.get("CRASH_SEED", seed)), 5, undisturbed)


@pytest.mark.heavy
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("kills_a_run", [1, 4, 20])
def test_twenty_kills_with_fresh_seeds(
    tmp_path: Path, turn: int, kills_a_run: int, undisturbed: Undisturbed
) -> None:
    seed = int(os.environ.get("CRASH_SEED", secrets.randbelow(10**6)))
    for part in range(20 // kills_a_run):
        folder = tmp_path / str(part)
        folder.mkdir()
        kill_often(folder, seed + part, kills_a_run, undisturbed)
