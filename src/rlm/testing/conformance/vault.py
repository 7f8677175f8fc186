"""An object of the host for checks and attacks: some members are for cells, and others are not.

Its tools are real, and called through the engine's own bridge. `entered` names the members that
were reached although no cell may reach them.
"""

import functools
import secrets
from typing import Any

from rlm.calls.scope import Scope, Tree
from rlm.config import RunConfig
from rlm.engine.bridge import Bridge
from rlm.limits import Budget, Limits
from rlm.tools import as_tools

__all__ = ["VAULT_TOOLS", "Vault", "bridge_to", "evidence_in"]

NAME = "vault"
_MAX_CALLS = 1_000_000


class _Inner:
    """An attribute of the vault, with a method of its own."""

    def __init__(self, vault: "Vault") -> None:
        self._vault = vault

    def deep(self) -> str:
        return self._vault._enter("a method of an attribute")


class Vault:
    """Holds a secret."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(8)
        self.entered: list[str] = []
        self.calls = 0
        self.inner = _Inner(self)
        self.opener = lambda: self._enter("an attribute of the object")

    def echo(self, value: Any = None) -> Any:
        """Return the value."""
        self.calls += 1
        return value

    def put(self, item: int, shelf: list[int] = []) -> list[int]:  # noqa: B006 - it is attacked
        """Return the shelf with the item."""
        return [*shelf, item] if shelf else shelf

    def itself(self) -> "Vault":
        """Return the vault; cells get only its name."""
        return self

    def _reveal(self, level: int) -> str:
        return "nothing" if level == 0 else self._enter("an argument that was fixed")

    reveal = functools.partialmethod(_reveal, level=0)

    @property
    def opened(self) -> str:
        return self._enter("a property")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: self._enter("a method that __getattr__ created")

    def _enter(self, what: str) -> str:
        self.entered.append(what)
        return self.secret


def evidence_in(vault: Vault, output: str) -> str | None:
    """Return what was reached in a vault although no cell may reach it, and forget it."""
    found, vault.entered = vault.entered, []
    defaults = Vault.put.__defaults__
    Vault.put.__defaults__ = ([],)
    if found:
        return f"it reached {found[0]}"
    if vault.secret in output:
        return "it knows the secret of the vault"
    return "it changed the default of a method" if defaults != ([],) else None


def bridge_to(vault: Vault) -> Bridge:
    """Return the bridge of a run whose only tools are those of the vault."""
    limits = Limits(max_calls=_MAX_CALLS)
    scope = Scope(run_id="suite", budget=Budget(limits), recorders=(), tree=Tree(1))
    config = RunConfig(model="none", sub_model="none", limits=limits)
    nothing: Any = None
    return Bridge(nothing, config, scope, nothing, as_tools({NAME: vault})[0])


VAULT_TOOLS = [
    {"name": tool.name, "description": tool.description} for tool in as_tools({NAME: Vault()})[0]
]
