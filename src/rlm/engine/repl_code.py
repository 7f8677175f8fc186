"""Tell code for the REPL from an answer that is about code.

Code for the REPL needs what only the REPL has: its functions, `context`, or variables of the
session. Names that code binds itself, such as parameters, do not count.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser
from rlm.worker.repl_names import REPL_NAMES

__all__ = [
    "MAX_COMPLETED_CHARS",
    "OF_THE_REPL",
    "CodeInProse",
    "ReplNames",
    "acts",
    "code_paragraphs",
    "completed",
    "defines",
    "is_formula",
    "is_one_line",
    "is_statement_in_words",
    "words_of",
]

OF_THE_REPL = frozenset(entry.name for entry in REPL_NAMES)
_DISTINCT = frozenset(
    {"ctx", "lenP", "SUBMIT", "FINAL", "execute_python"}
    | {name for name in OF_THE_REPL if "_" in name}
)
"""Names that hardly occur in other code; `merge` and `context` do."""
_OF_PYTHON = frozenset({*dir(builtins), "re", "json", "math", "Counter", "defaultdict"})
_ONLY_IN_CODE = frozenset({"await", "elif", "else", "lambda"})
_WORD = pattern(r"\w++")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(_WORD.findall(text))


# --- what code needs -----------------------------------------------------------------------------

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Clause = ast.ExceptHandler | ast.match_case


def names_needed(tree: ast.Module) -> frozenset[str]:
    """Return the names that code reads before it binds them."""
    needed, bound = set[str](), set[str]()
    for statement in _statements(tree):
        read, made, inner = _names(statement)
        needed |= read - inner - bound
        bound |= made | inner
    return frozenset(needed)


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Return all statements in the order of the source, but none from inside a definition."""
    found: list[ast.stmt] = []
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        for child in ast.iter_child_nodes(open_nodes.pop()):
            if isinstance(child, ast.stmt):
                found.append(child)
            if isinstance(child, ast.stmt | _Clause) and not isinstance(child, _Definition):
                open_nodes.append(child)
    return sorted(found, key=lambda each: (each.lineno, each.col_offset))


def _names(statement: ast.stmt) -> tuple[set[str], set[str], set[str]]:
    """Return the names that one statement reads, those it binds, and those bound only inside it."""
    read, made, inner = set[str](), set[str](), set[str]()
    is_definition = isinstance(statement, _Definition)
    for node in _nodes(statement):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            read.add(node.target.id)
        elif isinstance(node, ast.arg):
            inner.add(node.arg)
        elif isinstance(node, ast.comprehension):
            inner |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, _Definition | _Clause | ast.MatchAs | ast.MatchStar):
            made.add(str(getattr(node, "name", None)))
    return read, made, (inner | made if is_definition else inner)


