"""Parse the reply of a model: the cells to run and the answer it submits.

How a reply is read:

1. thinking is stripped (`<think>…</think>`), except where it is text inside a fenced block;
2. the fenced blocks are found, and those that are cells: ```repl, ```python, bare ``` …; a fence
   around nothing but `FINAL: …` or `FINAL_VAR: name` is removed;
3. finals (`FINAL(...)`, `Final Answer: …`, see finals.py) are searched for between the blocks;
4. a reply without any fence is code if it parses as Python that does something.

Pure, and safe on any text: each scan is linear, and Python is parsed within a fixed budget.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser
from rlm.engine.finals import Final, FoundFinal, Region, final_is_supported, find_finals
from rlm.messages import ToolCall

__all__ = [
    "Actions",
    "Cell",
    "Final",
    "final_is_supported",
    "parse_reply",
    "parse_tool_calls",
    "prose_of",
    "strip_thinking",
]

CODE_LANGUAGES = frozenset({"repl", "python", "py", "python3", "py3", "ipython", "tool_code"})
MAX_CLOSING_FENCES = 8
"""How many closing fences are tried until a cell parses: code may contain fences in strings."""
MAX_FENCE_LINES = 256
"""Only the first N fence lines of a reply are read."""


class Cell(Struct, frozen=True):
    """Code to run in the REPL."""

    code: str


class Actions(Struct, frozen=True):
    """What a reply asks for: cells in order, and the last final if there is one."""

    cells: tuple[Cell, ...] = ()
    final: Final | None = None


def parse_reply(text: str) -> Actions:
    """Return the cells and the final of a reply in prose and fences."""
    python = PythonParser()
    text = _without_thinking(text, python)
    blocks = tuple(_blocks(text, python))
    if any(map(_holds_label, blocks)):
        text = _without_fences_of_labels(text, blocks)
        blocks = tuple(_blocks(text, python))
    if not blocks:
        return _parse_unfenced(text, python)
    found = _finals(text, blocks)
    cells = tuple(
        Cell(block.code)
        for block in blocks
        if block.is_cell and not any(answer.start <= block.start < answer.end for answer in found)
    )
    return Actions(cells, found[-1].final if found else None)


def _finals(text: str, blocks: Sequence["_Block"] = ()) -> tuple[FoundFinal, ...]:
    """Return the finals of a reply; the word search rules out most replies at once."""
    lowered = text.lower()
    return find_finals(text, blocks) if "final" in lowered or "submit" in lowered else ()


def parse_tool_calls(tool_calls: tuple[ToolCall, ...]) -> Actions:
    """Return the actions of native tool calls; unknown tools and bad arguments are ignored."""
    cells: list[Cell] = []
    final: Final | None = None
    for call in tool_calls:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        if call.name == "execute_python":
            cells.extend(_cells_of_argument(arguments.get("code")))
        elif call.name == "submit_answer":
            final = _final_of_arguments(arguments) or final
    return Actions(tuple(cells), final)


def strip_thinking(text: str) -> str:
    """Return the reply without think blocks; tags inside fenced code are code and stay."""
    return _without_thinking(text, PythonParser())


def prose_of(text: str) -> str:
    """Return the reply without think blocks and without the fenced blocks that are cells."""
    python = PythonParser()
    text = _without_thinking(text, python)
    for block in reversed(tuple(_blocks(text, python))):
        if block.is_cell:
            text = text[: block.start] + text[block.end :]
    return text.strip()


# --- tool calls ----------------------------------------------------------------------------------


def _cells_of_argument(code: Any) -> tuple[Cell, ...]:
    """Return the code as given, or without its fence if the model added one."""
    if not isinstance(code, str) or not code.strip():
        return ()
    fenced = parse_reply(code).cells if code.lstrip().startswith(("```", "~~~")) else ()
    return fenced or (Cell(code),)


def _final_of_arguments(arguments: dict[str, Any]) -> Final | None:
    """Return the final of a tool call.

    `answer` is literal, because a variable has an argument of its own.
    """
    name, answer = arguments.get("variable_name"), arguments.get("answer")
    if isinstance(answer, str) and (answer.strip() or not name):
        return Final("value", answer.strip())
    if isinstance(name, str) and name.strip():
        return Final("variable", name.strip())
    if answer is None or isinstance(answer, str):
        return None
    try:
        return Final("value", json.dumps(answer, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return None


# --- thinking ------------------------------------------------------------------------------------

_TAG = pattern(
    r"""(?P<line_start>^[ \t]*+)?(?P<before>["'`]?)
    (?P<tag><(?P<slash>/?)think(?:ing)?\s*+>)
    (?P<line_end>(?=[ \t\r]*+$))?(?P<after>["'`]?)""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def _without_thinking(text: str, python: PythonParser) -> str:
    """Return the text outside think blocks.

    An opening tag hides everything up to the next closing tag; a closing tag without an opening one
    hides everything before it; an opening tag that is never closed hides the rest if it starts a
    line. In mid-sentence, a tag that is not closed, or only inside a fenced block, is just a word.
    """
    lowered = text.lower()
    if "<think" not in lowered and "</think" not in lowered:  # nearly every reply
        return text
    reader = _BlockReader(text, python, judges=True)
    kept: list[str] = []
    position = 0  # what comes before is in `kept`, or hidden
    for tag, closing in _tags(text):
        begins_line, start = tag["line_start"] is not None, tag.start("tag")
        if start < position or _is_fenced(tag, position, reader):
            continue
        if tag["slash"]:
            kept.clear()
            position = tag.end("tag")
        elif closing is None and begins_line:
            return "".join(kept) + text[position:start]
        elif closing and (begins_line or not _is_fenced(closing, position, reader)):
            kept.append(text[position:start])
            position = closing.end("tag")
    return "".join(kept) + text[position:]


def _tags(text: str) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """Return the think tags that are not quoted, each with the next closing tag after it."""
    tags = [
        tag for tag in _TAG.finditer(text) if not tag["before"] or tag["before"] != tag["after"]
    ]
    closing: re.Match[str] | None = None
    pairs: list[tuple[re.Match[str], re.Match[str] | None]] = []
    for tag in reversed(tags):
        pairs.append((tag, closing))
        closing = tag if tag["slash"] else closing
    return reversed(pairs)


def _is_fenced(tag: re.Match[str], position: int, reader: "_BlockReader") -> bool:
    """Whether a tag is text in a fenced block that begins at `position` or later.

    A closing tag alone on its line is not, if the block is broken or never closed: the fence was
    then opened inside a thought.
    """
    block = reader.first_from(position)
    while block is not None and block.end <= tag.start("tag"):
        block = reader.first_from(block.end)
    if block is None or block.start > tag.start("tag"):
        return False
    is_alone = tag["line_start"] is not None and tag["line_end"] is not None
    return block.is_sound or not (tag["slash"] and is_alone)


# --- fenced blocks -------------------------------------------------------------------------------

_FENCE = pattern(
    r"(?:(?P<indent>^[ \t]*+)|(?<=[ \t:]))(?P<mark>`{3,}+|~{3,}+)(?P<info>[^`\n]*+)$",
    re.MULTILINE,
)
_LANGUAGE = pattern(r"[\w+#-]+")
_Span = tuple[int, int]
_MARGIN = pattern(r"(?:[ \t\r]*+\n)*+([ \t]++)")


class _Block(Region, frozen=True):
    """A fenced block; `is_sound` if it is closed and, if it could be a cell, parses.

    Only a reader with `judges` checks that.
    """

    code: str
    is_sound: bool


class _BlockReader:
    """Reads the fenced blocks of a text one by one, from increasing positions.

    Unless `judges` is true, a block with only one possible end is not parsed here: the worker
    parses it.
    """

    def __init__(self, text: str, python: PythonParser, *, judges: bool = False) -> None:
        self._text = text
        self._python = python
        self._judges = judges
        self._fences = tuple(islice(_fence_lines(text), MAX_FENCE_LINES))
        self._next = 0
        self._block: _Block | None = None

    def first_from(self, position: int) -> _Block | None:
        """Return the first block that starts at `position` or later."""
        while self._block is None or self._block.start < position:
            if self._next == len(self._fences):
                return None
            if self._fences[self._next].start() >= position:
                self._block = self._read(self._next)
            self._next += 1
        return self._block

    def _read(self, index: int) -> _Block | None:
        """Return the block that a fence opens; None if it is unclosed and no code follows."""
        opening = self._fences[index]
        language = _language(opening)
        ends = self._ends(opening, index)
        if language and language not in CODE_LANGUAGES:
            start, end = ends[0]
            return _Block(opening.start(), end, is_cell=False, code="", is_sound=end > start)
        if language and len(ends) == 1 and ends[0][1] > ends[0][0] and not self._judges:
            start, end = ends[0]
            code = _code(self._text, opening.end() + 1, start)
            return _Block(opening.start(), end, bool(code.strip()), code, is_sound=True)
        code, tree, (start, end) = self._first_that_parses(opening.end() + 1, ends)
        is_closed = end > start
        is_cell = bool(code.strip()) and (bool(language) or _is_code(code, tree, is_closed))
        begins_line = opening["indent"] is not None
        if not is_closed and not (is_cell and (begins_line or tree is not None)):
            return None
        return _Block(opening.start(), end, is_cell, code, is_closed and tree is not None)

    def _first_that_parses(
        self, start: int, ends: list[_Span]
    ) -> tuple[str, ast.Module | None, _Span]:
        """Return the code up to the first end with which it parses, else up to the first end."""
        for end in ends:
            code = _code(self._text, start, end[0])
            tree = self._python.parse(code)
            if tree is not None:
                return code, tree, end
        return _code(self._text, start, ends[0][0]), None, ends[0]

    def _ends(self, opening: re.Match[str], index: int) -> list[_Span]:
        """Return where the block may end, as spans of closing marks, best guess first.

        These are the next closing fences, or an empty span at the end of the text if there are
        none; then a mark at the end of a line of code: print(1)```.
        """
        mark, size = opening["mark"], len(self._text)
        closing = (fence for fence in self._fences[index + 1 :] if _closes(fence, mark))
        ends = [(fence.start(), fence.end()) for fence in islice(closing, MAX_CLOSING_FENCES)]
        limit = ends[0][0] if ends else size
        glued = re.compile(rf"{mark}[ \t\r]*+$", re.MULTILINE)
        found = glued.search(self._text, min(opening.end() + 1, limit), limit)
        return [*(ends or [(size, size)]), *([found.span()] if found else [])]


def _blocks(text: str, python: PythonParser) -> Iterator[_Block]:
    """Yield all fenced blocks of a text in order."""
    reader = _BlockReader(text, python)
    block = reader.first_from(0)
    while block is not None:
        yield block
        block = reader.first_from(block.end)


_LABEL = pattern(r"\s*+(?:FINAL_VAR:[ \t]*+\w++\s*+\Z|FINAL:)")


def _holds_label(block: _Block) -> bool:
    """Whether a block holds a final rather than code: `FINAL_VAR: rows`, `FINAL: some text`."""
    return _LABEL.match(block.code) is not None


def _without_fences_of_labels(text: str, blocks: Sequence[_Block]) -> str:
    """Return the reply with these finals as prose, so that they are found."""
    for block in reversed(blocks):
        if _holds_label(block):
            text = f"{text[: block.start]}\n{block.code}\n{text[block.end :]}"
    return text


def _fence_lines(text: str) -> Iterator[re.Match[str]]:
    """Yield the fences of a text; most lines have no mark and cost almost nothing."""
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        if "```" in line or "~~~" in line:
            fence = _FENCE.search(text, start, end)
            if fence is not None and _may_be_fence(fence):
                yield fence
        start = end + 1


def _may_be_fence(fence: re.Match[str]) -> bool:
    """Whether a fence starts its line or names a code language after text: `1. ```python`."""
    return fence["indent"] is not None or fence["info"].strip().lower() in CODE_LANGUAGES


def _closes(fence: re.Match[str], mark: str) -> bool:
    return fence["mark"].startswith(mark) and not fence["info"].strip()


def _language(fence: re.Match[str]) -> str:
    """Return the first word of the info: `python` of ```{.python title="x"}; empty if bare."""
    word = _LANGUAGE.search(fence["info"])
    return word[0].lower() if word else ""


def _code(text: str, start: int, end: int) -> str:
    """Return the lines of a block, without the margin of its first line and the last line break."""
    return _dedent(text[start:end].removesuffix("\n").removesuffix("\r"))


def _dedent(code: str) -> str:
    """Remove the margin of the first line from every line that has it."""
    margin = _MARGIN.match(code)
    if margin is None:
        return code
    return "\n".join(line.removeprefix(margin[1]) for line in code.split("\n"))


# --- unfenced replies ----------------------------------------------------------------------------


def _parse_unfenced(text: str, python: PythonParser) -> Actions:
    """Parse a reply without fences: all code, or finals with or without code before them."""
    code = _dedent(text).strip()
    tree = python.parse(code)
    if tree is not None and _does_something(tree, besides_submitting=True) and not _labels(tree):
        return Actions((Cell(code),))
    found = _finals(text)
    if not found:
        return Actions()
    code = _dedent(text[: found[0].start]).strip()
    tree = python.parse(code)
    is_code = tree is not None and _does_something(tree)
    return Actions((Cell(code),) if is_code else (), found[-1].final)


def _labels(tree: ast.Module) -> bool:
    """Whether a statement is `FINAL: x` or `FINAL_VAR: x`, which Python reads as annotations."""
    return any(
        isinstance(statement, ast.AnnAssign)
        and statement.value is None
        and isinstance(statement.target, ast.Name)
        and statement.target.id in {"FINAL", "FINAL_VAR"}
        for statement in tree.body
    )


# --- is it Python, and does it do something? -----------------------------------------------------

_DOING = (
    *(ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match),
    *(ast.With, ast.AsyncWith),
)
_SUBMITTING = frozenset({"FINAL", "FINAL_VAR", "SUBMIT", "submit_answer"})
_CODE_LINE = pattern(
    r"""(?: import\s+\w | from\s+[\w.]+\s+import\b | @\w
      | (?:async\s+)?def\s+\w+\s*\( | class\s+\w+\s*[(:] | try\s*:
      | (?:async\s+)?for\s+\w[\w,\s]*\sin\s.*: | (?:if|while|with)\s.*:\s*$
      | [\w.]+(?:\[[^\]]*\])*\s*(?:[-+*/%|&^]|//|\*\*)?=(?!=)
      | (?:await\s+)?[\w.]+\( )""",
    re.VERBOSE,
)


def _is_code(code: str, tree: ast.Module | None, is_closed: bool) -> bool:
    """Whether a bare fence holds code rather than output or prose.

    Code that parses must do something; code that does not must begin like code, so that the model
    gets its SyntaxError. After a stray fence at the end, a mere `FINAL(x)` is a final.
    """
    if tree is not None:
        return _does_something(tree, besides_submitting=not is_closed)
    lines = (line.strip() for line in code.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _CODE_LINE.match(first[:200]) is not None


def _does_something(tree: ast.Module, besides_submitting: bool = False) -> bool:
    """Whether code calls, assigns, imports or branches: "Paris", `None` or `[1, 2]` do not."""
    body = [one for one in tree.body if not (besides_submitting and _submits(one))]
    return any(_acts(statement) for statement in body)


def _acts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return any(_is_call(node) or isinstance(node, ast.Slice) for node in ast.walk(statement))
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    return isinstance(statement, _DOING)


def _submits(statement: ast.stmt) -> bool:
    """Whether a statement only calls FINAL, perhaps after the dash or star of a list."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.UnaryOp | ast.Starred):
        call = call.operand if isinstance(call, ast.UnaryOp) else call.value
    name = call.func if isinstance(call, ast.Call) else None
    return isinstance(name, ast.Name) and name.id in _SUBMITTING


def _is_call(node: ast.AST) -> bool:
    """Whether a node is a call as programmers write it, unlike `Paris (France)`."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func
    if not (isinstance(name, ast.Name) and name.id[0].isupper() and node.args):
        return True
    return node.args[0].col_offset - (name.end_col_offset or 0) <= 1
