"""From monty to full Python: a session of `local` gets the contexts, the variables, the functions.

What crosses is plain data, by exact types (`inside/carrying.py`); imports, functions and simple
classes are defined again from their source. The rest is lost, and told.
"""

import pickle
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from rlm.environments.monty.interpreter import Crashed, Interpreter
from rlm.environments.monty.tracebacks import Raised
from rlm.errors import SessionError
from rlm.protocols import ContextSource, Session

__all__ = ["Cargo", "deliver", "pack"]

_MOST_BYTES = 64 << 20
_LANDING_SECONDS = 60.0
_WEIGH = (
    "[_rlm_weigh(n, v) for n, v in _rlm_users_own(locals())]"
    " + ([_rlm_weigh('answer', answer)] if isinstance(answer, dict) else [])"
)
_Weights = list[tuple[str, int, str]]


class Cargo(NamedTuple):
    """Values as (kind, plain value); sources to run again; why each lost name is lost."""

    values: dict[str, tuple[str, Any]]
    sources: list[str]
    lost: dict[str, str]


async def pack(
    interpreter: Interpreter, names: Sequence[str], definitions: Mapping[str, str]
) -> Cargo:
    """Take out of a worker what can be carried; `names` are the variables it should have."""
    values: dict[str, tuple[str, Any]] = {}
    lost: dict[str, str] = {}
    sources = list(dict.fromkeys(definitions.values()))
    try:
        weights = msgspec.convert(await interpreter.value_of(_WEIGH), _Weights)
    except (Crashed, Raised, msgspec.ValidationError) as error:
        return Cargo({}, sources, {n: str(error) for n in names if n not in definitions})
    room = _MOST_BYTES
    chosen = []
    for name, weight, why in sorted(weights, key=lambda row: row[1]):
        if not name.isidentifier() or name in definitions:
            continue
        if why or weight > room:
            lost[name] = why or f"it is too large ({weight:,} bytes)"
            continue
        room -= weight
        chosen.append(name)
    try:
        values = _checked(await interpreter.value_of(_packing(chosen)))
    except (Crashed, Raised, ValueError, TypeError, RecursionError) as error:
        lost |= dict.fromkeys(chosen, str(error) or type(error).__name__)
    return Cargo(values, sources, lost)


def _packing(names: Sequence[str]) -> str:
    return "{" + ", ".join(f"{name!r}: _rlm_packed({name})" for name in names) + "}"


def _checked(packed: Any) -> dict[str, tuple[str, Any]]:
    rows = msgspec.convert(packed, dict[str, tuple[str, Any, int]])
    return {name: (kind, value) for name, (kind, value, _) in rows.items()}


async def deliver(
    cargo: Cargo, contexts: Mapping[str, ContextSource], session: Session
) -> dict[str, str]:
    """Put everything into a fresh session; what was lost, and why."""
    for name, context in contexts.items():
        await session.load(name, context)
    lost = dict(cargo.lost)
    for source in cargo.sources:
        defined = await session.execute(source, timeout_seconds=_LANDING_SECONDS)
        if defined.error is not None:
            lost[source.partition("\n")[0]] = defined.error.message
    bound = {name: why for name, why in lost.items() if name.isidentifier()}
    await session.load("_rlm_carried", _Pickled(pickle.dumps((cargo.values, bound))))
    landing = files("rlm.environments.monty").joinpath("landing.py").read_text("utf-8")
    landed = await session.execute(landing, timeout_seconds=_LANDING_SECONDS)
    if landed.error is not None:
        raise SessionError(f"the variables could not be carried over: {landed.error.message}")
    return lost


class _Pickled:
    """Implements `rlm.protocols.ContextSource`."""

    kind: Any = "bytes"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def chunks(self, chunk_bytes: int) -> Any:
        """The bytes in pieces."""
        for start in range(0, self.size_bytes, chunk_bytes):
            yield self._data[start : start + chunk_bytes]
