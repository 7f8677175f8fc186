"""Gemini's generateContent dialect: a request to its body, a body to its reply."""

from typing import Any
from urllib.parse import quote

from rlm._util.text import sendable
from rlm.clients._dialect import ErrorReport
from rlm.clients._gemini_contents import contents_of, system_of
from rlm.clients._gemini_reply import StreamedContent, error_of, reply_of
from rlm.clients._gemini_sampling import options_of
from rlm.clients._json import dump
from rlm.messages import Reply, Request

__all__ = ["GeminiDialect"]

COLLECTIONS = ("models", "tunedModels")


class GeminiDialect:
    """`POST /v1beta/models/NAME:generateContent`; paths are below the version.

    Gemini caches by itself what requests begin with, so bodies only ever grow at their end.
    """

    def path(self, request: Request, *, stream: bool) -> str:
        collection, slash, name = request.model.partition("/")
        if not slash or collection not in COLLECTIONS:
            collection, name = COLLECTIONS[0], request.model
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{collection}/{quote(sendable(name), safe='')}:{verb}"

    def body(self, request: Request, *, stream: bool) -> bytes:
        content: dict[str, Any] = {}
        if system := system_of(request.messages):
            content["systemInstruction"] = {"parts": system}
        options = options_of(request)
        return dump({**content, "contents": contents_of(request), **options})

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(payload)

    def streamed(self) -> StreamedContent:
        return StreamedContent()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        return error_of(payload)
