"""An address of files elsewhere, as a user writes it, and what may be shown of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from rlm._util.lazy import pattern
from rlm.data.filesystem.opening import display_path
from rlm.errors import ConfigError

__all__ = ["SCHEMES", "WIDE", "FetchLimits", "Fetched", "Place", "is_address", "place"]

SCHEMES = ("s3", "gs", "az", "https", "http", "hf")
OTHER_NAMES = {
    "abfs": "az", "abfss": "az", "azure": "az", "gcs": "gs", "google": "gs", "huggingface": "hf",
    "s3a": "s3", "s3n": "s3", "wasb": "az", "wasbs": "az",
}  # fmt: skip
"""How other programs write these schemes."""

MAX_URL_CHARS = 8_192
_ADDRESS = pattern(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_WILDCARD = pattern(r"[*?\[]")
_OF_DATASET = pattern(r"\?(?=(?:split|config)=)")
_SECRET_OPTIONS = pattern(r"(?i)key|secret|token|password|credential|connection|sas|header")


class FetchLimits(Struct, frozen=True):
    """The most that is fetched of one place, and how long it may take."""

    bytes: int = 4 << 30
    files: int = 20_000
    seconds: float = 3_600.0


WIDE = FetchLimits(bytes=100 << 30, files=200_000, seconds=24 * 3_600.0)
"""The limits for a place that is the source of a corpus."""


class Place(Struct, frozen=True, repr_omit_defaults=True):
    """Files elsewhere: a web page, an object, or all objects below a prefix or of a pattern.

    `options` are passed to the library that reads the place; they may hold secrets.
    """

    url: str
    options: dict[str, Any] = {}
    limits: FetchLimits = FetchLimits()

    def __repr__(self) -> str:
        return f"place({self.shown!r})"

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0].lower()

    @property
    def is_web(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def path(self) -> str:
        """What follows the scheme, without the query of a dataset; not for web pages."""
        return _OF_DATASET.split(self.url.partition("://")[2])[0]

    @property
    def dataset(self) -> dict[str, str]:
        """The requested `split` and `config` of a Hugging Face dataset; empty otherwise."""
        if self.scheme != "hf" or len(parts := _OF_DATASET.split(self.url, maxsplit=1)) < 2:
            return {}
        return {name: values[-1] for name, values in parse_qs(parts[1]).items()}

    @property
    def wildcards(self) -> tuple[str, tuple[str, ...]]:
        """The path before the first wildcard, and the parts of the pattern; empty without one."""
        parts = self.path.split("/")
        for at, part in enumerate(parts):
            if not self.is_web and _WILDCARD.search(part):
                return "/".join(parts[:at]), tuple(parts[at:])
        return self.path, ()

    @property
    def is_table(self) -> bool:
        """Whether all its files are parts of one table."""
        return bool(self.dataset or self.wildcards[1])

    @property
    def table_name(self) -> str:
        """The default name of the table that the place is."""
        if split := self.dataset.get("split"):
            return split
        path = urlsplit(self.url).path if self.is_web else self.wildcards[0]
        last = path.rstrip("/").rpartition("/")[2]
        return unquote(last).partition(".")[0] or "table"

    @property
    def shown(self) -> str:
        """The address for people, logs and models: without passwords, tokens and signatures."""
        if not self.is_web:
            return display_path(self.url)
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return display_path(f"{self.scheme}://{host}{parts.path}" + ("?…" if parts.query else ""))

    @property
    def secrets(self) -> list[str]:
        """Parts of the address and of the options that must never be shown, longest first."""
        found = [str(v) for k, v in self.options.items() if _SECRET_OPTIONS.search(k)]
        if self.is_web:
            parts = urlsplit(self.url)
            password = parts.password or ""
            found += [parts.netloc.rpartition("@")[0], password, unquote(password), parts.query]
            found += [each for values in parse_qs(parts.query).values() for each in values]
        return sorted({each for each in found if len(each) > 3}, key=len, reverse=True)


class Fetched(Struct, frozen=True):
    """The fetched files of a place; other users can neither read nor change them."""

    place: Place
    folder: Path
    names: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in self.names)

    @property
    def table_name(self) -> str:
        return self.place.table_name

    @property
    def label(self) -> str:
        """The prefix of the files' names beside other files: scheme, host and path."""
        return self.place.shown.removesuffix("?…").rstrip("/").replace("://", "/")


def is_address(text: str) -> bool:
    """Return whether a text is an address such as `s3://bucket/logs`, with any scheme."""
    return _ADDRESS.match(text) is not None


def place(
    url: str, *, options: Mapping[str, Any] | None = None, limits: FetchLimits | None = None
) -> Place:
    """Pass files elsewhere as a context: `s3://`, `gs://`, `az://`, `https://` or `hf://`.

    This program fetches them when the context is read; model-written code never does.
    `options` go to the library of the store (s3fs, gcsfs, adlfs, huggingface_hub).
    """
    if not isinstance(url, str) or not url:
        raise ConfigError("place() needs an address, such as 's3://bucket/logs/'")
    found = Place(url, dict(options or {}), limits or FetchLimits())
    _check(found)
    return found


def _check(found: Place) -> None:
    if (match := _ADDRESS.match(found.url)) is None:
        raise ConfigError("an address must begin with a scheme, such as s3:// or https://")
    if found.scheme not in SCHEMES:
        raise ConfigError(_unknown(match[1].lower(), found.url[match.end() :]))
    if len(found.url) > MAX_URL_CHARS or not found.url.isprintable():
        raise ConfigError(
            f"an address can have at most {MAX_URL_CHARS:,} characters, all of them printable"
        )
    if found.is_web:
        _check_web(found.url)
        return
    host, _, rest = found.path.partition("/")
    if "@" in host:
        raise ConfigError(
            f"leave credentials out of {found.scheme}:// addresses: the library finds them in the "
            "environment and in its own files"
        )
    if not host or _WILDCARD.search(host):
        what = "datasets/owner/name" if found.scheme == "hf" else "bucket/prefix"
        raise ConfigError(f"write {found.scheme}://{what}: the first part is missing")
    if found.scheme == "hf" and not rest:
        raise ConfigError("write hf://datasets/owner/name, with a path below it if you like")
    if strange := set(found.dataset) - {"split", "config"}:
        raise ConfigError(f"a dataset accepts ?split= and &config=, not {min(strange)[:40]!r}")


def _check_web(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise ConfigError("the address names no host; write https://host/path")


def _unknown(scheme: str, rest: str) -> str:
    """Say what to write instead of an address that nothing here can read."""
    if scheme == "file":
        return "for a file on this machine, pass its path, without file://"
    from difflib import get_close_matches  # Imported late: few addresses are wrong.

    known = OTHER_NAMES.get(scheme) or next(iter(get_close_matches(scheme, SCHEMES, 1)), None)
    shown = rest.rpartition("@")[2].partition("?")[0]
    if known is not None:
        return f"unknown scheme {scheme}://; write {display_path(f'{known}://{shown}')}"
    return (
        f"{scheme}:// can't be read; {', '.join(f'{name}://' for name in SCHEMES)} can. Download "
        "the data first, and pass the file"
    )
