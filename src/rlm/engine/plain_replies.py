"""Read replies that should be plain text: a model used to the REPL may write code instead.

Where no code runs any more, `FINAL('ok')` still states the answer, and `FINAL_VAR(rows)` names the
variable that holds it. Other code for the REPL can't be shown as an answer, but code that the
query asked for can: `repl_code.py` tells them apart.
"""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser
from rlm.engine.cells import (
    Actions,
    Final,
    parse_reply,
    parse_tool_calls,
    prose_of,
    strip_thinking,
)
from rlm.engine.fences import as_fences, without_marks
from rlm.engine.finals import unfenced
from rlm.engine.repl_code import (
    MAX_COMPLETED_CHARS,
    OF_THE_REPL,
    CodeInProse,
    ReplNames,
    acts,
    code_paragraphs,
    completed,
    defines,
    is_formula,
    is_one_line,
    is_statement_in_words,
)
from rlm.engine.submissions import (
    CODE,
    SUBMITTING,
    PlainReply,
    submitted,
    submitted_expression,
    touched,
)
from rlm.engine.written_calls import calls_in, code_in_json, final_channel, value_in_json
from rlm.messages import Reply

__all__ = ["PlainReply", "json_of", "read_plain", "read_submission"]

_REPL_FENCE = pattern(r"(?:```|~~~)[ \t]*(?:repl|tool_code)\b")
_WORDS = pattern(r"\w++[ ]")
_KEYWORD = pattern(r"(?:answer|value|content|result|variable_name|name)\s*=(?!=)")

_AS_TYPED = str.maketrans("\u00a0\uff08\uff09\u201c\u201d\u2018\u2019", " ()\"\"''")
"""Characters in code of some models, each with the one of a keyboard that Python can read."""

MAX_EXPRESSION_CHARS = 20_000
MAX_PROSE_CHARS = 50_000
"""How far code is searched for between the lines of a reply."""
MAX_CUTS = 64


def read_plain(reply: Reply, variables: Collection[str] = ()) -> PlainReply:
    """Return the answer in a reply to "answer now, without code".

    `variables` are those of the REPL.
    """
    text = without_marks(final_channel(strip_thinking(reply.text)))
    names = ReplNames(variables)
    typed = text.translate(_AS_TYPED)
    if typed != text and (found := _Reading(typed, names).read(reply)).is_code:
        return replace(found, text=text) if found.text == typed else found
    return _Reading(text, names).read(reply)


def json_of(reply: Reply) -> str:
    """Return the JSON of a reply that is nothing but an object or a list; empty if it is not."""
    return value_in_json(without_marks(final_channel(strip_thinking(reply.text))))


