"""Growth: the sizes to measure, and the power of the size with which costs grow."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AXES", "LINEAR", "Axis", "exponent"]

LINEAR = 1.1
"""Up to this power growth is called linear: figures are never quite even."""

_SMALLEST_SHARE = 0.04
"""Of the largest size; below it, a run's beginning and end are most of what is measured."""


@dataclass(frozen=True)
class Axis:
    """A quantity that grows, and the name of one unit."""

    name: str
    title: str
    unit: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    units_each: int = 1
    """How many of what is counted make one of the unit that is shown."""


AXES = {
    f"grow-{each.name}": each
    for each in (
        Axis("steps", "steps of a run", "step", (1, 10, 25, 50, 100, 200), (1, 2, 4)),
        Axis(
            "context",
            "size of the context",
            "MB",
            (1_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000, 1 << 30),
            (1_000_000, 2_000_000, 4_000_000),
            1_000_000,
        ),
        Axis("batch", "width of a batch", "call", (1, 250, 500, 1_000, 2_500, 5_000), (1, 5, 10)),
        Axis("children", "child runs", "child run", (1, 10, 25, 50, 100, 200), (1, 2, 4)),
        Axis("runs", "runs at once", "run", (1, 25, 50, 100, 250, 500), (1, 2, 4)),
    )
}


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float | None:
    """Return the power of the size with which costs grow, after subtracting the smallest cost.

    1 is linear, 2 is quadratic; a straight line is fitted to the logarithms of the larger sizes.
    None if fewer than two of them cost more than the smallest.
    """
    least_size, least = sizes[0], costs[0]
    points = [
        (math.log(size - least_size), math.log(cost - least))
        for size, cost in zip(sizes, costs, strict=True)
        if size - least_size >= _SMALLEST_SHARE * sizes[-1] and cost > least
    ]
    if len(points) < 2:
        return None
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
