"""`-f rlm:PATH`: files as attachments by path.

llm copies fragments into its logs database, but of such an attachment it keeps path and hash only.
"""

import glob
import mimetypes
from itertools import islice
from pathlib import Path

import llm

__all__ = ["load_files"]

MOST_FILES = 10_000


def load_files(argument: str) -> list[llm.Fragment | llm.Attachment]:
    """The file at a path, or those that a pattern names, as attachments.

    One file, or a pattern such as `rlm:logs/**/*.log`. What is in them becomes `context`.
    """
    path = Path(argument).expanduser()
    if path.is_dir():
        raise ValueError(f"{argument} is a folder: name files, such as 'rlm:{argument}/**/*.txt'")
    if path.is_file():
        return [_attachment(path)]
    if path.exists():
        raise ValueError(f"{argument} is not a regular file; read it first, as in `llm … < pipe`")
    names = glob.iglob(str(path), recursive=True)  # noqa: PTH207 - an absolute pattern may be given
    found = [Path(name) for name in islice(names, MOST_FILES + 1) if Path(name).is_file()]
    if not found:
        raise ValueError(f"there is no file {argument}; check the path")
    if len(found) > MOST_FILES:
        raise ValueError(f"{argument} names more than {MOST_FILES:,} files; use a narrower pattern")
    return [_attachment(each) for each in sorted(found)]


def _attachment(path: Path) -> llm.Attachment:
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return llm.Attachment(type=kind, path=str(path.resolve()))
