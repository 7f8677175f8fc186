"""Find and load what installed distributions offer through entry points.

There are four groups; the name of an entry point is the name users write:

    rlm.clients       a provider: a function, or a class with `for_model`, that takes the name of a
                      model and options, and returns a Client
    rlm.environments  an environment: a class or function that takes options
    rlm.bench_tasks   a task for `rlm bench`: a subclass of `rlm.bench.Task`
    rlm.commands      a command of `rlm`: a click command

Metadata is read only when a name is not built in, or when names are listed.
"""

from functools import cache
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from rlm.errors import ConfigError

__all__ = ["GROUPS", "Group", "Offer", "offers"]

Group = Literal["rlm.clients", "rlm.environments", "rlm.bench_tasks", "rlm.commands"]
GROUPS: dict[Group, str] = {
    "rlm.clients": "client",
    "rlm.environments": "environment",
    "rlm.bench_tasks": "bench task",
    "rlm.commands": "command",
}
"""The groups, and what each holds."""


class Offer(Struct, frozen=True):
    """A name, what it stands for (`module:attribute`), and the distribution that offers it."""

    group: Group
    name: str
    value: str
    distribution: str

    def load(self) -> Any:
        """Import what is offered. A plugin may fail in any way; that becomes a ConfigError."""
        module, _, attribute = self.value.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except Exception as error:  # the plugin boundary: other people's modules
            raise ConfigError(
                f"the {GROUPS[self.group]} {self.name!r} of {self.distribution} can't be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error

    def problem(self) -> str | None:
        """Return why it can't be loaded; None if it can."""
        try:
            self.load()
        except ConfigError as error:
            return str(error)
        return None


@cache
def offers(group: Group) -> dict[str, Offer]:
    """Return what installed distributions offer in a group, sorted by name.

    If two distributions offer the same name, the one that sorts first wins.
    """
    from importlib.metadata import entry_points

    found = [
        Offer(group, each.name, each.value, each.dist.name if each.dist else "")
        for each in entry_points(group=group)
    ]
    first: dict[str, Offer] = {}
    for offer in sorted(found, key=lambda offer: (offer.name, offer.distribution)):
        first.setdefault(offer.name, offer)
    return first
