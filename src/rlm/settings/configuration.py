"""The settings of the user and of a project, and the model that follows from them.

A project's `rlm.toml` may come from a cloned repository. It may therefore set only a model of a
known provider, aliases and lower limits; everything else is ignored, with a reason. See
docs/decisions/0015-settings-of-users-and-projects.md.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from rlm._util.files import writers_problem
from rlm._util.text import closest
from rlm.errors import ConfigError
from rlm.limits import Limits
from rlm.settings.files import LARGEST_BYTES, config_folder, locked, prepare_folder, write
from rlm.settings.schema import ALIAS, checked, flat, is_service, setting
from rlm.settings.toml_text import change, parsed
from rlm.wiring.providers import PROVIDERS, first_usable
from rlm.wiring.registry import split_model

__all__ = [
    "PROJECT_FILE",
    "Chosen",
    "Configuration",
    "Defaults",
    "read_project",
    "read_user",
    "set_value",
    "user_file",
]

USER_FILE = "config.toml"
PROJECT_FILE = "rlm.toml"
MOST_PARENTS = 50
TOLD = 5
"""How many ignored settings of a project are named."""

LARGEST_PROJECT_BYTES = 16_384
MOST_SETTINGS = 200
"""How many settings a project's file may have, so that reading it is always fast."""

LONGEST_NAME = 60
LONGEST_REASON = 500

EVERYTHING = "the whole file"
MAY_NOT = "a project may not"


class Configuration(Struct, frozen=True):
    """The values of one file by their dotted names, and why others were ignored."""

    path: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def aliases(self) -> dict[str, str]:
        return {
            name.removeprefix(ALIAS): value
            for name, value in self.values.items()
            if name.startswith(ALIAS)
        }


class Chosen(NamedTuple):
    """The models of a run, and why. `by_project`: a project's file names one of them."""

    model: str
    sub_model: str | None
    why: str
    by_project: bool = False


class Defaults(Struct, frozen=True):
    """What applies by default: the user's settings, the project's, and stored keys."""

    user: Configuration = field(default_factory=Configuration)
    project: Configuration = field(default_factory=Configuration)
    stored: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls, variables: Mapping[str, str], folder: Path | None, stored: Collection[str] = ()
    ) -> "Defaults":
        """Read both files; ConfigError if there is a mistake in the user's."""
        user = read_user(variables)
        project = Configuration() if folder is None else read_project(folder, user)
        return cls(user, project, frozenset(stored))

    @property
    def aliases(self) -> dict[str, str]:
        """All aliases; a project may add some, but not change the user's."""
        return {**self.project.aliases, **self.user.aliases}

    def values(self) -> dict[str, Any]:
        """Return every setting that applies, except aliases; the project's take precedence."""
        both = {**self.user.values, **self.project.values}
        return {name: value for name, value in both.items() if not name.startswith(ALIAS)}

    def resolve(self, model: str) -> str:
        """Return what an alias stands for; other names unchanged."""
        if (full := self.aliases.get(model)) is not None:
            return full
        if "/" not in model and (meant := closest(model, self.aliases)):
            try:
                split_model(model)
            except ConfigError as error:
                raise ConfigError(f"{error}; or did you mean the alias {meant!r}?") from None
        return model

    def choose(
        self,
        variables: Mapping[str, str],
        model: str | None = None,
        sub_model: str | None = None,
        doubtful: Collection[str] = (),
    ) -> Chosen | None:
        """Return the requested models, else those of variables, files and keys; None if none.

        The model for calls is never taken from a source of lower priority than the model itself: a
        private model must not be paired with a hosted one. Aliases in `doubtful` variables, which
        are those of a `.env`, are not followed.
        """
        named = {
            name: variables[name] if name in doubtful else self.resolve(variables[name])
            for name in ("RLM_MODEL", "RLM_SUB_MODEL")
            if variables.get(name)
        }
        first = (model and self.resolve(model)) or named.get("RLM_MODEL")
        sub = (sub_model and self.resolve(sub_model)) or named.get("RLM_SUB_MODEL")
        if first:
            why = "it was requested" if model else "RLM_MODEL names it"
            asked = [
                model or variables.get("RLM_MODEL"),
                sub_model or variables.get("RLM_SUB_MODEL"),
            ]
            theirs = self.project.aliases.keys() - self.user.aliases.keys()
            if followed := [each for each in asked if each in theirs]:
                why = f"{self.project.path} defines {' and '.join(followed)}"
            return Chosen(first, sub, why, bool(followed))
        by_project = False
        for found in (self.project, self.user):
            if sub is None and (name := found.values.get("sub_model")):
                sub, by_project = self.resolve(name), found is self.project
            if name := found.values.get("model"):
                why = f"{found.path} names it"
                return Chosen(self.resolve(name), sub, why, by_project or found is self.project)
        if (usable := first_usable(variables)) is None:
            return None
        name, key = usable
        why = f"{key} is {'in the key store' if key in self.stored else 'set'}"
        return Chosen(f"{name}/{PROVIDERS[name].default_model}", sub, why, by_project)

    def sub_model(self) -> str | None:
        """Return the model for calls, for when nothing names the model."""
        name = self.values().get("sub_model")
        return None if name is None else self.resolve(name)

    def check_limits(self) -> None:
        """Refuse to spend money if a limit of the project can't be read."""
        for name, why in self.project.ignored.items():
            if name == EVERYTHING or (name.startswith("limit") and not why.startswith(MAY_NOT)):
                raise ConfigError(
                    f"{_told(self.project.path, name, why)}. It may contain a limit, so correct it "
                    "or remove the file"
                )

    def notices(self) -> list[str]:
        """Return a line for each setting of the project that is ignored."""
        path, ignored = self.project.path, list(self.project.ignored.items())
        lines = [f"{_told(path, f'ignoring {name}', why)}." for name, why in ignored[:TOLD]]
        more = len(ignored) - TOLD
        return [*lines, f"{more} more of its settings are ignored."] if more > 0 else lines


