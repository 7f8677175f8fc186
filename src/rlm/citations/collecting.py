"""The citations of one run: cited by its cells, or quoted by its answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from rlm._util.limited import in_thread
from rlm._util.off_loop import off_loop
from rlm.citations.citation import Citation
from rlm.citations.finding import Found, Source, find_quotes, find_span
from rlm.citations.quotes import quotes_in
from rlm.errors import CallRefused, RLMError

__all__ = ["MAX_CITATIONS", "MAX_TOTAL_CHARS", "Citations"]

"""What the prompt says if citations are asked for."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

MAX_CITATIONS = 100
MAX_TOTAL_CHARS = 100_000
"""How much text all citations of a run may hold together."""

MAX_ATTEMPTS = 1_000
"""How many times the cells of a run may try to cite: each may search all texts."""


class Citations:
    """The citations of a run, each checked against its context.

    `unsupported` counts quotes and places that the context does not contain; `omitted` counts those
    that are not listed because there are too many, or that were not searched for.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._searching = asyncio.Lock()
        self._missing: set[object] = set()
        self._attempts = 0
        self._chars = 0
        self.found: list[Citation] = []
        self.omitted = 0

    @property
    def unsupported(self) -> int:
        return len(self._missing)

    # -- by cells ----------------------------------------------------------------------------

    async def cite(
        self, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """Answer `cite` of a cell: the text of the place, or the problem with it."""
        self._attempts += 1
        if self._attempts > MAX_ATTEMPTS:
            raise CallRefused(f"a run can cite at most {MAX_ATTEMPTS:,} times", limit="citations")
        place = arguments["start"], arguments["end"], arguments["name"]
        try:
            if parts:
                citation = await self._quoted(parts[0])
            else:
                citation = await self._search(find_span, self._source, *place)
        except LookupError as error:
            self._missing.add(_key(parts[0]) if parts else place)
            return {"problem": str(error)}, ()
        except RLMError as error:  # A file of the context has changed.
            self.omitted += 1
            return {"problem": f"the context can't be read: {error}"}, ()
        problem = self._add(citation)
        return ({}, [citation.text]) if problem is None else ({"problem": problem}, ())

    async def _quoted(self, quote: str) -> Citation:
        found = await self._search(find_quotes, self._source, [quote])
        if found.citations[0] is None:
            raise LookupError(
                f"the context does not contain {quote[:80]!r}; quote it word for word"
            )
        return found.citations[0]

    async def _search(
        self, find: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Search in a thread, one at a time: many threads would block the event loop."""
        async with self._searching:
            return await in_thread(find, *given, **named)

    # -- by the answer -----------------------------------------------------------------------

    async def look_into(self, answer: str) -> None:
        """Find the quotes of an answer in the context."""
        quotes = await off_loop(len(answer), lambda: self._new_quotes(answer))
        wanted, beyond = quotes[:MAX_CITATIONS], quotes[MAX_CITATIONS:]
        self.omitted += len(beyond)
        if not wanted:
            return
        try:
            found = await self._search(find_quotes, self._source, wanted)
        except RLMError:  # A file of the context has changed.
            self.omitted += len(wanted)
            return
        self._note(wanted, found)

    def _new_quotes(self, answer: str) -> list[str]:
        """Return the quotes of an answer that its run has not cited."""
        known = [_key(each.text) for each in self.found]
        return [q for q in quotes_in(answer) if not any(_key(q) in text for text in known)]

    async def skip(self, answer: str) -> None:
        """Count the quotes of an answer that are not searched for, because the run was stopped."""
        self.omitted += len(await off_loop(len(answer), lambda: quotes_in(answer)))

    def _note(self, quotes: Sequence[str], found: Found) -> None:
        for quote, citation in zip(quotes, found.citations, strict=True):
            if citation is not None:
                if not any(each.covers(citation) for each in self.found):
                    self._add(citation)
            elif not found.unsearched:
                self._missing.add(_key(quote))
        self.omitted += found.unsearched

    def _add(self, citation: Citation) -> str | None:
        """Keep each citation once; return the problem if there is no room for it."""
        if citation in self.found:
            return None
        size = len(citation.text)
        if len(self.found) >= MAX_CITATIONS or self._chars + size > MAX_TOTAL_CHARS:
            self.omitted += 1
            return f"at most {MAX_CITATIONS} citations of {MAX_TOTAL_CHARS:,} characters are kept"
        self.found.append(citation)
        self._chars += size
        return None


def _key(quote: str) -> str:
    return " ".join(quote.split())
