"""Every setting by name, with its type, its meaning, and whether a project may set it."""

import re
import reprlib
from collections.abc import Callable
from typing import Any, get_args

from msgspec import Struct

from rlm._util.text import closest
from rlm.config import Strategy
from rlm.errors import ConfigError
from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS, environments, split_model

__all__ = ["ALIAS", "SETTINGS", "Setting", "checked", "flat", "is_service", "parse_text", "setting"]

ALIAS = "alias."
ALIAS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
LARGEST = 10**15
"""Far more than any limit needs; floats hold every whole number up to it."""

WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Setting(Struct, frozen=True):
    """One setting. `check` returns the value or raises ValueError; projects need `for_projects`.

    `option` is the command parameter whose default is this setting.
    """

    check: Callable[[Any], Any]
    meaning: str
    for_projects: bool = False
    option: str | None = None


def _model(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write provider/model")
    if not ALIAS_NAME.fullmatch(value):  # an alias, which may be set later
        split_model(value)
    return value


def _full_model(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("write provider/model")
    split_model(value)
    return value


def _environment(value: Any) -> str:
    known = environments()
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"environments: {', '.join(known)}")
    return value


def _strategy(value: Any) -> str:
    if value not in get_args(Strategy):
        raise ValueError(f"strategies: {', '.join(get_args(Strategy))}")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("write true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ValueError("write a whole number above 0")
    return value


def _amount(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= LARGEST:
        raise ValueError("write a number above 0")
    return float(value)


SETTINGS: dict[str, Setting] = {
    "model": Setting(_model, "the model, provider/model or an alias", for_projects=True),
    "sub_model": Setting(_model, "the model for calls from cells", for_projects=True),
    "environment": Setting(_environment, "where model-written code runs", option="environment"),
    "strategy": Setting(_strategy, "how queries are answered", option="strategy"),
    "journal": Setting(_flag, "whether rlm ask records its runs", option="journal"),
    "journal_python": Setting(_flag, "whether Python programs record their runs too"),
    "limits.max_cost_usd": Setting(_amount, "US dollars for a run", True, "budget_usd"),
    "limits.max_seconds": Setting(_amount, "seconds for a run", True, "timeout"),
    "limits.max_tokens": Setting(_count, "tokens for a run", True, "max_tokens"),
    "limits.max_steps": Setting(_count, "steps of a root run", True, "max_steps"),
    "limits.max_depth": Setting(_count, "levels of runs with a REPL", True, "max_depth"),
}
"""`alias.NAME` is a setting too, for every name."""

ALIAS_SETTING = Setting(_full_model, "a short name for a model", for_projects=True)


def checked(name: str, value: Any) -> Any:
    """Return a value of a setting; ConfigError if the setting is unknown or the value wrong."""
    try:
        return setting(name).check(value)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{name} can't be {_brief(value)}: {error}") from None


def _brief(value: Any) -> str:
    """Return a value as code, shortened: a file may hold numbers and tables of any size."""
    try:
        return _short.repr(value)
    except ValueError:  # Python refuses to print thousands of digits.
        return "that number"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2


def setting(name: str) -> Setting:
    """Return what is known about a setting; ConfigError with the nearest name if there is none."""
    if name.startswith(ALIAS):
        _check_alias(name.removeprefix(ALIAS))
        return ALIAS_SETTING
    if name not in SETTINGS:
        meant = closest(name, (*SETTINGS, *(each.rpartition(".")[2] for each in SETTINGS)))
        guess = next((each for each in SETTINGS if meant and each.endswith(meant)), None)
        hint = f" Did you mean {guess!r}?" if guess else ""
        raise ConfigError(
            f"there is no setting {_brief(name)}.{hint} "
            f"Settings: {', '.join(SETTINGS)}, {ALIAS}NAME"
        )
    return SETTINGS[name]


def _check_alias(name: str) -> None:
    if not ALIAS_NAME.fullmatch(name):
        raise ConfigError(f"{_brief(name)} can't be an alias: use only letters, digits, - and _")
    try:
        split_model(name)
    except ConfigError:
        return
    raise ConfigError(f"{name!r} can't be an alias: it is already the name of a model")


def parse_text(name: str, text: str) -> Any:
    """Return the value of a text from the command line."""
    kind = setting(name).check
    value: Any = text
    if kind is _flag:
        value = WORDS.get(text.strip().lower(), text)
    elif kind in {_count, _amount}:
        try:
            value = int(text) if kind is _count else float(text)
        except ValueError:
            value = text
    return checked(name, value)


def flat(data: dict[str, Any]) -> dict[str, Any]:
    """Return nested tables with dotted names: `{"limits": {"max_steps": 5}}` one level deep."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            found[name] = value
    return found


def is_service(model: str) -> bool:
    """Return whether a model belongs to a known provider, so that using it starts no program."""
    try:
        provider, name = split_model(model)
    except ConfigError:
        return False
    return model == OFFLINE_MODEL or (provider in PROVIDERS and bool(name))