def _nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of one statement, without the statements inside it but with its clauses."""
    if isinstance(statement, _Definition):
        yield from ast.walk(statement)
        return
    open_nodes: list[ast.AST] = [statement]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        open_nodes.extend(
            each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)
        )


# --- what code does ------------------------------------------------------------------------------

_FLOW = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.Match, ast.AugAssign, ast.Delete, ast.Assert),
)


def acts(tree: ast.Module) -> bool:
    """Whether code does something at once, unlike definitions, constants and formulas."""
    return any(map(_acts, tree.body))


def _acts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        changes = any(not isinstance(each, ast.Name | ast.Tuple) for each in statement.targets)
        return changes or _calls(statement.value)
    if isinstance(statement, ast.Expr | ast.AnnAssign):
        return statement.value is not None and _calls(statement.value)
    return isinstance(statement, _FLOW)


def _calls(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(value))


def defines(tree: ast.Module) -> bool:
    return any(isinstance(each, _Definition) for each in tree.body)


def _prints(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print"


# --- the names of one REPL -----------------------------------------------------------------------

_EXTENSIONS = frozenset(
    [
        *("com", "net", "org", "csv", "tsv", "txt", "md", "log", "json", "jsonl", "xml", "yaml"),
        *("yml", "toml", "ini", "html", "pdf", "doc", "docx", "xls", "xlsx", "png", "jpg", "zip"),
        *("gz", "db", "sql", "parquet", "py", "js"),
    ]
)
_CALCULATING = (
    *(ast.Subscript, ast.IfExp, ast.Compare),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class ReplNames:
    """The names that cells find in one REPL; `variables` are the user's."""

    def __init__(self, variables: Collection[str]) -> None:
        self._own = _DISTINCT | frozenset(variables)
        self._known = self._own | OF_THE_REPL | _OF_PYTHON

    def are_needed(self, tree: ast.Module | None, code: str) -> bool:
        """Whether code needs this REPL; `tree` is None if the code does not parse."""
        if tree is None:
            return not self._own.isdisjoint(words_of(code))
        names = names_needed(tree)
        if not names.isdisjoint(self._own):
            return True
        return names <= self._known and not names.isdisjoint(OF_THE_REPL)

    def are_run_by(self, tree: ast.Module, code: str) -> bool:
        """Whether code needs this REPL and calls something that it surely can call."""
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        return self.are_needed(tree, code) and any(
            isinstance(each, ast.Attribute) or getattr(each, "id", "") in OF_THE_REPL | _OF_PYTHON
            for each in calls
        )

    def run_alone(self, tree: ast.Module | None, code: str) -> bool:
        """Whether a reply that is nothing but this code is meant to run.

        Definitions, constants and formulas are not, nor is a single call of something unknown:
        they answer a question about code.
        """
        if self.are_needed(tree, code) or tree is None:
            return True
        if defines(tree) or not acts(tree) or not _calls(tree):
            return False
        only = tree.body[0] if len(tree.body) == 1 else None
        if only is None or isinstance(only, _FLOW) or _prints(only):
            return True
        return names_needed(tree) <= self._known

    def compute(self, values: Sequence[ast.expr]) -> bool:
        """Whether expressions have to be computed, unlike literals, lone names and prose."""
        if len(values) == 1 and isinstance(values[0], ast.Name):
            return False
        nodes = [node for value in values for node in ast.walk(value)]
        if len(values) == 1 and isinstance(values[0], ast.Lambda) and values[0].args.args:
            nodes.remove(values[0])  # A function is an answer, unless it needs variables.
        is_constant = not any(isinstance(node, _COMPUTED) for node in nodes)
        if not is_constant and any(_is_surely_code(node) for node in nodes):
            return True
        whole = ast.Module([ast.Expr(value, lineno=1, col_offset=0) for value in values], [])
        names = names_needed(whole)
        if bool(names) and names <= self._known and not all(map(_is_file_name, values)):
            return True
        is_calculated = any(isinstance(node, _CALCULATING) or _is_call(node) for node in nodes)
        return is_calculated and not names.isdisjoint(self._own | OF_THE_REPL)


def is_formula(text: str) -> bool:
    """Whether an expression may be an answer in words, although its names are variables.

    In a formula, names have one letter: `n*(n-1)/2`, `O(n)`. Words are `total (2)` or `word(s)`.
    """
    return _matches(_FORMULA, text)


def is_statement_in_words(text: str) -> bool:
    """Whether code may be an answer in words: `names and counts`, `total = price * n`."""
    return _matches(_STATEMENT, text)


def _matches(form: re.Pattern[str], text: str) -> bool:
    """Whether a text has a form, and names nothing that Python or the REPL provides."""
    text = text.strip()
    words = {word for word in words_of(text) if len(word) > 1}
    of_code = OF_THE_REPL | _OF_PYTHON | _ONLY_IN_CODE
    return form.fullmatch(text) is not None and words.isdisjoint(of_code)


def is_one_line(tree: ast.Module, code: str) -> bool:
    """Whether code may be a line that an answer quotes: one statement, not only for the REPL."""
    return len(tree.body) == 1 and "\n" not in code and words_of(code).isdisjoint(_DISTINCT)


_FORMULA = pattern(
    r"""\w++(?:\((?:s|es)\)|[ ]+\([\w .,-]*+\))
      | (?:\b[A-Za-z]\b|[\d\s+\-*/%<>=!().,]++)++
    """,
    re.VERBOSE,
)
_STATEMENT = pattern(
    r"(?:\w++[ ]?+)++ | \w++[ ]=(?:[ ]\(*+\w++\)*+|[ ][-+*/%]{1,2}+)++", re.VERBOSE
)


def _is_surely_code(node: ast.AST) -> bool:
    """Whether a node is an f-string with values, a call of a method, or text with an operator."""
    if isinstance(node, ast.BinOp):
        return any(_is_text(each) for each in (node.left, node.right))
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method or isinstance(node, _SURELY)


_COMPUTED = (ast.Name, ast.Call, ast.FormattedValue, ast.Lambda, ast.Await)
"""An expression without any of these may be prose, such as `"Red" & "Blue"`."""

