"""The variables of a REPL as values of this program: data only, within limits.

For `LocalREPL`, the REPL writes them as tagged JSON, so that tuples, sets and bytes keep their
types; what is not data comes as its `repr`. For logs, it writes a bounded part of them in the
reference's form. Neither text is trusted: it is read like everything from a sandbox.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from rlm._util.untrusted import JsonBounds, read_json
from rlm.calls.scope import Scope
from rlm.errors import SessionError
from rlm.events import CellEnded, Event
from rlm.protocols import Session
from rlm.worker.namespace import PRELOADED
from rlm.worker.repl_names import REPL_NAMES

__all__ = ["LOCALS_CODE", "SNAPSHOT_CODE", "CellValues", "read_values"]

MAX_VALUES_CHARS = 900_000
BOUNDS = JsonBounds(4 * MAX_VALUES_CHARS, 500_000, exponents=500_000)
MAX_SNAPSHOT_DEPTH = 20
MAX_REPR_CHARS = 500
MAX_ITEMS = 50_000
"""If a variable contains more items, only its `repr` is copied."""

SNAPSHOT_CODE = f"""
def _rlm_snapshot():
    import json

    def shown(value):
        try:
            return ["r", repr(value)[:{MAX_REPR_CHARS}]]
        except Exception:
            return ["r", "<" + type(value).__name__ + ">"]

    def form(value, depth):
        count[0] += 1
        if count[0] > {MAX_ITEMS}:
            raise OverflowError
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return ["v", value] if kind is not int or abs(value) < 10**300 else shown(value)
        if kind is float:
            return ["v", value] if value - value == 0 else shown(value)
        if depth < {MAX_SNAPSHOT_DEPTH}:
            for tag, container in (("l", list), ("t", tuple), ("s", set), ("f", frozenset)):
                if kind is container:
                    return [tag, [form(each, depth + 1) for each in value]]
            if kind is dict:
                pairs = [[form(k, depth + 1), form(v, depth + 1)] for k, v in value.items()]
                return ["d", pairs]
        return ["b", value.hex()] if kind is bytes else shown(value)

    room, found, count = {MAX_VALUES_CHARS}, {{}}, [0]
    for name, value in list(globals().items()):
        if name[:1] == "_" or not name.isidentifier():
            continue
        count[0] = 0
        try:
            text = json.dumps(form(value, 0))
        except OverflowError:
            text = ""
        if not text or len(text) > room:
            text = json.dumps(shown(value))
        room -= len(text) + len(name)
        if room > 0:
            found[name] = json.loads(text)
    return json.dumps(found)

print(_rlm_snapshot())
del _rlm_snapshot
"""
"""A cell that prints all variables and leaves none behind."""

YIELDING = frozenset(entry.name for entry in REPL_NAMES if entry.yields)
"""Functions of every REPL whose names are often variables of the model, such as `pairs`."""
PUBLISHED = frozenset(
    [entry.name for entry in REPL_NAMES if entry.name not in {"context", "context_0", "answer"}]
    + [*PRELOADED]
).difference(YIELDING)
"""Functions and aliases of every REPL, which are not variables of the model."""

SEQUENCES = {"l": list, "t": tuple, "s": set, "f": frozenset}


def read_values(text: str) -> dict[str, Any] | None:
    """Return what the cell printed, by name; None if it is not what such a cell prints."""
    try:
        found = read_json(text.strip(), BOUNDS)
        return {str(name): _value(form) for name, form in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _value(form: Any) -> Any:
    tag, content = form
    if tag in {"v", "r"}:
        return content
    if tag == "b":
        return bytes.fromhex(content)
    if tag == "d":
        return {_value(key): _value(value) for key, value in content}
    return SEQUENCES[tag](_value(each) for each in content)


# -- the variables after each cell, for `locals` in logs -------------------------------------------

MAX_LOCALS_CHARS = 200_000
MAX_LOCAL_CHARS = 2_000
MAX_LOCAL_ITEMS = 100
MAX_LOCALS_DEPTH = 6
LOCALS_SECONDS = 5.0
MAX_CELLS_KEPT = 1_000
LOCALS_BOUNDS = JsonBounds(8 * MAX_LOCALS_CHARS, 200_000, exponents=200_000)

LOCALS_CODE = f"""
def _rlm_locals():
    import json

    def cut(text):
        rest = f"… ({{len(text):,}} characters)" if len(text) > {MAX_LOCAL_CHARS} else ""
        return text[:{MAX_LOCAL_CHARS}] + rest

    def form(value, depth):
        kind = type(value)
        if value is None or kind is bool or (kind is int and abs(value) < 10**300):
            return value
        if kind is float and value - value == 0:
            return value
        if kind is str:
            return cut(value)
        if depth < {MAX_LOCALS_DEPTH} and kind in (list, tuple):
            return [form(each, depth + 1) for each in value[:{MAX_LOCAL_ITEMS}]]
        if depth < {MAX_LOCALS_DEPTH} and isinstance(value, dict):
            pairs = list(value.items())[:{MAX_LOCAL_ITEMS}]
            return {{cut(str(k)): form(v, depth + 1) for k, v in pairs}}
        if kind is type(json):
            return f"<module '{{value.__name__}}'>"
        try:
            if callable(value):
                return cut(f"<{{kind.__name__}} '{{getattr(value, '__name__', repr(value))}}'>")
            return cut(repr(value))
        except Exception:
            return f"<{{kind.__name__}}>"

    room, found = {MAX_LOCALS_CHARS}, {{}}
    for name, value in list(globals().items()):
        if name[:1] == "_" or not name.isidentifier() or name in _rlm_published:
            continue
        if name in _rlm_operators and callable(value):
            continue
        try:
            text = json.dumps(form(value, 0))
        except Exception:
            text = json.dumps(f"<{{type(value).__name__}}>")
        if len(text) > room:
            text = json.dumps(f"<{{type(value).__name__}}>")
        room -= len(text) + len(name)
        if room > 0:
            found[name] = json.loads(text)
    return json.dumps(found)

print(_rlm_locals())
del _rlm_locals, _rlm_operators, _rlm_published
"""
"""A cell that prints all variables in the reference's form: data as it is, but not all of a long
text or list, and anything else as its `repr`. It leaves no name of its own.
"""


class CellValues:
    """Copies the variables of a session after every cell, and keeps them for `locals` in logs.

    If a hostile cell disturbs the copying, there is no copy: the log then has types and sizes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, int], dict[str, Any]] = OrderedDict()

    async def __call__(self, session: Session, scope: Scope, cell: int) -> None:
        names = f"_rlm_published, _rlm_operators = {sorted(PUBLISHED)!r}, {sorted(YIELDING)!r}"
        code = f"{names}\n{LOCALS_CODE}"
        try:
            shot = await session.execute(code, timeout_seconds=LOCALS_SECONDS)
            found = read_json(shot.stdout.strip(), LOCALS_BOUNDS)
        except (SessionError, ValueError):
            return  # The next cell finds a session that died, and recovers.
        if isinstance(found, dict):
            self._kept[scope.run_id, scope.step, cell] = found
            while len(self._kept) > MAX_CELLS_KEPT:
                self._kept.popitem(last=False)

    def after(self, event: CellEnded) -> dict[str, Any] | None:
        """Return the variables after a cell, if they are known."""
        return self._kept.get((event.run_id, event.step, event.cell))

    def forget(self, events: Iterable[Event]) -> None:
        """Forget the variables of the runs that these events belong to."""
        ended = {event.run_id for event in events}
        self._kept = OrderedDict(pair for pair in self._kept.items() if pair[0][0] not in ended)
