"""The variables of commands: the environment, a `.env` in the working folder, and stored keys.

The file may belong to a cloned repository. So it can set only rlm's own variables, the real
environment takes precedence, an address in it never receives a key from elsewhere, and it can
name only models of known providers. Commands say what they took from it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rlm.clients._aws import REGION_VARIABLES
from rlm.settings.configuration import Defaults
from rlm.settings.keys import stored_keys
from rlm.settings.schema import is_service
from rlm.wiring.registry import PROVIDERS

__all__ = ["Settings", "merge", "parse", "settings"]

LARGEST_BYTES = 65_536
LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)", re.ASCII)
DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
SINGLE = re.compile(r"'([^']*)'")
COMMENT = re.compile(r"(?:^|\s)#.*")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

KEY_VARIABLES = {name for each in PROVIDERS.values() for name in each.key_variables}
AWS_VARIABLES = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", *REGION_VARIABLES}
)
"""They decide who pays and which region answers, but never name a host other than AWS's."""

ADDRESS_VARIABLES = {name for each in PROVIDERS.values() for name in each.base_url_variables}

MODEL_VARIABLES = ("RLM_MODEL", "RLM_SUB_MODEL")
ONLY_ENVIRONMENT = frozenset({"RLM_JOURNAL", "RLM_STATE_DIR", "RLM_CONFIG_DIR"})
"""Whether and where something is kept, which someone else's file must not decide."""


class Settings(Struct, frozen=True):
    """The variables that commands use, and what a `.env` and the key store contributed.

    `defaults` are the settings of the user and of the project; `notice` is about the key store.
    """

    variables: dict[str, str]
    path: str | None = None
    taken: tuple[str, ...] = ()
    ignored: dict[str, str] = field(default_factory=dict)
    defaults: Defaults = field(default_factory=Defaults)
    notice: str | None = None

    def notices(self) -> list[str]:
        """Return what the user should know: what a `.env` set, and what of it was ignored."""
        lines = [f"{name} in {self.path} is ignored: {why}." for name, why in self.ignored.items()]
        return [f"{self.path} sets {', '.join(self.taken)}.", *lines] if self.taken else lines


def settings(environ: Mapping[str, str], folder: Path) -> Settings:
    """Return the environment, with what the folder's `.env` and the key store may add."""
    stored, notice = stored_keys(environ)
    found = _from_file(environ, folder / ".env", stored)
    used = {name: value for name, value in stored.items() if not found.variables.get(name)}
    return replace(
        found,
        variables={**found.variables, **used},
        defaults=Defaults.read(environ, folder, used),
        notice=notice,
    )


def _from_file(environ: Mapping[str, str], path: Path, stored: Mapping[str, str]) -> Settings:
    if not path.is_file():
        return Settings(dict(environ))
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        return Settings(dict(environ), str(path), (), {".env": str(error.strerror)})
    if len(text) > LARGEST_BYTES:
        reason = f"it has more than {LARGEST_BYTES:,} bytes"
        return Settings(dict(environ), str(path), (), {".env": reason})
    return merge(environ, parse(text.decode("utf-8-sig", "replace")), str(path), stored)


def parse(text: str) -> dict[str, str]:
    """Parse KEY=VALUE lines with quotes, comments and `export`. Nothing is expanded or executed."""
    found = {}
    for line in text.splitlines():
        if hit := LINE.fullmatch(line.strip()):
            found[hit["name"]] = _value(hit["value"])
    return found


def _value(written: str) -> str:
    if quoted := SINGLE.match(written):
        return quoted[1]
    if quoted := DOUBLE.match(written):
        return re.sub(r"\\(.)", lambda hit: ESCAPES.get(hit[1], hit[1]), quoted[1])
    return COMMENT.sub("", written).strip()


def merge(
    environ: Mapping[str, str],
    found: Mapping[str, str],
    path: str,
    stored: Mapping[str, str] | None = None,
) -> Settings:
    """Return the environment, plus the settings of the file that are allowed."""
    ours = {name: value for name, value in found.items() if value and _is_ours(name)}
    new = {name: value for name, value in ours.items() if not environ.get(name)}
    ignored = {name: "the environment sets it" for name in ours if name not in new}
    # An empty variable hides no stored key: `settings` fills it with that key.
    merged = {**(stored or {}), **{n: value for n, value in environ.items() if value}, **new}
    for name in MODEL_VARIABLES:
        if name in new and not is_service(new[name]):
            ignored[name] = (
                "a .env may name only models of known providers, not programs, files, plugins or "
                "aliases; use -m or rlm config"
            )
    for name in sorted(new.keys() & ONLY_ENVIRONMENT):
        ignored[name] = "a .env can't set it; set it in the environment"
    for name in sorted(new.keys() & ADDRESS_VARIABLES):
        if not _has_key_beside_it(name, merged, new):
            ignored[name] = "an address is used only with its provider's key from the same file"
    taken = {name: value for name, value in new.items() if name not in ignored}
    return Settings({**environ, **taken}, path, tuple(sorted(taken)), ignored)


def _is_ours(name: str) -> bool:
    known = KEY_VARIABLES | ADDRESS_VARIABLES | AWS_VARIABLES | ONLY_ENVIRONMENT
    return name in MODEL_VARIABLES or name in known


def _has_key_beside_it(
    address: str, merged: Mapping[str, str], from_file: Mapping[str, str]
) -> bool:
    """Return whether every provider at this address takes its key from the same file."""
    users = [each for each in PROVIDERS.values() if address in each.base_url_variables]
    keys = [next((k for k in each.key_variables if merged.get(k)), None) for each in users]
    return all(key is not None and key in from_file for key in keys)
