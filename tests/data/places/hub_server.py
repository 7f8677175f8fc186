"""A stand-in for the Hugging Face Hub: the parts of its HTTP interface that reading needs."""

import hashlib
import json
import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.data.places.web_server import Answer, Asked

_API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)/?(.*))?$")
_FILE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.*)$")


class Hub:
    """Datasets by name: revisions by name, files by path. `denied` are private."""

    def __init__(self) -> None:
        self.datasets: dict[str, dict[str, dict[str, bytes]]] = {}
        self.denied: set[str] = set()

    def answer(self, asked: Asked) -> Answer:
        path = urlsplit(asked.path).path
        if (match := _API.fullmatch(path)) is not None:
            name, what, revision, below = match[1], match[2], match[3], unquote(match[4] or "")
        elif (match := _FILE.fullmatch(path)) is not None:
            name, what, revision, below = match[1], "file", match[2], unquote(match[3])
        else:
            return Answer(404)
        if name in self.denied:
            return _error(403, "GatedRepo")
        if name not in self.datasets:
            return _error(404, "RepoNotFound")
        return self._of(name, what or "revision", unquote(revision or "main"), below, asked)

    def _of(self, name: str, what: str, revision: str, below: str, asked: Asked) -> Answer:
        revisions = self.datasets[name]
        by_commit = {commit(name, each): each for each in revisions}
        revision = by_commit.get(revision, revision)
        if revision not in revisions:
            return _error(404, "RevisionNotFound")
        files = revisions[revision]
        if what == "revision":
            facts = {"id": name, "sha": commit(name, revision), "private": False, "tags": []}
            return _json({**facts, "siblings": [], "downloads": 0, "likes": 0, "disabled": False})
        if what == "file":
            if below not in files:
                return _error(404, "EntryNotFound")
            return Answer(200, files[below], {"ETag": f'"{_oid(files[below])}"'})
        if what == "paths-info":
            named = parse_qs(asked.body.decode()).get("paths", [])
            return _json([_facts(each, data) for each, data in files.items() if each in named])
        inside = {
            each: data for each, data in files.items() if not below or each.startswith(f"{below}/")
        }
        if not inside:
            return _error(404, "EntryNotFound")
        return _json([_facts(each, data) for each, data in inside.items()])


def commit(name: str, revision: str) -> str:
    return hashlib.sha1(f"{name}@{revision}".encode()).hexdigest()


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def _facts(path: str, data: bytes) -> dict[str, Any]:
    return {"type": "file", "oid": _oid(data), "size": len(data), "path": path}


def _json(value: Any) -> Answer:
    return Answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _error(status: int, code: str) -> Answer:
    return Answer(status, b"{}", {"X-Error-Code": code})
