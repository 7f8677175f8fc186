"""JSON responses, and what errors may say about this machine."""

import json
import re
import tempfile
from pathlib import Path

import msgspec
from starlette.responses import Response

__all__ = ["STATUS_MESSAGES", "json_bytes", "json_response", "without_paths"]

STATUS_MESSAGES = {
    404: "there is nothing at this address",
    405: "this address does not support that method",
    413: "the request is too large",
}
_FOLDERS = re.compile(r"(?<![\w:/])(?:[A-Za-z]:)?[/\\](?:[^/\\\n'\":;,]*[^/\\\s'\":;,][/\\])+")
"""Folders of a path. Their names may contain spaces, but don't end with one."""


def json_bytes(value: object) -> bytes:
    """Encode as JSON; lone surrogates, which UTF-8 cannot hold, are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def json_response(value: object, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


def without_paths(text: str) -> str:
    """Remove folders from an error message; names of files stay."""
    for root in (str(Path.home()), tempfile.gettempdir(), str(Path.cwd())):
        if len(root) > 1:
            text = text.replace(root, "")  # Its name may contain anything.
    return _FOLDERS.sub("", text)
