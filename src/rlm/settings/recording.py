"""Whether runs of Python programs are journaled without `journal=`: only if the user asks for it.

There are three ways to ask: the setting `journal_python`, `RLM_JOURNAL=1`, and an open
`rlm view --record`, which holds a lock. A program's own `journal=` always takes precedence.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm._util.state_folder import usual_state_folder
from rlm.errors import ConfigError
from rlm.records.journal import Places
from rlm.settings.configuration import read_user

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.records.journal.database import Lock

__all__ = ["journal_for", "recording_lock", "records_python"]

SETTING = "journal_python"
ON = frozenset({"1", "yes", "on", "true"})
OFF = frozenset({"0", "no", "off", "false"})
_log = logging.getLogger("rlm")


def recording_lock(root: Path) -> "Lock":
    """Return the lock that `rlm view --record` holds while it is open."""
    from rlm.records.journal.database import Lock

    return Lock(root / "recording.lock")


def records_python(variables: Mapping[str, str]) -> bool:
    """Return whether the user wants the runs of Python programs to be journaled."""
    said = variables.get("RLM_JOURNAL", "").strip().lower()
    if said in ON | OFF:
        return said in ON
    try:
        if read_user(variables).values.get(SETTING) is True:
            return True
        return recording_lock(usual_state_folder(variables)).is_taken()
    except (ConfigError, RuntimeError):  # A broken settings file must not end a program.
        return False


def journal_for(given: Mapping[str, Any]) -> Any:
    """Return the `journal` of an `RLM` with these arguments.

    An `RLM` with its own `variables` is not the user's program, and is left alone. A folder that
    can't be written to is reported, and the program continues without a journal.
    """
    if given["journal"] is not None or given["variables"] is not None:
        return given["journal"]
    if not records_python(os.environ):
        return None
    try:
        places = Places.usual(os.environ)
        places.prepare()
        import tempfile

        tempfile.TemporaryFile(dir=places.runs).close()
    except (ConfigError, OSError, RuntimeError) as error:
        _log.warning("this run is not recorded: %s", error)
        return None
    return True
