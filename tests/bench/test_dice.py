"""Random numbers that must never change, because every sample is made from them."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from rlm.bench.random_text import Dice

CODE = (
    "from rlm.bench.random_text import Dice; d = Dice('a', 1); "
    "print([d.below(1000) for _ in range(8)])"
)


def test_the_stream_of_a_key_is_fixed_for_all_time() -> None:
    dice = Dice("a", 1)
    assert [dice.below(1000) for _ in range(8)] == [790, 488, 424, 714, 611, 536, 620, 623]
    assert Dice("a", 1).bits() == 14573198711270835958
    assert Dice(1).bits() != Dice("1").bits()
    assert Dice("a", "b").bits() != Dice("ab").bits()


def test_it_is_splitmix64_as_published() -> None:
    dice = Dice()
    dice._state = 0
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [dice.bits() for _ in range(3)] == published


def test_the_stream_does_not_depend_on_how_python_hashes() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("0", "1234")
    }
    assert len(said) == 1


def test_numbers_are_uniformly_distributed() -> None:
    dice = Dice("even")
    counts = [0] * 10
    for _ in range(10_000):
        counts[dice.below(10)] += 1
    assert min(counts) > 880  # four standard deviations below a thousand
    assert max(counts) < 1_120


@given(st.integers(0, 2**60), st.integers(1, 10**9))
def test_numbers_stay_within_their_bounds(seed: int, bound: int) -> None:
    dice = Dice(seed)
    assert 0 <= dice.below(bound) < bound
    assert bound <= dice.between(bound, bound + 3) <= bound + 3


@given(st.integers(0, 10**6), st.lists(st.integers(), max_size=30), st.data())
def test_shuffling_and_sampling_keep_every_item_once(
    seed: int, items: list[int], data: st.DataObject
) -> None:
    dice, places = Dice(seed), list(range(len(items)))
    dice.shuffle(places)
    assert sorted(places) == list(range(len(items)))
    count = data.draw(st.integers(0, len(items)))
    taken = dice.sample(range(len(items)), count)
    assert len(set(taken)) == count
    assert set(taken) <= set(range(len(items)))
