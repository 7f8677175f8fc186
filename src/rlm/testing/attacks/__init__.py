"""The attack list: what hostile code would try, run against any environment.

`await attack(environment)` returns a report with a row for each attempt; `rlm env check NAME
--attacks` prints it. `stopped` is the good verdict. Each attack is a cell in one of the
modules beside this one; whether it worked is judged by what happened outside, wherever that can
be seen. Everything an attack can do is harmless, even if nothing stops it.
"""

from rlm.protocols import Environment
from rlm.testing.attacks import (
    counts,
    endless,
    files,
    hidden,
    kernel,
    neighbours,
    network,
    open_files,
    processes,
    protocol,
    proxies,
    resources,
)
from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.world import World
from rlm.testing.conformance.runner import OnRow, Report, chosen, run_tasks

__all__ = ["ATTACKS", "attack"]

ATTACKS: tuple[Attack, ...] = (
    *files.ATTACKS,
    *hidden.ATTACKS,
    *processes.ATTACKS,
    *network.ATTACKS,
    *kernel.ATTACKS,
    *resources.ATTACKS,
    *counts.ATTACKS,
    *open_files.ATTACKS,
    *endless.ATTACKS,
    *protocol.ATTACKS,
    *neighbours.ATTACKS,
    *proxies.ATTACKS,
)


async def attack(
    environment: Environment, *, only: str | None = None, on_row: OnRow | None = None
) -> Report:
    """Run every attack whose group or name contains `only`; the environment stays open."""
    async with World.around(environment) as world:
        return await run_tasks(chosen((each.task(world) for each in ATTACKS), only), on_row)