def _told(path: Path | None, name: str, why: str) -> str:
    """Return why a setting of a project is ignored, in brief and without control characters."""
    text = f"{path}: {name[:LONGEST_NAME]}: {why[:LONGEST_REASON]}"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


# -- the user's -----------------------------------------------------------------------------------


def user_file(variables: Mapping[str, str]) -> Path | None:
    """Return the path of the user's settings, whether or not the file exists."""
    folder = config_folder(variables)
    return None if folder is None else folder / USER_FILE


def read_user(variables: Mapping[str, str]) -> Configuration:
    """Read the user's settings; every mistake in them is an error, with the file's name."""
    path = user_file(variables)
    if path is None:
        return Configuration()
    text = _text(path, is_own=True)
    if text is None:
        return Configuration(path)
    try:
        values = flat(parsed(text))
        return Configuration(path, {name: checked(name, value) for name, value in values.items()})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def set_value(variables: Mapping[str, str], name: str, value: Any) -> Path:
    """Set one of the user's settings, or remove it with None; return the file's path."""
    setting(name)
    table, _, key = name.rpartition(".")
    folder = prepare_folder(config_folder(variables))
    path = folder / USER_FILE
    with locked(folder):
        try:
            text = change(_text(path, is_own=True) or "", table, key, value)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        except ValueError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        write(path.resolve(), text.encode())
    return path


def _text(path: Path, largest: int = LARGEST_BYTES, *, is_own: bool = False) -> str | None:
    """Read a settings file; None if there is none. `is_own`: only the user may have written it.

    The user's settings can name a program to run, so nobody else may write them.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            problem = writers_problem(os.fstat(file.fileno())) if is_own else None
            data = file.read(largest + 1)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    if problem is not None:
        raise ConfigError(f"{path} is not used: {problem}")
    if len(data) > largest:
        raise ConfigError(f"{path} has more than {largest:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason}") from None


# -- a project's ----------------------------------------------------------------------------------


def read_project(folder: Path, user: Configuration) -> Configuration:
    """Read the nearest `rlm.toml`, up to the repository's root; nothing in it is trusted."""
    path = _project_file(folder)
    if path is None:
        return Configuration()
    try:
        data = parsed(_text(path, LARGEST_PROJECT_BYTES) or "")
        if (
            sum(len(each) if isinstance(each, dict) else 1 for each in data.values())
            > MOST_SETTINGS
        ):
            raise ConfigError(f"it has more than {MOST_SETTINGS} settings")
    except ValueError as error:  # ConfigError too
        return Configuration(path, {}, {EVERYTHING: str(error)})
    values, ignored = {}, {}
    aliases = user.aliases
    for name, value in sorted(flat(data).items(), key=lambda each: not each[0].startswith(ALIAS)):
        try:
            taken = checked(name, value)
        except ConfigError as error:
            ignored[name] = str(error)
            continue
        if why := _refusal(name, taken, user, aliases):
            ignored[name] = why
            continue
        values[name] = taken
        if name.startswith(ALIAS):
            aliases[name.removeprefix(ALIAS)] = taken
    return Configuration(path, values, ignored)


def _project_file(folder: Path) -> Path | None:
    """Return the file in the folder or, inside a repository, in a parent up to its root."""
    folder = folder.absolute()
    above = [folder, *folder.parents][:MOST_PARENTS]
    try:
        root = next((each for each in above if (each / ".git").exists()), folder)
        files = [each / PROJECT_FILE for each in above[: above.index(root) + 1]]
        return next((each for each in files if each.is_file()), None)
    except OSError:
        return None


def _refusal(name: str, value: Any, user: Configuration, aliases: dict[str, str]) -> str | None:
    """Return why a project may not set this value."""
    if not setting(name).for_projects:
        return f"{MAY_NOT} set this"
    if name.startswith(ALIAS) and name in user.values:
        return "your own alias of this name takes precedence"
    if isinstance(value, str):
        if is_service(aliases.get(value, value)):
            return None
        return "a project may name only models of known providers, not programs, files or plugins"
    limit = name.rpartition(".")[2]
    usual = user.values.get(name, getattr(Limits(), limit))
    return None if usual is None or value <= usual else f"{MAY_NOT} raise it above {usual}"
