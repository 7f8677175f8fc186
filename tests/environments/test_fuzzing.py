"""The hostile worker, for a few sessions on each host side; `make test-fuzz` has it for minutes."""

import pytest

from rlm.environments import _calls, _frames
from rlm.errors import CallRefused, ProtocolViolation
from rlm.results import CellResult
from rlm.worker import wire
from tests.environments.fuzzing import DecodesWatched, Tally, attack, check_result
from tests.environments.host_places import PLACES
from tests.environments.hostile_worker import KINDS, HostileWorker, parts_of_answer

SEEDS = range(4)  # `make test-fuzz` tries as many as it can in minutes.


@pytest.mark.parametrize("place", PLACES)
async def test_no_hostile_worker_harms_the_host(place: str) -> None:
    tally = Tally()
    with DecodesWatched():
        for seed in SEEDS:
            await attack(place, seed, tally, traced=seed == 0)
    print(f"{place}: {tally.line()}")
    assert tally["sessions"] == len(SEEDS)
    assert tally["frames"] >= len(SEEDS)


async def frames_of(seed: int) -> bytes:
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    worker = HostileWorker(write, seed)
    for number in range(5):
        await worker.take(wire.encode(wire.EXEC, number, [b"x"]))
    return b"".join(written)


async def test_a_seed_determines_everything_a_worker_does() -> None:
    first, again = [await frames_of(7) for _ in range(2)]
    assert first == again
    assert first != await frames_of(8)


@pytest.mark.heavy
async def test_seeds_reach_every_kind_of_call_and_of_failure() -> None:
    kinds, refused = set(), 0
    for seed in range(50):
        decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
        try:
            decoder.feed(await frames_of(seed))
            while (frame := decoder.pop()) is not None:
                if frame.type == wire.CALL:
                    kinds.add(_calls.read_call(frame).kind)
        except (wire.WireError, ProtocolViolation, CallRefused):
            refused += 1
    assert kinds == {each.decode() for each in KINDS}
    assert 5 < refused < 50


def test_the_checks_of_results_can_fail() -> None:
    check_result(CellResult(stdout="x"))
    for wrong in (
        CellResult(stdout="x" * 5_000),
        CellResult(new_variables={"n" * 300: "int"}),
    ):
        with pytest.raises(AssertionError):
            check_result(wrong)


def test_an_honest_answer_is_honest() -> None:
    answer = parts_of_answer(wire.Frame(wire.EXEC, 1, [b"x"]))
    assert answer is not None
    read = _frames.read_done(wire.Frame(*(wire.DONE, 1, answer[1])), calls=0, seconds=0.0)
    assert (read.result.stdout, read.result.new_variables) == ("ok\n", {"x": "int"})