_SURELY = (ast.FormattedValue, ast.Lambda, ast.Await, ast.NamedExpr)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_call(node: ast.AST) -> bool:
    """Whether a node is a call as programmers write it, unlike `Paris (France)`."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else "_"
    return name[0].islower() or name[0] == "_"


def _is_file_name(value: ast.expr) -> bool:
    """Whether an expression may be the name of a file or site, such as `rows.csv`."""
    return isinstance(value, ast.Attribute) and value.attr.lower() in _EXTENSIONS


# --- code in prose, without a fence --------------------------------------------------------------

MAX_COMPLETED_CHARS = 10_000
_FENCE_LINE = pattern(r"[ \t]*+(?:```|~~~)")
_ITEM = pattern(r"[ \t]*+(?:[-*+•]|\d{1,3}[.)])[ \t]++")
_CODE_LINE = pattern(
    r"""
      import\s+\w | from\s+[\w.]++\s+import\b | @\w | try\s*: | (?:del|assert)\s+\w
    | (?:async\s+)?def\s+\w++\s*\( | class\s+\w++\s*[(:]
    | (?:async\s+)?for\s+\w.*\sin\s.*: | (?:if|while|(?:async\s+)?with)\s.*:
    | (?:await\s+)?[\w.]++(?:\[[^\]\n]*+\])*+[\w.]*+
      (?: \( | \s*+(?::\s*+[\w\[\], .]*+)?(?:[-+*/%|&^]|//|\*\*)?=(?!=) )
    """,
    re.VERBOSE,
)
_CONTINUES = pattern(r"[ \t]*+(?:$|[)\]}#]|(?:else|elif|except|finally)\b)")


class CodeInProse(NamedTuple):
    """Code between other lines: as written, without its margin, parsed."""

    written: str
    code: str
    tree: ast.Module
    is_cut_off: bool = False


def code_paragraphs(text: str, python: PythonParser) -> Iterator[CodeInProse]:
    """Yield runs of lines outside fences that parse as Python; the last may be cut off."""
    code, tree = "", None
    lines: list[str] = []
    for lines in _runs(text):
        code = _dedented(lines)
        tree = python.parse(code)
        pieces = [code] if tree is not None else code.split("\n\n")
        for piece in pieces:
            parsed = tree or python.parse(piece)
            if parsed is not None:
                whole = "\n".join(lines) if tree is not None else piece
                yield CodeInProse(whole, piece, parsed)
    if code and tree is None and len(code) <= MAX_COMPLETED_CHARS:
        for more in completed(code):
            if (tree := python.parse(more)) is not None:
                yield CodeInProse("\n".join(lines), code, tree, is_cut_off=True)
                return


def _runs(text: str) -> Iterator[list[str]]:
    """Yield runs of lines that begin like code."""
    run: list[str] = []
    is_fenced, margin, depth = False, 0, 0
    for whole in text.split("\n"):
        if _FENCE_LINE.match(whole):
            is_fenced = not is_fenced
        line = _ITEM.sub("", whole, count=1) if not run else whole
        indent = len(line) - len(line.lstrip(" \t"))
        begins = not is_fenced and _CODE_LINE.match(line, indent) is not None
        if (
            run
            and not is_fenced
            and (begins or depth > 0 or indent > margin or _CONTINUES.match(line))
        ):
            run.append(line)
            depth += _opened(line)
            continue
        if run:
            yield run
        run, margin, depth = ([line], indent, _opened(line)) if begins else ([], 0, 0)
    if run:
        yield run


def _opened(line: str) -> int:
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))


def _dedented(lines: list[str]) -> str:
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    return "\n".join(line.removeprefix(margin) for line in lines).rstrip()


_TOKEN = pattern(
    r"""(?P<open>[(\[{]) | (?P<close>[)\]}]) | \#[^\n]*+
      | (?P<string>[A-Za-z]{0,2}(?P<quote>\"{3}|'{3}|"|'))""",
    re.VERBOSE,
)
_STRING_ENDS = {
    quote: pattern(rf"(?s:[^{quote[0]}\\]|\\.|{quote[0]}(?!{quote[0] * 2}))*+{quote}")
    if len(quote) == 3
    else pattern(rf"(?:[^{quote}\\\n]|\\.)*+{quote}", re.DOTALL)
    for quote in ('"', "'", '"""', "'''")
}


def completed(code: str) -> Iterator[str]:
    """Yield ways to complete code that was cut off: with its strings and brackets closed."""
    closing: list[str] = []
    position = 0
    while (token := _TOKEN.search(code, position)) is not None:
        position = token.end()
        if token["open"]:
            closing.append({"(": ")", "[": "]", "{": "}"}[token[0]])
        elif token["close"] and closing:
            closing.pop()
        elif token["string"]:
            end = _STRING_ENDS[token["quote"]].match(code, position)
            if end is None:  # The string is cut off; what it says does not matter.
                code = f'{code[: token.start()]}""'
                break
            position = end.end()
    for more in ("", "0", " 0", "x", " pass", " in (): pass"):
        yield f"{code}{more}{''.join(reversed(closing))}"
        if more == "" and closing:
            yield f"{code}{''.join(reversed(closing))}: pass"