class _Reading:
    """How one reply is read. `text` is what it says; `shown` has all code in fences."""

    def __init__(self, text: str, names: ReplNames, *, is_argument: bool = False) -> None:
        self._text = text
        self._names = names
        self._is_argument = is_argument
        self._python = PythonParser()
        shown = as_fences(text)
        self._shown = _with_spans_as_lines(shown) if _announces(shown) else shown

    def read(self, reply: Reply) -> PlainReply:
        """Return what the reply says."""
        if calls := reply.tool_calls:
            actions, prose = parse_tool_calls(calls), self._text
            if not actions.cells and actions.final is None:
                return PlainReply(prose, is_code=not prose)
        elif calls := calls_in(self._text):
            actions, prose = parse_tool_calls(calls), ""
            if actions.final is None:
                actions = Actions(actions.cells, parse_reply(self._shown).final)
            if not actions.cells and actions.final is None:
                return CODE
        else:
            actions, prose = parse_reply(self._shown), prose_of(self._shown)
        codes = [cell.code for cell in actions.cells]
        if actions.final is not None:
            return self._of_final(actions.final, codes)
        if calls:
            found = submitted(codes, self._python)
            return PlainReply(_beside(prose), is_code=True) if found is None else found
        return self._of_code(codes, prose) if codes else self._of_prose(self._shown)

    def _of_code(self, codes: list[str], prose: str) -> PlainReply:
        """Read a reply with code that would have run."""
        if (found := submitted(codes, self._python)) is not None:
            return found
        trees = [self._python.parse(code) for code in codes]
        pairs = tuple(zip(trees, codes, strict=True))
        is_whole = prose in {"", self._shown}
        is_for_repl = (
            _REPL_FENCE.search(self._shown) is not None
            or any(self._names.are_needed(*pair) for pair in pairs)
            or (is_whole and any(self._names.run_alone(*pair) for pair in pairs))
            or (_announces(prose) and any(tree is None or acts(tree) for tree in trees))
        )
        if is_for_repl:
            return PlainReply(self._formula() if is_whole else _beside(prose), is_code=True)
        return PlainReply(self._text) if is_whole else self._of_prose(prose)

    def _of_prose(self, prose: str) -> PlainReply:
        """Read a reply without fenced code, which may still hold code between its lines."""
        if _is_expression(prose, self._names, self._python):
            return PlainReply(self._formula(), is_code=True)
        for wrapped in (_Wrapped(prose, code_in_json(prose)), *_unwrapped(prose)):
            tree = self._python.parse(wrapped.code)
            if tree is not None and acts(tree) and self._names.are_run_by(tree, wrapped.code):
                return PlainReply(self._beside_wrapped(wrapped, tree, prose), is_code=True)
        found_code = code_paragraphs(prose[:MAX_PROSE_CHARS], self._python)
        for_repl = [each for each in found_code if self._is_for_repl(each, prose)]
        if not for_repl:
            return PlainReply(unfenced(self._text))
        codes = [each.code for each in for_repl]
        if (found := submitted(codes, self._python)) is not None:
            return found
        beside = prose
        for each in for_repl[:MAX_CUTS]:
            beside = beside.replace(each.written, "", 1)
        return PlainReply(_beside(beside), is_code=True)

    def _beside_wrapped(self, wrapped: "_Wrapped", tree: ast.Module, prose: str) -> str:
        """Return what may be an answer: all of a reply that only tells of a line of code.

        Like a formula, it counts if the next reply is no better.
        """
        if wrapped.is_told and is_one_line(tree, wrapped.code) and not _announces(wrapped.beside):
            return self._text
        return "" if wrapped.beside == prose else _beside(wrapped.beside)

    def _formula(self) -> str:
        """Return the reply if it may be a formula: it counts if the next one is no better."""
        is_words = not self._is_argument and is_statement_in_words(self._shown)
        shown = self._text if self._text.startswith(">") else self._shown  # greater than
        return shown if is_words or is_formula(self._shown) else ""

    def _is_for_repl(self, found: CodeInProse, prose: str) -> bool:
        """Whether code between other lines is for the REPL, or cut off and all there is."""
        if found.is_cut_off and prose.strip() == found.written.strip():
            loops = any(isinstance(node, ast.comprehension) for node in ast.walk(found.tree))
            return loops or self._names.run_alone(found.tree, found.code)
        is_formula = not (
            acts(found.tree)
            or defines(found.tree)
            or any(map(submitted_expression, found.tree.body))
        )
        return not is_formula and self._names.are_needed(found.tree, found.code)

    def _of_final(self, final: Final, unrun: list[str]) -> PlainReply:
        """Read `FINAL(...)` and the like, beside which there may be code that never ran."""
        if final.kind == "variable" or final.maybe_name:
            prose = prose_of(self._shown)[:MAX_PROSE_CHARS]
            unrun = [*unrun, *(each.code for each in code_paragraphs(prose, self._python))]
        is_stale = any(touched(code, final.text.strip(), self._python) for code in unrun)
        if final.kind == "variable":
            return CODE if is_stale else PlainReply(variable=final.text, is_code=True)
        if final.maybe_name:
            if is_stale:
                return CODE
            is_name = final.text in OF_THE_REPL or "_" in final.text
            may_be_name = final.text.islower() and f"({final.text})" in self._shown  # not `Paris`
            word = "" if is_name else final.text
            return PlainReply(word, variable=final.text, is_code=is_name or may_be_name)
        if _is_quoted(final.text, self._shown):
            return PlainReply(final.text)
        return self._of_argument(final.text)

    def _of_argument(self, text: str) -> PlainReply:
        """Read what stands in the brackets of `FINAL(...)`, or after a label, without quotes."""
        call = f"FINAL({text}\n)"
        if self._python.parse(call) is None:
            if _is_cut_off(text, self._names, self._python):
                return PlainReply(text if _WORDS.match(text) else "", is_code=True)
        elif _KEYWORD.match(text):
            return submitted([call], self._python) or CODE
        inner = _Reading(text, self._names, is_argument=True)
        actions = parse_reply(inner._shown)
        if actions.final is not None:
            return PlainReply(text)
        codes = [cell.code for cell in actions.cells]
        found = inner._of_code(codes, prose_of(inner._shown)) if codes else inner._of_prose(text)
        return found if found.is_code else PlainReply(text)


