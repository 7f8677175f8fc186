"""Turn variables into bytes and back. It runs inside a sandbox, as the text of a cell.

It therefore imports nothing of `rlm` and is Python 3.9. The host never unpickles the bytes: only a
sandbox does. Functions and classes are saved as source, because pickle stores only their names;
modules are saved by name.
"""

from __future__ import annotations

import ast
import base64
import functools
import importlib
import io
import json
import linecache
import pickle
import re
import sys
import textwrap
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["Pieces", "import_all", "restore", "restore_first", "save"]

_PIECE_BYTES = 6 << 20
_TRIED_BYTES = 32 << 20
"""A pickle up to this size is also read back at once: not everything that can be written can be
read.
"""

_PRIVATE = re.compile(r"_(?!rlm_|[io]?h$|dh$|i{1,3}$|i?\d+$)[A-Za-z]\w*")
"""Private names of the user, but not those of IPython."""

PRELOADED_MODULES = ("re", "json", "math")
"""Modules that every REPL has imported: `worker/namespace.py` names them."""

_MAKES_A_CLASS = frozenset({"namedtuple", "NamedTuple", "make_dataclass", "Enum", "TypedDict"})
_FEW = 256
_IMPORTED = (type, types.FunctionType, types.BuiltinFunctionType, functools._lru_cache_wrapper)
_CALLABLES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FUNCTIONS = (types.FunctionType, functools._lru_cache_wrapper)
_BLOCKS = (ast.If, ast.Try, ast.With, ast.For, ast.While)


class Pieces:
    """Bytes as text, one piece each time it is converted to a str; pieces are returned once.

    The first piece is a report in JSON; an empty piece is the end.
    """

    def __init__(self, report: dict[str, Any], data: bytes) -> None:
        self._texts = self._pieces(report, data)

    def _pieces(self, report: dict[str, Any], data: bytes) -> Iterator[str]:
        yield json.dumps(report)
        for start in range(0, len(data), _PIECE_BYTES):
            yield base64.b64encode(data[start : start + _PIECE_BYTES]).decode("ascii")

    def __str__(self) -> str:
        return next(self._texts, "")


class _TooLarge(Exception):
    """There are more bytes than may be saved."""


class _Sink(io.BytesIO):
    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._left = max_bytes

    def write(self, data: Any) -> int:
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            raise _TooLarge("it is too large")
        return super().write(data)


# -- saving ---------------------------------------------------------------------------------------


def save(space: dict[str, Any], contexts: list[str], max_bytes: int) -> Pieces:
    """Pickle everything the user's code has bound, as far as possible; report the rest."""
    names = _users_names(space)
    imports = {name: home for name in names if (home := _import_of(space[name]))}
    definitions = {}
    for name in names:
        found = None if name in imports else _definition(name, space[name])
        if found is not None:
            definitions[name] = found
    keeper = _Keeper(space, set(names), set(definitions), contexts, max_bytes)
    values = {n: space[n] for n in names if n not in imports and n not in definitions}
    first = keeper.keep_first(values, [source for _, source in definitions.values()])
    data, lost = keeper.keep(values, _states(space, definitions))
    report = {
        "names": [name for name in names if name not in lost],
        "imports": imports,
        "definitions": [[name, source] for name, (_, source) in _in_order(definitions)],
        "lost": lost,
    }
    return Pieces(report, len(first).to_bytes(8, "little") + first + data)


def _import_of(value: Any) -> str | None:
    """Return where to import a value from: a module, or an attribute of one."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if not isinstance(value, _IMPORTED) or value.__module__ in {None, "__main__"}:
        return None
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return f"{value.__module__}:{value.__qualname__}" if found is value else None


def _users_names(space: dict[str, Any]) -> list[str]:
    shown = [line.partition(":")[0] for line in str(space["SHOW_VARS"]()).splitlines()]
    names = {name: None for name in shown if name.isidentifier() and name in space}
    for name, value in list(space.items()):
        is_module = isinstance(value, types.ModuleType) and not name.startswith("_")
        if is_module and name in PRELOADED_MODULES and value.__name__ == name:
            continue  # Every REPL has it.
        if isinstance(name, str) and (is_module or _PRIVATE.fullmatch(name)):
            names[name] = None
    return list(names)


def _in_order(definitions: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(definitions.items(), key=lambda each: each[1][0])


def _states(space: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return what the source of functions does not contain: evaluated defaults, attributes."""
    found = {}
    for name in definitions:
        value = space[name]
        if type(value) is types.FunctionType and not hasattr(value, "__wrapped__"):
            state = (value.__defaults__, value.__kwdefaults__, value.__dict__)
            if any(state):
                found[name] = state
    return found


