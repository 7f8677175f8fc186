"""How a lane learns what its server takes."""

from rlm.calls.pacing import Lane
from rlm.calls.pacing.lanes import FIRST_WINDOW


def used(lane: Lane) -> Lane:
    lane.active = lane.width
    return lane


def test_it_grows_by_one_for_each_success_that_uses_all_of_it() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    assert lane.width == FIRST_WINDOW
    lane.grow(lane.epoch)
    assert lane.width == FIRST_WINDOW + 1
    lane.grow(lane.epoch)  # one place is free now: there is no reason to grow
    assert lane.width == FIRST_WINDOW + 1


def test_it_never_grows_beyond_what_is_allowed() -> None:
    lane = Lane(20)
    for _ in range(100):
        used(lane).grow(lane.epoch)
    assert lane.width == 20
    assert Lane(4).width == 4


def test_a_hundred_refusals_of_one_round_halve_it_once() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    sent_in = lane.epoch
    for _ in range(100):
        lane.shrink(sent_in)
    assert lane.width == FIRST_WINDOW // 2
    lane.shrink(lane.epoch)  # this one was sent after the cut
    assert lane.width == FIRST_WINDOW // 4


def test_it_never_closes() -> None:
    lane = Lane(64)
    for _ in range(20):
        lane.shrink(lane.epoch)
    assert lane.width == 1


def test_after_the_first_cut_it_grows_by_one_a_round() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    lane.shrink(lane.epoch)
    for _ in range(lane.width + 1):
        used(lane).grow(lane.epoch)
    assert lane.width == FIRST_WINDOW // 2 + 1


def test_successes_from_before_the_cut_do_not_make_up_for_it() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    before = lane.epoch
    lane.shrink(before)
    for _ in range(100):
        used(lane).grow(before)
    assert lane.width == FIRST_WINDOW // 2


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    lane = Lane(64)
    lane.pause(30.0, "long")
    lane.pause(10.0, "short")
    assert (lane.opens_at(5.0), lane.pause_reason) == (30.0, "long")
    assert lane.opens_at(31.0) == 31.0
    assert not lane.paused_until