def read_submission(reply: Reply) -> PlainReply:
    """Return the answer in a reply to a call without a REPL, where code may be what was asked for.

    Only a reply that is nothing but FINAL(...) or similar is read as code.
    """
    text = strip_thinking(reply.text).strip()
    plain = PlainReply(text)
    if not any(name in text for name in (*SUBMITTING, 'answer["', "answer['")):
        return plain
    actions, prose = parse_reply(text), prose_of(text)
    python = PythonParser()
    if actions.cells:
        found = submitted([cell.code for cell in actions.cells], python)
        return found if found is not None and prose in {"", text} else plain
    whole = python.parse(text)
    is_call = (
        whole is not None
        and len(whole.body) == 1
        and submitted_expression(whole.body[0]) is not None
    )
    if actions.final is None or not is_call:
        return plain
    return _Reading(text, ReplNames(()))._of_final(actions.final, [])


# --- expressions ---------------------------------------------------------------------------------


def _is_expression(text: str, names: ReplNames, python: PythonParser) -> bool:
    """Whether a text is an expression over variables, as in `FINAL(len(rows))`."""
    if len(text) > MAX_EXPRESSION_CHARS:
        return False
    tree = python.parse(text)
    if tree is None and "\n" not in text:  # perhaps arguments, as in `FINAL(*rows)`
        tree = python.parse(f"_({text}\n)")
    only = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    return isinstance(only, ast.Expr) and names.compute(_arguments(only.value))


def _is_cut_off(text: str, names: ReplNames, python: PythonParser) -> bool:
    """Whether a text is the beginning of an expression over variables."""
    if len(text) > MAX_COMPLETED_CHARS:
        return False
    return any(
        python.parse(each) is not None and _is_expression(each, names, python)
        for each in completed(text)
    )


