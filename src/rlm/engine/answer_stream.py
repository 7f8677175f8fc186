"""Stream an answer written as prose while it arrives; code is never streamed.

Passed-on text can't be taken back, so text is held until it can only be part of the answer: after
`Final Answer:` or `FINAL(` at the start of a line, or anywhere in the reply to a direct question,
and only once two words stand side by side, which no Python program has. A fence, another final or
a thinking tag ends the stream; the rest follows when the reply is complete and has been parsed.
"""

import keyword
import re
from collections.abc import Callable

from rlm._util.lazy import pattern
from rlm.calls.scope import Scope
from rlm.calls.sending import ReplyStream
from rlm.engine.cells import parse_reply
from rlm.engine.plain_replies import read_submission
from rlm.events import OutputStreamed
from rlm.messages import Reply

__all__ = ["ProseStream", "direct_answer", "final_answer", "prose_stream"]

_MARKER = pattern(
    r"^[ \t]*+(?:(?P<call>FINAL\()|(?P<mark>\*{0,2})(?:FINAL|(?i:final[ _]answer)):\*{0,2}[ \t]*+)",
    re.MULTILINE,
)
_ENDS = pattern(
    r"```|~~~|<(?:/|/?t|/?th|/?thi|/?thin|/?think|$)|^[ \t]*+[*_`#>-]*+[ \t]*+(?i:final|submit)",
    re.MULTILINE,
)
"""Matches what may begin something other than the answer; the last line may be incomplete."""
_PARTIAL = pattern(
    r"(?:^[ \t]*+[*_`#>-]*+[ \t]*+[A-Za-z_]{0,6}|[`~<*_\s]++|\)\s*+)\Z", re.MULTILINE
)
"""Matches the end of a text if it may become such a beginning, or be stripped."""
_WORDS = pattern(r"(?<![\w'\"])([^\W\d_]\w*+)[ \t]++([^\W\d_]\w*+)(?=[\s,.;:!?])")
_QUOTES = frozenset("\"'`*_([{#")
_PYTHON_WORDS = frozenset((*keyword.kwlist, *keyword.softkwlist, "print", "exec"))


def is_prose(text: str) -> bool:
    """Whether the first line of a text can't be Python: two words stand side by side."""
    line = text.lstrip().partition("\n")[0]
    if not line or line[0] in _QUOTES:
        return False
    before_quotes = re.split(r"[\"'#`]", line, maxsplit=1)[0]
    pairs = (found.groups() for found in _WORDS.finditer(before_quotes))
    return any(_PYTHON_WORDS.isdisjoint(pair) for pair in pairs)


def final_answer(text: str) -> str | None:
    """Return the answer that a step's reply states as prose, beside no code; else None."""
    actions = parse_reply(text)
    final = actions.final
    if actions.cells or final is None or final.kind != "value" or final.maybe_name:
        return None
    return final.text


def direct_answer(text: str) -> str | None:
    """Return the answer in the reply to a direct question; None if it is code."""
    plain = read_submission(Reply(text=text))
    return None if plain.is_code or plain.variable else plain.text


def prose_stream(scope: Scope, *, after_marker: bool) -> ReplyStream | None:
    """Return a stream of the answer of a root run, if a listener wants it."""
    listeners = [each for each in scope.recorders if getattr(each, "wants_pieces", False)]
    if scope.depth or not listeners:
        return None
    if any(isinstance(each, OutputStreamed) for each in scope.tree.events):
        return None  # Cells have streamed parts of the answer; the final may repeat them.

    def tell(piece: str) -> None:
        scope.emit_live(OutputStreamed, listeners, text=piece)

    return ProseStream(tell, after_marker=after_marker)


class ProseStream(ReplyStream):
    """Passes on the part of a reply that is the answer.

    `after_marker`: the answer begins after a final's marker; else it is the whole reply.
    """

    def __init__(self, on_text: Callable[[str], None], *, after_marker: bool) -> None:
        super().__init__(on_text)
        self._after_marker = after_marker
        self._text = ""
        self._start: int | None = None if after_marker else 0
        self._is_call = False
        self._told = 0
        self._is_over = False

    def restart(self) -> None:
        """Start over, because the reply is requested again; nothing was passed on yet."""
        self._text, self._start = "", None if self._after_marker else 0
        self._is_over = False

    def send(self, piece: str) -> None:
        self._text += piece
        if self._is_over or (self._start is None and not self._found_start()):
            return
        assert self._start is not None
        answer = self._text[self._start :].lstrip()
        if not self._told and not is_prose(answer):
            self._is_over = "\n" in answer or len(answer) > 400
            return
        self._tell_until(answer, self._certain_end(answer))

    def finish(self, text: str) -> None:
        """Pass on the rest of the answer, now that the reply is complete."""
        answer = final_answer(text) if self._after_marker else direct_answer(text)
        told = "".join(self._sent)
        if answer is not None and answer.startswith(told):
            super().send(answer[len(told) :])

    def _found_start(self) -> bool:
        if "```" in self._text or "~~~" in self._text or "<" in self._text:
            self._is_over = True
            return False
        found = _MARKER.search(self._text)
        if found is None or found.end() == len(self._text):
            return False
        before = self._text[: found.start()]
        if found["mark"] or (before.strip() and not is_prose(before)):
            self._is_over = True
            return False
        self._start, self._is_call = found.end(), bool(found["call"])
        return True

    def _certain_end(self, answer: str) -> int:
        """Return the end of the text that is part of the answer whatever follows."""
        ends = _ENDS.search(answer, max(0, self._told - 16))
        if ends is not None:
            self._is_over = True
            return ends.start()
        end = len(answer)
        if self._is_call and ")" in answer[self._told :]:
            end = answer.index(")", self._told)
            self._is_over = True
        partial = _PARTIAL.search(answer, self._told, end)
        return end if partial is None else partial.start()

    def _tell_until(self, answer: str, end: int) -> None:
        end = len(answer[:end].rstrip())
        if end > self._told:
            piece, self._told = answer[self._told : end], end
            super().send(piece)
