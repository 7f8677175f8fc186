"""What code that will not run would have submitted: a literal, a variable, or something unknown."""

import ast
import builtins
import json
from typing import Any

from msgspec import Struct

from rlm._util.python_source import PythonParser
from rlm.engine.repl_code import OF_THE_REPL, words_of

__all__ = ["CODE", "SUBMITTING", "PlainReply", "submitted", "submitted_expression", "touched"]

SUBMITTING = frozenset({"FINAL", "FINAL_VAR", "SUBMIT", "submit_answer"})
_CHANGES_ANY = frozenset({"exec", "eval", "setattr", "delattr", "globals", "locals", "vars"})
_HARMLESS = frozenset({*dir(builtins), *OF_THE_REPL}) - _CHANGES_ANY


class PlainReply(Struct, frozen=True):
    """What a reply says: `text`, or the value of `variable` if it exists.

    `is_code`: the reply is code, and no answer unless that variable exists; `text` is then only
    what was written beside the code.
    """

    text: str = ""
    json: str | None = None
    variable: str = ""
    is_code: bool = False


CODE = PlainReply(is_code=True)


def submitted(codes: list[str], python: PythonParser) -> PlainReply | None:
    """Return what the last submitting cell would submit; None if none submits anything."""
    for number, code in reversed(tuple(enumerate(codes))):
        tree = python.parse_values(code)
        if tree is None:
            if any(name in code for name in SUBMITTING):
                return CODE  # incomplete, or with ambiguous escapes
            continue
        if (found := _last_given(tree)) is not None:
            return _unless_touched(found, codes[:number], python)
        if any(_is_submitting_call(node) for node in ast.walk(tree)):
            return CODE  # under a condition, or in a function
    return None


def _unless_touched(found: PlainReply, earlier: list[str], python: PythonParser) -> PlainReply:
    """Return CODE for a variable that earlier cells, which never ran, would have changed."""
    is_touched = found.variable and any(touched(c, found.variable, python) for c in earlier)
    return CODE if is_touched else found


def touched(code: str, name: str, python: PythonParser) -> bool:
    """Whether code might change a variable: it names it, or calls a function of the user."""
    tree = python.parse(code)
    if tree is None:
        return name in words_of(code)
    return any(
        not _prints(statement)
        and submitted_expression(statement) is None
        and (name in _names_in(statement) or _calls_unknown(statement))
        for statement in tree.body
    )


def _names_in(statement: ast.stmt) -> set[str]:
    """Return the names in a statement, also in text, as in `globals()["rows"]`."""
    found = set[str]()
    for node in ast.walk(statement):
        if not isinstance(node, ast.Attribute | ast.keyword):
            given = (value for _, value in ast.iter_fields(node))
            found |= {each for each in given if isinstance(each, str)}
        if isinstance(node, ast.alias):
            found.add(node.name.partition(".")[0])
    return found


def _calls_unknown(statement: ast.stmt) -> bool:
    """Whether a statement calls a function that neither Python nor the REPL provides."""
    called = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Name) and each.id not in _HARMLESS for each in called)


def _last_given(tree: ast.Module) -> PlainReply | None:
    """Return what the last submission at the top level means; CODE if later code may submit too."""
    literals: dict[str, Any] = {}
    others: set[str] = set()
    held: set[str] = set()
    changes_any = False
    meant: PlainReply | None = None
    for statement in tree.body:
        if (found := submitted_expression(statement)) is not None:
            meant = CODE if changes_any and _variable(found) else _meant_by(found, literals, others)
            held = _held(statement, found)
        elif not _is_assigned(statement, literals) and not _prints(statement):
            names, calls = _names_in(statement), _calls_unknown(statement)
            may_change = not held.isdisjoint(names) or (held and calls)
            if (may_change and not _marks_ready(statement)) or _may_submit(statement):
                meant = CODE
            others |= names
            changes_any = changes_any or calls
    return meant


def _held(statement: ast.stmt, given: ast.expr) -> set[str]:
    """Return the names through which later code can change what a statement submits.

    `answer` is read at the end of the cell, the argument of `FINAL(...)` at once.
    """
    if any(map(_is_submitting_call, ast.walk(statement))):
        return set()
    return {"answer", _variable(given)}