def _arguments(value: ast.expr) -> Sequence[ast.expr]:
    """Return what is given to the call that `_is_expression` adds, or the expression itself."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "_":
        return [*value.args, *(each.value for each in value.keywords)]
    return [value]


def _is_quoted(value: str, text: str) -> bool:
    """Whether the value of a final was a string literal, so that it is the answer as it is."""
    start = text.rfind(value)
    return start < 0 or text[start - 1 : start] in {"'", '"'}


_WRAPPED = pattern(
    r"""  <(?P<tag>[\w:-]++)[^>\n]*+>(?P<tagged>.*?)(?:</(?P=tag)>)?
        | (?P<mark>[*_]{1,3}+|["'])(?P<marked>.*)(?P=mark)
        | %{1,2}+\w++\s(?P<magic>.*)
        | (?P<before>(?:.*\n)?[^\n:()]{1,60}+:)[ \t]++(?P<led>[^\n]*)
        | (?P<ended>.*)[。．；;]
    """,
    re.DOTALL | re.VERBOSE,
)
_INNER = ("tagged", "marked", "magic", "led", "ended")
_TAG_OF_TEXT = pattern(
    r"(?:final[_-]?)?(?:answer|result|response|output|solution)|b|strong|i|em|p|q|span|div",
    re.IGNORECASE,
)
_LABEL_OF_A_TOOL = pattern(
    r"(?:.*\n)?\W*+(?:action|tool|function)(?:\ (?:input|call))?[*_ ]*+:", re.DOTALL | re.IGNORECASE
)
MAX_WRAPPERS = 4
MAX_WRAPPED_CHARS = 2_000


class _Wrapped(NamedTuple):
    """Code in a tag, in quotes, after a lead-in and the like; `beside` is the text before it.

    If nothing is before it, `beside` is the whole text. `is_told`: it stands where text stands,
    as in `**print(x)**` or `The line is: print(x)`, and in nothing that asks for it to be run.
    """

    beside: str
    code: str
    is_told: bool = False


def _unwrapped(text: str) -> Iterator[_Wrapped]:
    """Yield what is left of a text without its outermost tag, quotes or lead-in, step by step."""
    code, beside = text.strip(), text
    is_told = is_to_run = False
    for _ in range(MAX_WRAPPERS):
        found = _WRAPPED.fullmatch(code) if len(code) <= MAX_WRAPPED_CHARS else None
        if found is None:
            return
        beside = found["before"] or beside
        code = next(each for each in found.group(*_INNER) if each is not None).strip()
        is_told = is_told or found["ended"] is None
        is_to_run = is_to_run or _asks_to_run(found)
        yield _Wrapped(beside, code, is_told and not is_to_run)


def _asks_to_run(wrapped: re.Match[str]) -> bool:
    """Whether code is in the tag or after the label of a tool, or a magic of IPython."""
    if wrapped["tag"] is not None:
        return _TAG_OF_TEXT.fullmatch(wrapped["tag"]) is None
    if wrapped["before"] is not None:
        return _LABEL_OF_A_TOOL.fullmatch(wrapped["before"]) is not None
    return wrapped["magic"] is not None


# --- what stands beside code ---------------------------------------------------------------------

_SENTENCE_END = pattern(r"(?<=[.!?…:])\s+|\n+")
_ANNOUNCEMENT = pattern(
    r"""\W*+ (?:(?:thought|action|plan|step\ \d+):\W*+)?
    (?: (?:(?:ok|okay|sure|right|alright|great|now|first|next|then|so|well|hmm|wait)\b[,.!\s]*+)*+
        (?:let\ me|let['’]?s|let\ us|i['’]?ll|i\ will|i['’]?m\ going\ to|i\ am\ going\ to
          |i\ (?:still\ )?(?:need|have|want)\ to|i\ should|i\ must
          |we\ (?:need|have)\ to|we\ should|we['’]?ll)\b
        (?!\s+(?:\w+\s+)?
          (?:show|write|give|explain|suggest|propose|share|present|provide|answer|sum)\b)
      | (?:ich\ (?:werde|muss|schaue|prüfe|sehe)|schauen\ wir|sehen\ wir
          |lass(?:t|en\ sie)?\ (?:uns|mich)|je\ vais|regardons|voyons|laissez-moi|laisse-moi
          |voy\ a|vamos\ a|veamos|déjame|permíteme)\b
        (?!.{0,30}(?:zeig|erklär|schreib|montr|expliqu|écri|mostr|explic|escrib))
      | (?:让我|讓我|我来|我來|我先|我需要|我们来|我們來|首先，?我)
        (?!.{0,10}(?:展示|解释|解釋|写|寫|回答|说明|說明))
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_INTERJECTION = pattern(
    r"\W*+\d*+\W*+(?:(?:ok|okay|sure|right|alright|great|well|hmm)\W*+)*+", re.IGNORECASE
)
MAX_ANNOUNCEMENT_CHARS = 2_000
_LINE_SPAN = pattern(r"`([^`\n]++)`[ \t.:;!]*+$", re.MULTILINE)


def _announces(prose: str) -> bool:
    """Whether a text says what its writer will do next: "Let me look." """
    if len(prose) > MAX_ANNOUNCEMENT_CHARS:
        return False
    return any(_ANNOUNCEMENT.match(sentence) for sentence in _SENTENCE_END.split(prose))


def _with_spans_as_lines(text: str) -> str:
    """Put code at the end of lines on lines of its own: "Let me run `print(rows)`." """
    return text if "```" in text else _LINE_SPAN.sub(r"\n\n\1\n", text)


def _beside(prose: str) -> str:
    """Return the part of a reply beside its code that may be an answer."""
    prose = prose.strip()
    leads = prose.rstrip("*_ ").endswith(":")
    if len(prose) > MAX_ANNOUNCEMENT_CHARS:
        return "" if leads else prose
    sentences = _SENTENCE_END.split(prose)
    return "" if leads or all(map(_leads_to_code, sentences)) else prose


def _leads_to_code(sentence: str) -> bool:
    is_short = _INTERJECTION.fullmatch(sentence) is not None
    return is_short or sentence.endswith(":") or _ANNOUNCEMENT.match(sentence) is not None
