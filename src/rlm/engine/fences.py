"""Rewrite the many ways in which models mark code as Markdown fences, for one parser to read."""

import re
import unicodedata

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser

__all__ = ["as_fences", "without_marks"]

_FORMAT_MARKS = pattern("[\ufeff\u200b\u200e\u200f\u2060]")
_QUOTED_FENCE = pattern(r"^[ \t]*+>(?:[> \t]*+(?:```|~~~)|[ \t]++>>>)", re.MULTILINE)
_QUOTED = pattern(r"(?:[ \t]*+(?:>[^\n]*+)?(?:\n|\Z))++")
_QUOTE = pattern(r"^[ \t]*+>(?!>>)(?:[ \t]?>(?!>>))*+[ \t]?", re.MULTILINE)
_INFO = pattern(
    r"""^(?P<mark>[ \t]*+(?:`{3,}+|~{3,}+)[ \t]*+) (?:lang(?:uage)?[-=:])?
    (?P<word>[\w.+-]*+) (?P<rest>[^`\n]*+)$""",
    re.MULTILINE | re.VERBOSE,
)
_PYTHON = frozenset(
    [
        *("python-repl", "python_repl", "pythonrepl", "python-console", "python-code", "pycon"),
        *("python2", "py2", "python3.11", "python3.12", "python3.13", "ipython2", "ipython3"),
        *("jupyter", "jupyter-python", "notebook", "sage", "interpreter", "code_interpreter"),
        *("exec", "execute", "execute_python"),
    ]
)
_ANY_CODE = frozenset({"code", "cell", "script", "program"})
_ONE_LINE = pattern(
    r"""^(?P<indent>[ \t]*+)(?P<mark>`{3,}+|~{3,}+)[ \t]*+
    (?:(?P<word>python3?|py|repl|tool_code|code|ipython|jupyter)[ \t:]++)?
    (?P<code>[^`~\n]++)(?:\r?\n[ \t]*+)?(?P=mark)[ \t\r]*+$""",
    re.MULTILINE | re.VERBOSE,
)
_OUTER = pattern(
    r"[ \t]*+(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<word>markdown|md|mdx|text|txt|plaintext)?[ \t\r]*+$"
)
_PROMPT = pattern(r"[ \t]*+(?:>>>|\.\.\.|In ?\[\d*+\]:)(?:[ ]|$)(?P<code>.*)")
_TAG = pattern(
    r"^[ \t]*+(?P<pre><pre\b[^>\n]*+>\s*+)?"
    r"<(?P<tag>repl|python|py|code|execute|execute_python|run|cell)\b(?P<more>[^>\n]*+)>"
    r"(?P<code>.*?)(?:</(?P=tag)>(?:\s*+</pre>)?|\Z)",
    re.MULTILINE | re.DOTALL,
)
_OTHER_LANGUAGE = pattern(r"\blang(?:uage)?-(?!py|repl\b|tool_code\b)")
_LABEL = pattern(
    r"""^[ \t]*+[*_]*+(?:(?:python[ ]?)?(?:code|python|repl|cell|run|execute)|execute_python
      |sure|okay?|(?:the[ ])?(?:answer|result)(?:[ ]is)?)[*_]*+[ \t]*+[:!.,][*_]*+[ \t]++(?=\S)""",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)
_SPAN = pattern(r"(?P<mark>`{1,2}+)(?P<code>[^`\n]++)(?P=mark)[ \t.:;!]*+")
MAX_OUTER_FENCES = 4


def without_marks(text: str) -> str:
    """Return a text without the invisible marks before it and the margin that all lines have."""
    start = 0
    while start < len(text) and (
        text[start].isspace() or unicodedata.category(text[start]) == "Cf"
    ):
        start += 1
    margin = text[text.rfind("\n", 0, start) + 1 : start]
    first, *others = text[start:].rstrip().split("\n")
    if margin and all(each.startswith(margin) or not each.strip() for each in others):
        others = [each.removeprefix(margin) for each in others]
    return "\n".join([first, *others])


def as_fences(text: str) -> str:
    """Return a text whose code is in fences: quoted, in tags, on one line, after prompts."""
    text = _FORMAT_MARKS.sub("", text)
    if ">" in text and (_QUOTED_FENCE.search(text) or _QUOTED.fullmatch(text)):
        text = _QUOTE.sub("", text)
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        text = span["code"].strip()
    if "<" in text:
        text = _TAG.sub(_fence_of_tag, text)
    if "```" in text or "~~~" in text:
        text = _ONE_LINE.sub(_fence_of_line, text)
        text = _without_outer_fences(_INFO.sub(_known_info, text))
    if ">>>" in text or "In [" in text:
        text = _without_prompts(text)
    return _LABEL.sub("", text).strip()


def _fence_of_tag(found: re.Match[str]) -> str:
    """Return the code of a tag in a fence; in `<pre>`, HTML shows code of any language."""
    if found["pre"] and (
        _OTHER_LANGUAGE.search(found["more"]) or PythonParser().parse(found["code"].strip()) is None
    ):
        return found[0]
    language = "repl" if found["tag"] == "repl" else "python"
    return f"```{language}\n{found['code'].strip()}\n```\n"


def _fence_of_line(found: re.Match[str]) -> str:
    mark, word = found["indent"] + found["mark"], found["word"] or ""
    return f"{mark}{word}\n{found['indent']}{found['code'].rstrip()}\n{mark}"


def _known_info(found: re.Match[str]) -> str:
    word = found["word"].lower()
    if word in _ANY_CODE:
        return found["mark"]
    return f"{found['mark']}{'python' if word in _PYTHON else found['word']}{found['rest']}"


def _without_outer_fences(text: str) -> str:
    """Remove the fences of Markdown, and those with four marks or more, around other fences."""
    lines = text.split("\n")
    outer = [
        (number, found)
        for number, line in enumerate(lines)
        if (found := _OUTER.match(line)) and (found["word"] or len(found["mark"]) > 3)
    ]
    opened = [each for each in outer if each[1]["word"]] or outer[:1]
    if not opened or not any(_is_inner(line) for line in lines[opened[0][0] + 1 :]):
        return text
    dropped = set[int]()
    for number, found in opened[:MAX_OUTER_FENCES]:
        closing = (
            at for at in range(len(lines) - 1, number, -1) if lines[at].strip() == found["mark"]
        )
        dropped |= {number, next((at for at in closing if at not in dropped), number)}
    return "\n".join(line for number, line in enumerate(lines) if number not in dropped)


def _is_inner(line: str) -> bool:
    opening = _INFO.match(line)
    return opening is not None and bool(opening["word"])


def _without_prompts(text: str) -> str:
    """Remove the prompts of a Python shell; outside fences, put what follows them in fences."""
    lines: list[str] = []
    is_fenced = run = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            lines += ["```", line] if run and not is_fenced else [line]
            is_fenced, run = not is_fenced, False
            continue
        prompt = _PROMPT.match(line)
        is_code = prompt is not None and (run or not line.lstrip().startswith("..."))
        if is_code != run and not is_fenced:
            lines.append("```python" if is_code else "```")
        lines.append(prompt["code"] if prompt is not None and is_code else line)
        run = is_code
    return "\n".join([*lines, "```"] if run and not is_fenced else lines)
