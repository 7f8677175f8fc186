"""The files of the page, all read when the server starts, so that no path leads elsewhere."""

import re
from pathlib import Path
from typing import NamedTuple

from rlm.errors import ConfigError

__all__ = ["STATIC", "Asset", "load_assets", "page_with"]

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
MAX_BYTES = 20_000_000
KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml; charset=utf-8",
    ".txt": "text/plain",
}
_META = re.compile(r"<meta\s+name=[\"']rlm-token[\"'][^>]*>")


class Asset(NamedTuple):
    """A file of the page. `lasting`: its name contains its hash, so it never changes."""

    media_type: str
    data: bytes
    lasting: bool


def load_assets(folder: Path = STATIC) -> dict[str, Asset]:
    """Return all files of the page by the path they are served at.

    Raise ConfigError if there is no page.
    """
    found: dict[str, Asset] = {}
    for below in ("", "assets/"):
        try:
            files = sorted((folder / below).iterdir())
        except OSError:
            files = []
        for file in files:
            kind = KINDS.get(file.suffix)
            if kind and file.is_file() and not file.is_symlink():
                found[f"/{below}{file.name}"] = Asset(kind, _read(file), bool(below))
    if f"/{PAGE}" not in found:
        raise ConfigError(
            "the viewer's page is missing from this installation; install a released wheel, or "
            "build it in a checkout with: cd visualizer && npm ci && npm run build"
        )
    found["/"] = found.pop(f"/{PAGE}")
    return found


def _read(file: Path) -> bytes:
    if file.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{file.name} is too large for a file of the viewer's page")
    return file.read_bytes()


def page_with(page: bytes, token: str) -> bytes:
    """Insert the token that the page's requests need."""
    meta = f'<meta name="rlm-token" content="{token}">'
    text = page.decode("utf-8", "replace")
    if _META.search(text):
        return _META.sub(meta, text, count=1).encode()
    return text.replace("</head>", f"{meta}</head>", 1).encode()