def _marks_ready(statement: ast.stmt) -> bool:
    """Whether a statement is `answer["ready"] = ...`."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return (
        isinstance(target, ast.Subscript)
        and _is_answer(target.value)
        and getattr(target.slice, "value", None) == "ready"
    )


def _may_submit(statement: ast.stmt) -> bool:
    return any(map(_submits, ast.walk(statement)))


def _submits(node: ast.AST) -> bool:
    is_submitted = isinstance(node, ast.stmt) and submitted_expression(node) is not None
    return is_submitted or _is_submitting_call(node)


def submitted_expression(statement: ast.stmt) -> ast.expr | None:
    """Return the x that a statement submits by `FINAL(x)`, `answer["content"] = x` and the like.

    A variable name in a string is returned as the variable.
    """
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return _assigned_answer(statement.targets[0], statement.value)
    if isinstance(statement, ast.AugAssign) and _is_answer(statement.target):
        return _content(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    call = call.value if isinstance(call, ast.Await) else call
    if not isinstance(call, ast.Call):
        return None
    if isinstance(call.func, ast.Attribute) and _is_answer(call.func.value):
        contents = [each.value for each in call.keywords if each.arg == "content"]
        return next(filter(None, (*contents, *map(_content, call.args))), None)
    return _argument(call) if _is_submitting_call(call) else None


def _argument(call: ast.Call) -> ast.expr:
    named = {each.arg: each.value for each in call.keywords}
    given = [*call.args, *named.values()]
    if len(given) != 1:
        return call  # which can't be read
    is_name = "variable_name" in named or getattr(call.func, "id", "") == "FINAL_VAR"
    value = getattr(given[0], "value", None)
    if is_name and isinstance(value, str) and value.strip().isidentifier():
        return ast.Name(value.strip(), ast.Load())
    return given[0]


def _assigned_answer(target: ast.expr, value: ast.expr) -> ast.expr | None:
    if _is_answer(target):
        return _content(value) or value
    if not isinstance(target, ast.Subscript) or not _is_answer(target.value):
        return None
    return value if getattr(target.slice, "value", None) == "content" else None


def _content(value: ast.expr) -> ast.expr | None:
    """Return the x of `{"content": x, "ready": True}`."""
    if not isinstance(value, ast.Dict):
        return None
    pairs = zip(value.keys, value.values, strict=True)
    return next((v for k, v in pairs if getattr(k, "value", None) == "content"), None)


def _meant_by(given: ast.expr, literals: dict[str, Any], others: set[str]) -> PlainReply:
    """Return a literal as the answer; a variable only if no other code could change it."""
    name = _variable(given)
    if name in others:
        return CODE
    if name and name not in literals:
        return PlainReply(variable=name, is_code=True)
    try:
        value = literals[name] if name else _literal(given)
        return PlainReply(str(value), _json_of(value))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return CODE


def _variable(given: ast.expr) -> str:
    """Return the name in `x`, `str(x)` or f"{x}"."""
    if isinstance(given, ast.Call) and getattr(given.func, "id", "") == "str" and given.args:
        given = given.args[0]
    if isinstance(given, ast.JoinedStr) and len(given.values) == 1:
        inner = given.values[0]
        if isinstance(inner, ast.FormattedValue) and inner.format_spec is None:
            given = inner.value
    return given.id if isinstance(given, ast.Name) else ""


def _literal(given: ast.expr) -> Any:
    if isinstance(given, ast.JoinedStr):
        return "".join(str(ast.literal_eval(each)) for each in given.values)
    return ast.literal_eval(given)


def _json_of(value: Any) -> str | None:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _is_assigned(statement: ast.stmt, literals: dict[str, Any]) -> bool:
    """Whether a statement only binds a name to a literal, which is then in `literals`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return False
    literals.pop(target.id, None)
    try:
        literals[target.id] = _literal(statement.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _prints(statement: ast.stmt) -> bool:
    """Whether a statement only prints, unlike `print(rows.pop())`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "print":
        return False
    inner = tuple(ast.walk(call))
    calls = (node for node in inner if isinstance(node, ast.Call))
    binds = any(isinstance(node, ast.NamedExpr) for node in inner)
    return not binds and all(getattr(each.func, "id", "") in _HARMLESS for each in calls)


def _is_answer(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "answer"


def _is_submitting_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in SUBMITTING
