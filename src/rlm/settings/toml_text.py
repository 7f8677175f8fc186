"""Change one value in a TOML text, and nothing else: comments and the order of lines stay.

Only what `rlm config` itself writes is understood: `name = value` lines, at the top or below a
`[table]`. The result is parsed again and compared with the intended data, so a text that spells a
value in another way (a dotted key, an inline table, a multi-line text) is refused, never damaged.
"""

import json
import re
from typing import Any

from rlm.errors import ConfigError

__all__ = ["change", "parsed", "written"]

HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(#.*)?")
VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^"'\[{#\s][^#\n]*?)"""
MOST_DOTS = 100
"""The most dots in one line: parsing a dotted name takes quadratic time."""


def parsed(text: str) -> dict[str, Any]:
    """Parse a TOML text; ValueError says where it is wrong."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MOST_DOTS:
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    import tomllib  # slow to import, and many users have no file

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def written(value: Any) -> str:
    """Return a value as TOML: a text, a number or a boolean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    # TOML has the escapes of JSON; only DEL, which JSON leaves alone, must be escaped too.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def change(text: str, table: str, name: str, value: Any) -> str:
    """Return the text with a value set; with None, removed. `table` is empty for the top."""
    wanted = _changed(parsed(text), table, name, value)
    lines = text.removesuffix("\n").split("\n") if text else []  # other separators are content
    first, end = _section(lines, table)
    at = next((n for n in range(first, end) if _is_line_of(lines[n], name)), None)
    if value is None:
        lines = lines if at is None else [*lines[:at], *lines[at + 1 :]]
    elif at is not None:
        lines[at] = _replaced(lines[at], value)
    else:
        lines = _added(lines, table, first, end, f"{name} = {written(value)}")
    changed = "".join(f"{line}\n" for line in lines)
    try:
        is_right = parsed(changed) == wanted
    except (ValueError, RecursionError):
        is_right = False
    if not is_right:
        where = f"{table}.{name}" if table else name
        raise ConfigError(f"rlm can't change {where} in this form: edit the file")
    return changed


def _changed(data: dict[str, Any], table: str, name: str, value: Any) -> dict[str, Any]:
    """Return the data that the changed text must hold."""
    own = data.get(table, {}) if table else data
    if not isinstance(own, dict):
        raise ConfigError(f"{table} is not a table: edit the file")
    changed = {key: each for key, each in own.items() if key != name}
    if value is not None:
        changed[name] = value
    if not table:
        return changed
    return {**data, table: changed} if changed or table in data else data


def _section(lines: list[str], table: str) -> tuple[int, int]:
    """Return the first line after a table's header, and the line after its last one."""
    headers = [(n, line) for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    starts = {found[1]: n for n, line in headers if (found := HEADER.fullmatch(line))}
    if table and table not in starts:
        return len(lines), len(lines)
    first = starts[table] + 1 if table else 0
    end = next((n for n, _ in headers if n >= first), len(lines))
    return first, end


def _is_line_of(line: str, name: str) -> bool:
    return re.match(rf"\s*(?:{name}|\"{name}\"|'{name}')\s*=", line) is not None


def _replaced(line: str, value: Any) -> str:
    """Return the line with another value and its comment; unchanged if its value is not simple."""
    found = re.fullmatch(rf"(\s*[^=]+=\s*){VALUE}(\s*(?:#.*)?)", line)
    return line if found is None else f"{found[1]}{written(value)}{found[2]}"


def _added(lines: list[str], table: str, first: int, end: int, new: str) -> list[str]:
    if table and first == end == len(lines) and not any(_is_header(line, table) for line in lines):
        space = [""] if lines else []
        return [*lines, *space, f"[{table}]", new]
    last = max((n + 1 for n in range(first, end) if lines[n].strip()), default=first)
    rest = lines[last:]
    space = [""] if rest and rest[0].strip() else []
    return [*lines[:last], new, *space, *rest]


def _is_header(line: str, table: str) -> bool:
    found = HEADER.fullmatch(line)
    return found is not None and found[1] == table
