"""Places as sources of a corpus: their files are kept, and updated, in its folder.

A corpus refers to its source files, so they must not disappear with a cache.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm._util.atomic import replacing
from rlm.data.filesystem.opening import display_path
from rlm.data.places.addresses import WIDE, Place, place
from rlm.data.places.fetching import Fetching, fetch_contents
from rlm.data.places.naming import file_names, last_part
from rlm.data.places.storing import FetchedFiles
from rlm.errors import ConfigError

__all__ = ["mirror", "mirrored_places"]

FOLDER = "places"
_KEY_CHARS = 12


def mirror(
    corpus: Path, given: Place, on_progress: Callable[[Fetching], None] = lambda _: None
) -> Path:
    """Fetch a place into the folder of a corpus, and return the file or folder to index.

    Files with unchanged content are left alone, so that they are not indexed again.
    """
    key = hashlib.sha256(given.url.encode()).hexdigest()[:_KEY_CHARS]
    home = corpus / FOLDER / key
    record = home / "place.json"
    before = _files_of(_read(record))
    found = fetch_contents(given, FetchedFiles(), on_progress)
    is_one = list(found.by_name) == [given.path.rpartition("/")[2]] or given.is_web
    folder = home / "files" if is_one else home / "files" / last_part(given.wildcards[0])
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        FetchedFiles().lay_out(folder, found.by_name, before)
        # What may be secret is not stored: such a place must be named again.
        kept = None if given.secrets or given.options else given.url
        with replacing(record) as file:
            about = {"shown": given.shown, "url": kept, "files": found.by_name}
            file.write(json.dumps(about).encode())
    except OSError as error:
        raise ConfigError(f"{display_path(home)} can't be written: {error.strerror}") from error
    return folder / next(iter(found.by_name)) if is_one else folder


def mirrored_places(corpus: Path) -> tuple[list[Place], list[str]]:
    """Return the places that a corpus covers, and those that must be named again."""
    known: list[Place] = []
    unnamed: list[str] = []
    for record in sorted((corpus / FOLDER).glob("*/place.json")):
        about = _read(record)
        if isinstance(url := about.get("url"), str):
            known.append(place(url, limits=WIDE))
        elif about:
            unnamed.append(str(about.get("shown", "")))
    return known, unnamed


def _files_of(about: dict[str, Any]) -> dict[str, str]:
    """Return the files that a record names, except names that we would never give."""
    files = about.get("files")
    if not isinstance(files, dict):
        return {}
    return {name: content for name, content in files.items() if file_names([name])[name] == name}


def _read(record: Path) -> dict[str, Any]:
    try:
        found = json.loads(record.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
