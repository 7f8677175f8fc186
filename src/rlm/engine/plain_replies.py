"""Read replies that should be plain text: a model used to the REPL may write code instead.

Where no code runs any more, `FINAL('ok')` still states the answer, and `FINAL_VAR(rows)` names the
variable that holds it. Other code can't be shown as an answer.
"""

import ast
import builtins
import json
import re
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser, names_bound, names_used
from rlm.engine.cells import Actions, parse_reply, parse_tool_calls, prose_of, strip_thinking
from rlm.engine.finals import unfenced
from rlm.messages import Reply, ToolCall
from rlm.worker.repl_names import REPL_NAMES

__all__ = ["PlainReply", "read_plain", "read_submission"]

OF_THE_REPL = frozenset(entry.name for entry in REPL_NAMES)
SUBMITTING = frozenset({"FINAL", "FINAL_VAR", "SUBMIT", "submit_answer"})
_TOOL_CALL = pattern(r"<(tool_call|function_call)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)
_REPL_FENCE = pattern(r"(?:```|~~~)[ \t]*repl\b")
_COMPUTING = (ast.Call, ast.Subscript, ast.BinOp, ast.JoinedStr, ast.ListComp, ast.GeneratorExp)


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


def read_plain(reply: Reply, variables: Collection[str] = ()) -> PlainReply:
    """Return the answer in a reply to "answer now, without code"; `variables` are those of the
    REPL.
    """
    text = strip_thinking(reply.text).strip()
    if calls := reply.tool_calls or _calls_in(text):
        actions, prose = parse_tool_calls(calls), "" if not reply.tool_calls else text
        if not actions.cells and actions.final is None:
            return PlainReply(prose, is_code=not prose)
    else:
        actions, prose = parse_reply(text), prose_of(text)
    if actions.final is not None:
        return _of_final(text, actions, variables)
    if not actions.cells:
        return PlainReply(unfenced(text))
    codes = [cell.code for cell in actions.cells]
    if (found := _submitted(codes)) is not None:
        return found
    if prose == text:  # All of it is code, without a fence; `total = 42` may be an answer.
        return CODE if any(map(names_used, codes)) else PlainReply(text)
    if prose and not reply.tool_calls and not _is_for_repl(text, codes, variables):
        return PlainReply(text)  # an explanation that quotes code
    return PlainReply("" if prose.endswith(":") else prose, is_code=True)


def read_submission(reply: Reply) -> PlainReply:
    """Return the answer in a reply to a call without a REPL, where code may be what was asked for.

    Only a reply that is nothing but FINAL(...) or similar is read as code.
    """
    text = strip_thinking(reply.text).strip()
    plain = PlainReply(text)
    if not any(name in text for name in (*SUBMITTING, 'answer["', "answer['")):
        return plain
    actions, prose = parse_reply(text), prose_of(text)
    if actions.cells:
        found = _submitted([cell.code for cell in actions.cells])
        return found if found is not None and prose in {"", text} else plain
    whole = PythonParser().parse(text)
    is_call = (
        whole is not None
        and len(whole.body) == 1
        and _submitted_expression(whole.body[0]) is not None
    )
    return _of_final(text, actions, ()) if actions.final is not None and is_call else plain


# --- finals in prose, and tool calls -------------------------------------------------------------


def _of_final(text: str, actions: Actions, variables: Collection[str]) -> PlainReply:
    final = actions.final
    assert final is not None
    unrun = {name for cell in actions.cells for name in names_bound(cell.code)}
    if final.kind == "variable":
        return CODE if final.text in unrun else PlainReply(variable=final.text, is_code=True)
    if final.maybe_name:
        if final.text in unrun:
            return CODE
        is_name = final.text in OF_THE_REPL or "_" in final.text
        may_be_name = final.text.islower() and f"({final.text})" in text  # unlike `FINAL(Paris)`
        word = "" if is_name else final.text
        return PlainReply(word, variable=final.text, is_code=is_name or may_be_name)
    return CODE if _computes(final.text, variables) else PlainReply(final.text)


def _computes(text: str, variables: Collection[str]) -> bool:
    """Whether a text is an expression over variables, as in `FINAL(len(rows))`."""
    tree = PythonParser().parse(text)
    nodes = () if tree is None else tuple(ast.walk(tree))
    if any(isinstance(node, ast.FormattedValue) for node in nodes):
        return True
    names = names_used(text)
    known = {*variables, *OF_THE_REPL, *dir(builtins)}
    return bool(names) and names <= known and any(isinstance(n, _COMPUTING) for n in nodes)


def _calls_in(text: str) -> tuple[ToolCall, ...]:
    """Return tool calls that a model wrote into its text; an unreadable one has no name."""
    found = []
    for number, match in enumerate(_TOOL_CALL.finditer(text)):
        try:
            plain: Any = json.loads(match[2])
            name, arguments = str(plain["name"]), plain.get("arguments", {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            name, arguments = "", {}
        found.append(ToolCall(f"text-{number}", name, arguments))
    return tuple(found)


# --- what code submits ---------------------------------------------------------------------------


def _is_for_repl(text: str, codes: list[str], variables: Collection[str]) -> bool:
    names = {name for code in codes for name in names_used(code)}
    return bool(_REPL_FENCE.search(text)) or not names.isdisjoint({*OF_THE_REPL, *variables})


def _submitted(codes: list[str]) -> PlainReply | None:
    """Return what the last submitting cell would submit; None if none submits anything."""
    for code in reversed(codes):
        tree = PythonParser().parse_values(code)
        if tree is None:
            if any(name in code for name in SUBMITTING):
                return CODE  # incomplete, or with ambiguous escapes
            continue
        if (found := _last_given(tree)) is not None:
            return found
        if any(_is_submitting_call(node) for node in ast.walk(tree)):
            return CODE  # under a condition, or in a function
    return None


def _last_given(tree: ast.Module) -> PlainReply | None:
    literals: dict[str, Any] = {}
    given: ast.expr | None = None
    others: set[str] = set()
    for statement in tree.body:
        if (found := _submitted_expression(statement)) is not None:
            given = found
        elif not _is_assigned(statement, literals) and not _prints(statement):
            others |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return None if given is None else _meant_by(given, literals, others)


def _submitted_expression(statement: ast.stmt) -> ast.expr | None:
    """Return the expression that a statement submits: of `FINAL(x)`, `answer["content"] = x` and so
    on.

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
    if name and name not in literals:
        return CODE if name in others else PlainReply(variable=name, is_code=True)
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
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print"


def _is_answer(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "answer"


def _is_submitting_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in SUBMITTING
