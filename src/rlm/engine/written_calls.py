"""Tool calls that a model wrote into its text, in the markup of many chat templates."""

import json
import re
from collections.abc import Iterator
from typing import Any

from rlm._util.lazy import pattern
from rlm.engine.finals import unfenced
from rlm.messages import ToolCall
from rlm.worker.repl_names import REPL_NAMES

__all__ = ["calls_in", "code_in_json", "final_channel", "value_in_json"]

MAX_CALLS = 64
_RUNS_CODE = (
    *("execute_python", "python", "ipython", "repl", "python_repl", "python_interpreter"),
    *("code_interpreter", "run_python", "execute_code", "run_code"),
)
_TOOLS = frozenset({*_RUNS_CODE, "submit_answer", *(each.name for each in REPL_NAMES)})
_PLAIN_TOOL = "|".join((*_RUNS_CODE, "submit_answer"))
_TOOL = rf"(?:functions?\.|default_api\.)?(?:{_PLAIN_TOOL})\b"

_MARK = pattern(
    rf"""(?<![`'"])(?:
      <[|｜](?:python_tag|python_start|tool[_▁]calls?[_▁](?:section[_▁])?(?:begin|start)|tool[_▁]calls?|START_ACTION
        |channel|start)[|｜]>
    | <[|｜]DSML[|｜]\w
    | <start_function_call>
    | \[/?(?:TOOL_CALLS?|tool_calls?)\]
    | <(?:\w{{1,20}}:)?(?:tool_calls?|function_calls?|tool_use|tool_code)(?:[ ][^>\n]{{0,80}})?>
    | <(?:function=|(?:\w{{1,20}}:)?invoke[ ]name=|(?:function|tool)[ ]name=["']?(?={_TOOL}))
    | (?m:^)[ \t]*+[*_]*+(?:Tool|Tool[ ]call|Function|Function[ ]call)[*_]*+[ \t]*+:[*_ \t`]*+
        (?={_TOOL}[`*_ \t]*+(?m:$))
    | (?m:^)[ \t]*+[*_]*+Action[*_]*+[ \t]*+:
        (?:[*_ \t`]*+(?={_TOOL})|[^\n]*+\n[*_ \t]*+Action[ ]Input)
    | (?m:^)[ \t]*+(?=functions\.(?:{_PLAIN_TOOL}))
    | (?=\{{\s*"(?:name|tool|tool_name|action|recipient_name)"\s*:\s*"{_TOOL}"\s*,\s*
        "(?:arguments|parameters|args|(?:tool_|action_)?input|params)")
    | (?m:^)[ \t]*+(?:assistant[ ]*)?(?:commentary[ ]+)?to=(?={_TOOL})
    )""",
    re.VERBOSE,
)
_MARKS = ("<", "[", "{", "Action", "Tool", "Function", "functions.", "to=")
_NAME = pattern(rf"(?<![\w.]){_TOOL}")
_FINAL_CHANNEL = pattern(r"<\|channel\|>final(?:[ ]*<\|constrain\|>\w+)?[ ]*<\|message\|>")
_ENDS = pattern(
    r"<[|｜](?:end|return|call|python_end|im_end|eot_id|eom_id|endoftext|end▁of▁sentence)[|｜]>"
)
_PARAMETER = pattern(
    r"<(?:\w+:|[|｜]DSML[|｜])?parameter(?:=|[ ]name=)[\"']?(\w++)[^>\n]{0,80}+>(.*?)(?:</|\Z)",
    re.DOTALL,
)
_PAIR = pattern(
    r"<arg_key>\s*+(\w++)\s*+</arg_key>\s*+<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL
)
_ESCAPED = pattern(r"(\w++):<escape>(.*?)(?:<escape>|\Z)", re.DOTALL)
_INPUT = pattern(
    r"(?:Action Input|Arguments|Input)[*_]*+[ \t]*+:[*_]*+|<\|message\|>|python_(?:tag|start)\|>"
)


def calls_in(text: str) -> tuple[ToolCall, ...]:
    """Return tool calls that a model wrote into its text; an unreadable one has no name."""
    marks: list[int] = []
    if any(mark in text for mark in _MARKS):
        marks = [mark.start() for mark in _MARK.finditer(text)]
    if not marks or value_in_json(text):
        return tuple(_of_json(text))
    ends = (*marks[1:MAX_CALLS], len(text))
    found = [_call(text[start:end]) for start, end in zip(marks, ends, strict=False)]
    named = tuple(call for call in found if call.name)
    return named or (ToolCall("text", "", {}),)


def final_channel(text: str) -> str:
    """Return what a reply says in harmony's final channel, or the whole reply."""
    if "<|channel|>" not in text:
        return text
    marks = list(_FINAL_CHANNEL.finditer(text))
    return _ENDS.sub("", text[marks[-1].end() :]).strip() if marks else text


