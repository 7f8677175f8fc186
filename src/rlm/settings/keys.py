"""Keys of providers, kept in a file that only its owner can read, or in the system's keyring.

They act as environment variables of the lowest priority, but only for rlm itself: programs that it
starts do not get them. The file lists every key; those in the keyring have no value in it.
"""

import json
import logging
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rlm.errors import ConfigError
from rlm.settings.files import config_folder, locked, prepare_folder, private_bytes, write
from rlm.wiring.providers import ALIASES, PROVIDERS

__all__ = ["KEY_NAMES", "KeyStore", "key_name", "keyring_problem", "stored_keys"]

FILE = "keys.json"
SERVICE = "rlm"
LONGEST_KEY = 10_000
KEY_NAMES = tuple(
    dict.fromkeys(
        (
            *(name for each in PROVIDERS.values() for name in each.key_variables),
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        )
    )
)

_log = logging.getLogger("rlm")


def key_name(given: str) -> str:
    """Return the variable meant by the name of a provider or of a variable."""
    if given.upper() in KEY_NAMES:
        return given.upper()
    provider = PROVIDERS.get(ALIASES.get(given.lower(), given.lower()))
    if provider is not None and provider.key_variables:
        return provider.key_variables[0]
    from rlm._util.text import closest

    names = [name for name, each in PROVIDERS.items() if each.key_variables]
    meant = closest(given.lower(), names) or closest(given.upper(), KEY_NAMES)
    hint = f" Did you mean {meant!r}?" if meant else ""
    raise ConfigError(f"no provider uses a key {given!r}.{hint} Providers: {', '.join(names)}")


def stored_keys(variables: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Return the stored keys that no variable sets, and what to tell the user about the store."""
    store = KeyStore.usual(variables)
    try:
        found = store.values(unless=[name for name in KEY_NAMES if variables.get(name)])
        return found, store.notice
    except ConfigError as error:
        return {}, f"The key store is not used: {error}."


class KeyStore:
    """The keys of one folder. Values leave it only through `values`."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.notice: str | None = None
        """What the user should know about the file, after it was read."""

    @classmethod
    def usual(cls, variables: Mapping[str, str]) -> "KeyStore":
        return cls(config_folder(variables))

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder / FILE

    def names(self) -> dict[str, str]:
        """Return the names of all keys, and where each is: in the file or in the keyring."""
        return {
            name: "keyring" if value is None else "file" for name, value in self._read().items()
        }

    def values(self, unless: Collection[str] = ()) -> dict[str, str]:
        """Return all keys, except those named in `unless`."""
        found = {}
        for name, value in self._read().items():
            if name in unless or name not in KEY_NAMES:
                continue
            if key := value or _from_keyring(name):
                found[name] = key
        return found

    def set(self, name: str, value: str, *, in_keyring: bool = False) -> None:
        """Store a key, replacing an earlier one."""
        value = value.strip()
        if not value:
            raise ConfigError("no key was given; paste it at the prompt, or pipe it in")
        if len(value) > LONGEST_KEY or not value.isascii() or not value.isprintable():
            raise ConfigError(
                "that is not a valid key: a key is one line of at most "
                f"{LONGEST_KEY:,} ASCII characters"
            )
        folder = prepare_folder(self.folder)
        with locked(folder):
            kept = self._read()
            if in_keyring:
                _call_keyring("set_password", name, value)
            elif name in kept and kept[name] is None:
                _call_keyring("delete_password", name)
            self._write({**kept, name: None if in_keyring else value})

    def remove(self, name: str) -> None:
        """Remove a key from the file or the keyring; ConfigError if there is none."""
        folder = prepare_folder(self.folder)
        with locked(folder):
            kept = self._read()
            if name not in kept:
                raise ConfigError(f"the key store has no {name}; `rlm keys list` lists its keys")
            if kept[name] is None:
                _call_keyring("delete_password", name)
            self._write({each: value for each, value in kept.items() if each != name})

    def _read(self) -> dict[str, str | None]:
        """Return the keys in the file; None stands for a key in the keyring."""
        path = self.path
        found = None if path is None else private_bytes(path)
        if path is None or found is None:
            return {}
        data, was_open = found
        if was_open:
            self.notice = (
                f"other users could read {path}; now only you can. If others use this "
                "machine, replace the keys in it."
            )
        try:
            kept = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}; repair or remove it") from None
        if not isinstance(kept, dict) or not all(map(_is_entry, kept.items())):
            raise ConfigError(f"{path} contains more than names and keys; repair or remove it")
        return kept

    def _write(self, kept: Mapping[str, str | None]) -> None:
        assert self.path is not None
        write(self.path, json.dumps(dict(sorted(kept.items())), indent=2).encode() + b"\n")


def _is_entry(item: tuple[str, Any]) -> bool:
    return item[1] is None or isinstance(item[1], str)


# -- the keyring ----------------------------------------------------------------------------------


def keyring_problem() -> str | None:
    """Return why the system's keyring can't be used; None if it can."""
    from rlm._util.distribution import install_command

    try:
        keyring = import_module("keyring")
    except ImportError:
        return f"the package keyring is not installed: {install_command('keyring')}"
    backend = keyring.get_keyring()
    home = type(backend).__module__
    if home.endswith((".fail", ".null")) or not getattr(backend, "backends", True):
        return "this system has no keyring"
    return None


def _from_keyring(name: str) -> str | None:
    """Return a key; None, with a warning, if the keyring does not provide it."""
    try:
        value = _call_keyring("get_password", name)
    except ConfigError as error:
        _log.warning("%s is not used: %s", name, error)
        return None
    return value if isinstance(value, str) else None


def _call_keyring(function: str, name: str, *values: str) -> Any:
    if problem := keyring_problem():
        raise ConfigError(f"{name} is kept in the system's keyring, but {problem}")
    keyring, errors = import_module("keyring"), import_module("keyring.errors")
    try:
        return getattr(keyring, function)(SERVICE, name, *values)
    except (errors.KeyringError, OSError, RuntimeError) as error:
        raise ConfigError(f"the keyring failed for {name}: {type(error).__name__}") from None
