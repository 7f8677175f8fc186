"""`ctx`, `peek`, `tail` and `lenP`: reading helpers over the payload, as in `rlm.worker.ctx`."""

import json as _rlm_json
import re as _rlm_re
from typing import Any

__all__ = ["lenP", "peek", "tail"]

# -- sent from here --


def _rlm_text_of(payload: Any) -> str:
    if isinstance(payload, (list, tuple)):
        return "\n\n".join([str(item) for item in payload])
    if isinstance(payload, dict):
        return _rlm_json.dumps(payload, ensure_ascii=False)
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "replace")
    return str(payload)


class _RlmContextView:
    """Read-only views of the payload. Offsets are indices into its text form."""

    def __init__(self, payload: Any) -> None:
        self._payload = payload
        self._text = payload if isinstance(payload, str) else _rlm_text_of(payload)

    def slice(self, start: int = 0, end: int | None = None) -> str:
        return self._text[max(0, start) : None if end is None else max(0, end)]

    def find(
        self,
        pattern: str,
        regex: bool = False,
        max_matches: int = 20,
        case_sensitive: bool = True,
    ) -> list[tuple[int, int, str]]:
        if not pattern:
            raise ValueError("the pattern is empty")
        source = pattern if regex else _rlm_re.escape(pattern)
        compiled = _rlm_re.compile(source) if case_sensitive else _rlm_re.compile("(?i)" + source)
        matches: list[tuple[int, int, str]] = []
        for match in compiled.finditer(self._text):
            if len(matches) >= max_matches:
                break
            matches.append((match.start(), match.end(), match.group()))
        return matches

    def grep(self, pattern: str, context_lines: int = 0, max_matches: int = 50) -> list[str]:
        try:
            compiled = _rlm_re.compile(pattern)
        except _rlm_re.error:
            compiled = _rlm_re.compile(_rlm_re.escape(pattern))
        lines = self._text.split("\n")
        found: list[str] = []
        for index, line in enumerate(lines):
            if len(found) >= max_matches:
                break
            if compiled.search(line):
                first = max(0, index - context_lines)
                some = lines[first : index + context_lines + 1]
                rows = [f"{first + n + 1}: {each}" for n, each in enumerate(some)]
                found.append("\n".join(rows))
        return found

    def chunk(self, size: int, overlap: int = 0) -> list[tuple[int, int, str]]:
        if size < 1 or not 0 <= overlap < size:
            raise ValueError("chunk needs size >= 1 and 0 <= overlap < size")
        text = self._text
        pieces: list[tuple[int, int, str]] = []
        start = 0
        while start < len(text):
            end = min(start + size, len(text))
            pieces.append((start, end, text[start:end]))
            if end == len(text):
                break
            start += size - overlap
        return pieces

    def lines(self, start: int = 1, end: int | None = None) -> list[str]:
        return self._text.split("\n")[max(0, start - 1) : end]

    def documents(self) -> list[Any]:
        if isinstance(self._payload, dict):
            return list(self._payload.items())
        if isinstance(self._payload, (list, tuple)):
            return list(self._payload)
        return [self._payload]

    def describe(self) -> str:
        payload = self._payload
        if isinstance(payload, dict):
            keys = ", ".join([str(key)[:40] for key in list(payload)[:20]])
            more = ", ..." if len(payload) > 20 else ""
            return f"dict with {len(payload):,} keys ({keys}{more})"
        if isinstance(payload, (list, tuple)):
            kinds = ", ".join(sorted({type(item).__name__ for item in payload}))
            kind = type(payload).__name__
            return f"{kind} of {len(payload):,} items ({kinds or 'empty'})"
        if isinstance(payload, str):
            lines = payload.count("\n") + 1
            return f"str of {len(payload):,} characters, {lines:,} lines"
        return type(payload).__name__

    def __repr__(self) -> str:
        return f"<ctx: {self.describe()}; slice find grep chunk lines documents describe>"


_rlm_view = _RlmContextView("")


def peek(n: int = 2000) -> str:
    return _rlm_view.slice(0, n)


def tail(n: int = 2000) -> str:
    text = _rlm_view.slice()
    return text[max(0, len(text) - n) :] if n > 0 else ""


def lenP() -> int:  # noqa: N802
    return len(_rlm_view.slice())