def _call(written: str) -> ToolCall:
    """Return the call that one mark begins."""
    written = _ENDS.sub("", written)
    plain = _first_json(written)
    for call in _of_plain(plain):
        return call
    name = _NAME.search(written[:2_000])
    if "python_" in written[:20] and name is None:
        return ToolCall("text", "execute_python", {"code": written.partition(">")[2].strip()})
    if name is None:
        return ToolCall("text", "", {})
    arguments = plain if isinstance(plain, dict) else _arguments(written)
    return ToolCall("text", _plain_name(name[0]), arguments)


def _arguments(written: str) -> dict[str, Any]:
    """Return the arguments in tags, or the text after `Action Input:` as code."""
    pairs = next(
        (all_ for each in (_PARAMETER, _PAIR, _ESCAPED) if (all_ := each.findall(written))), []
    )
    if pairs:
        return {key: value.strip("\n") for key, value in pairs}
    parts = _INPUT.split(written, maxsplit=1)
    return {"code": parts[1].strip()} if len(parts) == 2 else {}


def _first_json(written: str) -> Any:
    """Return the first JSON object or list in a text, or None."""
    decoder = json.JSONDecoder()
    for opening in ("{", "[{", "["):
        start = written.find(opening)
        if start < 0:
            continue
        try:
            return decoder.raw_decode(written, start)[0]
        except (ValueError, RecursionError):
            continue
    return None


def code_in_json(text: str) -> str:
    """Return the code in a reply such as `{"code": "print(1)"}`; empty if there is none.

    An object that says more, such as `{"line": 12, "source": "print(1)"}`, is an answer.
    """
    plain = _json(text) if any(f'"{key}"' in text for key in _CODE_KEYS) else None
    if not isinstance(plain, dict):
        return ""
    beside = (*_BESIDE_CODE, "language") if "code" in plain else _BESIDE_CODE
    said = [
        value
        for key, value in plain.items()
        if key not in beside and not (key in _NAMES and _runs_code(value))
    ]
    key = next((key for key in _CODE_KEYS if key in plain), "")
    return said[0] if key and len(said) == 1 and isinstance(said[0], str) else ""


def _runs_code(tool: object) -> bool:
    return isinstance(tool, str) and _plain_name(tool) == "execute_python"


def value_in_json(text: str) -> str:
    """Return the JSON of a reply that is nothing but an object or a list; empty if it is not."""
    text = unfenced(text.strip())
    return text if _json(text) is not None else ""


def _of_json(text: str) -> Iterator[ToolCall]:
    """Yield the calls in a reply that is nothing but JSON."""
    if any(name in text for name in ('"name"', '"tool', '"action"')):
        plain = _json(text)
        if all(map(_is_only_a_call, plain if isinstance(plain, list) else [plain])):
            yield from _of_plain(plain)


def _is_only_a_call(plain: Any) -> bool:
    """Whether an object says no more than a call: `{"function": "ask", "line": 3}` does."""
    return isinstance(plain, dict) and _OF_CALLS.issuperset(plain)


def _json(text: str) -> Any:
    """Return what a reply says in JSON, or None."""
    text = unfenced(text)
    try:
        return json.loads(text) if text[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        return None


_CODE_KEYS = ("code", "python", "repl", "script", "source", "cell", "command", "cmd", "input")
_BESIDE_CODE = ("thought", "thoughts", "timeout")
_NAMES = ("name", "tool", "tool_name", "function", "action", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "params")
_OF_CALLS = frozenset(
    (*_NAMES, *_ARGUMENTS, *_BESIDE_CODE, "tool_calls", "role", "content", "type", "id", "call_id")
)


def _of_plain(plain: Any) -> Iterator[ToolCall]:
    """Yield the calls in parsed JSON: objects with the name of a known tool and arguments."""
    for each in plain[:MAX_CALLS] if isinstance(plain, list) else [plain]:
        if not isinstance(each, dict):
            continue
        calls = each.get("tool_calls")
        each = calls[0] if isinstance(calls, list) and calls else each
        function = each.get("function") if isinstance(each, dict) else None
        each = function if isinstance(function, dict) else each
        if not isinstance(each, dict):
            continue
        name = next((each[key] for key in _NAMES if isinstance(each.get(key), str)), "")
        given = [each[key] for key in _ARGUMENTS if key in each]
        if _plain_name(name) in _TOOLS and given:
            yield ToolCall("text", _plain_name(name), _plain_arguments(given[0]))


def _plain_arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        plain = json.loads(given)
    except (ValueError, RecursionError):
        plain = None
    return plain if isinstance(plain, dict) else {"code": given}


def _plain_name(name: str) -> str:
    """Return our name of a tool: `functions.python` executes code too."""
    name = name.strip().rpartition(".")[2].partition(":")[0]
    return "execute_python" if name in _RUNS_CODE else name
