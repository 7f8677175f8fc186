"""What in a cell monty would refuse, or worse, take in another sense: found in the syntax tree.

Only what is wrong in silence has to be here. What monty refuses by itself is told by its error.
"""

import ast
import builtins

from rlm.environments.monty.survey import METHODS

__all__ = ["unsupported"]

_KINDS: dict[type[ast.AST], str] = {
    ast.Delete: "the `del` statement",
    ast.Yield: "generator functions",
    ast.YieldFrom: "generator functions",
    ast.AsyncFor: "`async for`",
    ast.AsyncWith: "`async with`",
    ast.TryStar: "exception groups",
}
_METHODS_OF_CLASSES = frozenset({"__init__", "__repr__", "__str__", "__eq__", "__hash__"})
_DECORATORS_OF_CLASSES = frozenset({"dataclass", "dataclasses"})
_STREAMS = frozenset({"stdout", "stderr"})
_OWN_NAMES = frozenset(name for name in dir(builtins) if name[0] != "_")


def unsupported(tree: ast.Module, modules: dict[str, str]) -> str | None:
    """The first thing in a cell that needs full Python, in words; None if nothing is known to."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        reason = _KINDS.get(type(node)) or _reason(node, modules)
        if reason is not None:
            return reason
        if isinstance(node, ast.Attribute) and id(node) not in called and _names_method(node):
            if _is_of_module(node, modules):
                continue
            return f"the method {node.attr} as a value"
    return None


def _reason(node: ast.AST, modules: dict[str, str]) -> str | None:
    if isinstance(node, ast.ClassDef):
        return _about_class(node)
    if isinstance(node, ast.Attribute):
        return _about_attribute(node, modules)
    if isinstance(node, ast.Call):
        return _about_call(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return None if _is_sendable(node.value) else "text with lone surrogates"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return "`import *`"
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id in _OWN_NAMES:
        return f"another meaning for the built-in name {node.id}"
    if isinstance(node, ast.FunctionDef) and node.name in _OWN_NAMES:
        return f"another meaning for the built-in name {node.name}"
    return None


def _about_class(node: ast.ClassDef) -> str | None:
    if node.bases or node.keywords:
        return "inheritance"
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        root = called.value if isinstance(called, ast.Attribute) else called
        if not isinstance(root, ast.Name) or root.id not in _DECORATORS_OF_CLASSES:
            return "decorated classes"
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            special = each.name.startswith("__") and each.name not in _METHODS_OF_CLASSES
            if special or each.decorator_list:
                return f"the method {each.name} as it is in class {node.name}"
    return None


def _about_attribute(node: ast.Attribute, modules: dict[str, str]) -> str | None:
    if _is_of_module(node, modules) and not isinstance(node.ctx, ast.Load):
        return "changing a module"
    if node.attr.startswith("__") and node.attr not in {"__name__", "__init__"}:
        return f"the attribute {node.attr}"
    return None


def _names_method(node: ast.Attribute) -> bool:
    return node.attr in METHODS and isinstance(node.ctx, ast.Load)


def _is_of_module(node: ast.Attribute, modules: dict[str, str]) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in modules


def _about_call(node: ast.Call) -> str | None:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in {"setattr", "delattr"}:
        return f"{name}()"
    if name in {"getattr", "hasattr"} and len(node.args) > 1:
        asked = node.args[1]
        text = asked.value if isinstance(asked, ast.Constant) else None
        if isinstance(text, str) and (text in METHODS or text.startswith("__")):
            return f"{name}() of the attribute {text}"
    return _about_print(node) if name == "print" else None


def _about_print(node: ast.Call) -> str | None:
    for keyword in node.keywords:
        target = keyword.value
        is_stream = isinstance(target, ast.Attribute) and target.attr in _STREAMS
        if keyword.arg == "file" and not is_stream:
            return "printing to a file"
    return None


def _is_sendable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