class _Keeper:
    """Pickles variables together, so that shared objects stay shared."""

    def __init__(
        self,
        space: dict[str, Any],
        names: set[str],
        definitions: set[str],
        contexts: list[str],
        max_bytes: int,
    ) -> None:
        self._space = space
        self._names = names
        self._definitions = definitions
        self._most_bytes = max_bytes
        self._shared = {}
        for name, value in space.items():
            ours = name not in names and not name.startswith("_")
            if ours and (name in contexts or callable(value)) and not _is_small(value):
                self._shared[id(value)] = name

    def keep_first(self, values: dict[str, Any], sources: list[str]) -> bytes:
        """Pickle what functions and classes need when they are defined: defaults, constants.

        It is saved again together with everything else, and bound again.
        """
        known, self._definitions = self._definitions, set()
        wanted = {name for source in sources for name in _used_at_once(ast.parse(source))}
        kept = {}
        for name in sorted(wanted & values.keys()):
            data, _ = self._pickled(values[name])
            if data is not None and len(data) <= _TRIED_BYTES:
                kept[name] = values[name]
        data, _ = self._pickled(kept)
        self._definitions = known
        return data or pickle.dumps({})

    def keep(self, values: dict[str, Any], states: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        """Return the bytes, and why the other variables are lost."""
        data, _ = self._pickled((values, states))
        if data is not None:
            return data, {}
        states = {name: state for name, state in states.items() if self._pickled(state)[0]}
        sizes, lost = {}, {}
        for name, value in values.items():
            data, problem = self._pickled(value)
            if data is None:
                lost[name] = problem
            else:
                sizes[name] = len(data)
        kept, left = {}, self._most_bytes - _FEW
        for name in sorted(sizes, key=lambda each: sizes[each]):
            left -= sizes[name] + len(name) + _FEW
            if left < 0:
                lost[name] = "there is no room for it"
            else:
                kept[name] = values[name]
        data, problem = self._pickled((kept, states))
        if data is None:
            return b"", {**lost, **dict.fromkeys(kept, problem)}
        return data, lost

    def _pickled(self, value: Any) -> tuple[bytes | None, str]:
        """Return the bytes of a value, or why there are none; this runs the user's code."""
        sink = _Sink(self._most_bytes)
        try:
            _Pickler(sink, self._shared, self._is_known).dump(value)
            data = sink.getvalue()
            if len(data) <= _TRIED_BYTES:
                _Unpickler(data, self._space).load()
        except Exception as error:  # noqa: BLE001 - whatever a user's type raises is reported
            return None, f"{type(error).__name__}: {error}"[:_FEW]
        return data, ""

    def _is_known(self, value: Any) -> bool:
        """Whether a function or class of the REPL will exist again under its name."""
        root = value.__qualname__.partition(".")[0]
        return root in self._definitions or (root in self._space and root not in self._names)


def _is_small(value: Any) -> bool:
    """Whether a copy of a value is indistinguishable from it and costs nothing."""
    if isinstance(value, (str, bytes)):
        return len(value) < _FEW
    return isinstance(value, (int, float, type(None)))


class _Pickler(pickle.Pickler):
    def __init__(self, sink: Any, shared: dict[int, str], is_known: Any) -> None:
        super().__init__(sink, protocol=4)
        self._shared = shared
        self._is_known = is_known

    def persistent_id(self, value: Any) -> str | None:
        """Save by name what the REPL provides: contexts and tools will exist again."""
        return self._shared.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        is_defined = isinstance(value, (types.FunctionType, type))
        if is_defined and value.__module__ == "__main__" and not self._is_known(value):
            raise pickle.PicklingError(f"the source of {value.__qualname__} is not known")
        return NotImplemented


# -- the source of functions and classes ----------------------------------------------------------


def _definition(name: str, value: Any) -> tuple[tuple[int, int], str] | None:
    """Return where a function or class was made, and its source; None for other values."""
    if isinstance(value, type):
        if value.__module__ != "__main__" or value.__qualname__ != name:
            return None
    elif not isinstance(value, _FUNCTIONS) or getattr(value, "__module__", "") != "__main__":
        return None
    cells = [each for each in linecache.cache if each.startswith("<")]
    line, inside = _place(value)
    is_class = isinstance(value, type)
    for index in range(len(cells) - 1, -1, -1):
        if inside in {None, cells[index]}:
            source = "".join(linecache.getlines(cells[index]))
            found = _statement(source, name, line, is_class)
            # A closure of that name was made by a decorator, or is unrelated.
            if found is not None and (is_class or line or getattr(found, "decorator_list", None)):
                return (index, found.lineno), _text_of(source, found)
    return None


def _place(value: Any) -> tuple[int | None, str | None]:
    """Return the line and file of its code; a function made by a decorator has neither."""
    if isinstance(value, type):
        functions = [e for e in vars(value).values() if isinstance(e, types.FunctionType)]
        codes = [e.__code__ for e in functions if e.__code__.co_filename.startswith("<cell")]
    else:
        inner = value
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        if getattr(inner, "__closure__", None) and inner is value:
            return None, None
        codes = [inner.__code__] if isinstance(inner, types.FunctionType) else []
    return (codes[0].co_firstlineno, codes[0].co_filename) if codes else (None, None)


def _statement(source: str, name: str, line: int | None, is_class: bool) -> Any:
    """Return the last statement of a cell that made it, outside functions and classes."""
    try:
        todo: list[Any] = [ast.parse(source)]
    except (SyntaxError, ValueError):
        return None
    found: Any = None
    while todo:
        children: list[Any] = list(ast.iter_child_nodes(todo.pop()))
        for child in children:
            if isinstance(child, _BLOCKS):
                todo.append(child)
            elif _makes(child, name, is_class) and _covers(child, line):
                found = child if found is None or child.lineno > found.lineno else found
    return found


def _makes(node: Any, name: str, is_class: bool) -> bool:
    if isinstance(node, ast.ClassDef):
        return is_class and node.name == name
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return not is_class and node.name == name
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Name) or target.id != name:
        return False
    if is_class:
        called = getattr(value, "func", None)
        return getattr(called, "id", getattr(called, "attr", None)) in _MAKES_A_CLASS
    return isinstance(value, ast.Lambda)


