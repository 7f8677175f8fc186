"""Where this user's runs are kept."""

from collections.abc import Mapping
from pathlib import Path

from rlm._util.finding import base_folder

__all__ = ["usual_state_folder"]


def usual_state_folder(variables: Mapping[str, str]) -> Path:
    """Return `RLM_STATE_DIR`, or else a folder below the XDG state folder."""
    if named := variables.get("RLM_STATE_DIR"):
        return Path(named).expanduser().absolute()
    return base_folder(variables, "XDG_STATE_HOME", ".local", "state") / "rlm"
