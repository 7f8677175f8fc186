"""The variables of a REPL as values of this program: data only, within limits.

The REPL writes them as tagged JSON, so that tuples, sets and bytes keep their types; what is no
data comes as its `repr`. The text is not trusted: it is read like everything from a sandbox.
"""

from typing import Any

from rlm._util.untrusted import JsonBounds, read_json

__all__ = ["SNAPSHOT_CODE", "read_values"]

MAX_VALUES_CHARS = 900_000
BOUNDS = JsonBounds(4 * MAX_VALUES_CHARS, 500_000)
MAX_SNAPSHOT_DEPTH = 20
MAX_REPR_CHARS = 500
MAX_ITEMS = 50_000
"""Of a variable with more items in it, only the `repr` is copied."""

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
"""A cell that prints all variables; it leaves none of its own."""

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
