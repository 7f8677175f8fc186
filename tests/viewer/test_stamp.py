"""The built page is made from the sources beside it; no Node is needed to know."""

import gzip
import hashlib
import re
from pathlib import Path

from tests.shape.tree import ROOT

SOURCES = ROOT / "visualizer"
STATIC = ROOT / "src" / "rlm" / "viewer" / "static"
SINGLE = (
    ".npmrc",
    "index.html",
    "package-lock.json",
    "package.json",
    "tsconfig.json",
    "vite.config.ts",
)
MAX_BYTES = 150_000
"""Of all built files together, compressed: it must open at once."""


def stamp(folder: Path) -> str:
    """The hash that visualizer/tools/stamp.mjs writes: over paths, sizes and bytes, by path."""
    files = [folder / name for name in SINGLE]
    files += [path for path in (folder / "src").rglob("*") if path.is_file()]
    found = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        text = path.read_bytes()
        found.update(f"{name}\0{len(text)}\0".encode() + text)
    return found.hexdigest()


def test_the_built_page_is_up_to_date_with_its_sources() -> None:
    written = (STATIC / "source.sha256").read_text("utf-8").strip()
    assert written == stamp(SOURCES), "in visualizer/, run npm run build"


def test_exactly_the_needed_assets_are_shipped() -> None:
    assets = {path.name for path in (STATIC / "assets").iterdir()}
    texts = [path.read_text("utf-8") for path in STATIC.rglob("*") if path.is_file()]
    named = {name for text in texts for name in re.findall(r"[\w-]+-[0-9a-f]{8}\.(?:js|css)", text)}
    assert named == assets, "in visualizer/, run npm run build"


def test_the_page_has_no_inline_scripts_or_styles() -> None:
    page = (STATIC / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert re.findall(r"\s(?:style|on\w+)=", page) == []
    assert '<meta name="rlm-token" content="" />' in page


def test_the_types_of_the_page_match_the_event_schema() -> None:
    schema = (ROOT / "src" / "rlm" / "records" / "events.schema.json").read_bytes()
    types = (SOURCES / "src" / "events.ts").read_text("utf-8")
    told = re.search(r"^// schema-sha256: (\w+)$", types, re.MULTILINE)
    assert told is not None
    assert told[1] == hashlib.sha256(schema).hexdigest(), (
        "in visualizer/, run npm run types, then npm run build"
    )


def test_the_built_page_is_small() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    size = sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in files)
    assert size < MAX_BYTES


def test_a_changed_source_is_noticed(tmp_path: Path) -> None:
    for name in (*SINGLE, "src/main.tsx", "src/parts/one.ts"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, "utf-8")
    before = stamp(tmp_path)
    (tmp_path / "src" / "parts" / "one.ts").write_text("another", "utf-8")
    changed = stamp(tmp_path)
    (tmp_path / "src" / "parts" / "one.ts").rename(tmp_path / "src" / "one.ts")
    assert len({before, changed, stamp(tmp_path)}) == 3