def _used_at_once(node: Any) -> Iterator[str]:
    """Yield names that a definition looks up when it is executed, not only when it is called."""
    if isinstance(node, ast.Name):
        yield node.id
    for name, field in ast.iter_fields(node):
        called_later = isinstance(node, _CALLABLES) and name == "body"
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not called_later:
                yield from _used_at_once(child)


def _covers(node: Any, line: int | None) -> bool:
    return line is None or _first_line(node) <= line <= node.end_lineno


def _first_line(node: Any) -> int:
    first: int = min([node.lineno, *(e.lineno for e in getattr(node, "decorator_list", ()))])
    return first


def _text_of(source: str, node: Any) -> str:
    lines = io.StringIO(source, newline=None).readlines()[_first_line(node) - 1 : node.end_lineno]
    text = textwrap.dedent("".join(lines))
    try:
        ast.parse(text)
    except SyntaxError:  # It shares lines with other statements.
        return ast.unparse(node)
    return text


# -- bringing back --------------------------------------------------------------------------------


def import_all(space: dict[str, Any], imports: dict[str, str]) -> Pieces:
    """Import what was imported; report what is lost."""
    lost = {}
    for name, home in imports.items():
        module, _, path = home.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for part in path.split(".") if path else ():
                value = getattr(value, part)
            space[name] = value
        except Exception as error:  # noqa: BLE001 - a module may do anything on being imported
            lost[name] = f"{type(error).__name__}: {error}"[:_FEW]
    return Pieces({"lost": lost}, b"")


def restore_first(space: dict[str, Any], data: Any) -> Pieces:
    """Bind what definitions need."""
    size = int.from_bytes(data[:8], "little")
    return Pieces({"problem": _bound(space, data[8 : 8 + size], space.update) if data else ""}, b"")


def restore(space: dict[str, Any], data: Any) -> Pieces:
    """Bind all variables; report if that was impossible."""

    def bind(found: Any) -> None:
        values, states = found
        space.update(values)
        for name, state in states.items():
            _give_state(space.get(name), state)

    size = int.from_bytes(data[:8], "little")
    return Pieces({"problem": _bound(space, data[8 + size :], bind) if data else ""}, b"")


def _bound(space: dict[str, Any], data: bytes, bind: Any) -> str:
    try:
        bind(_Unpickler(data, space).load())
    except Exception as error:  # noqa: BLE001 - whatever a user's type raises is reported
        return f"{type(error).__name__}: {error}"[:_FEW]
    return ""


def _give_state(function: Any, state: tuple[Any, Any, Any]) -> None:
    if type(function) is types.FunctionType:
        function.__defaults__, function.__kwdefaults__ = state[0], state[1]
        function.__dict__.update(state[2])


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, space: dict[str, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._space = space

    def persistent_load(self, name: Any) -> Any:
        return self._space[name] if name in self._space else _Missing(name)


class _Missing:
    """Stands for a tool that existed when the variables were saved."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> None:
        raise NameError(f"{self._name} was a tool, which is no longer available")
