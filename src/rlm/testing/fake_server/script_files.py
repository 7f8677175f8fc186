"""Script files: TOML for people, JSON and JSON lines for programs."""

import json
import tomllib
from pathlib import Path
from typing import Any

from rlm.errors import ConfigError
from rlm.testing.fake_server.script import Answer, as_answer, as_pattern

__all__ = ["read_script"]

LARGEST_SCRIPT_BYTES = 256 * 1024**2


def read_script(path: str | Path) -> list[Answer]:
    """The answers of a file, checked; ConfigError, with the place, if something is wrong."""
    path = Path(path)
    read = {".toml": _toml, ".json": _json, ".jsonl": _json_lines}.get(path.suffix)
    if read is None:
        raise ConfigError(f"{path.name}: a script ends in .toml, .json or .jsonl")
    if path.stat().st_size > LARGEST_SCRIPT_BYTES:
        raise ConfigError(f"{path.name} is larger than {LARGEST_SCRIPT_BYTES >> 20} MiB")
    try:
        given = read(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and JSONDecodeError are both
        raise ConfigError(f"{path.name}: {error}") from None
    return [_checked(path.name, number, each) for number, each in enumerate(given, start=1)]


def _checked(name: str, number: int, given: object) -> Answer:
    try:
        answer = as_answer(given)
        as_pattern(answer.when or "")
    except ConfigError as error:
        raise ConfigError(f"{name}, answer {number}: {error}") from None
    return answer


def _toml(text: str) -> list[Any]:
    return _listed(tomllib.loads(text))


def _json(text: str) -> list[Any]:
    return _listed(json.loads(text))


def _json_lines(text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def _listed(document: Any) -> list[Any]:
    """A list of answers, or a table whose only key is `answers`."""
    answers = document
    if isinstance(document, dict):
        if unknown := sorted(document.keys() - {"answers"}):
            raise ValueError(f"unknown key {unknown[0]!r}: answers begin with [[answers]]")
        answers = document.get("answers", [])
    if not isinstance(answers, list):
        raise ValueError("answers are a list: begin each with [[answers]]")
    return answers
