"""Where this user's runs are kept."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["usual_state_folder"]


def usual_state_folder(variables: Mapping[str, str]) -> Path:
    """Return `RLM_STATE_DIR`, else a folder below the XDG state folder."""
    if named := variables.get("RLM_STATE_DIR"):
        return Path(named).expanduser()
    state = variables.get("XDG_STATE_HOME", "")
    # The specification wants relative paths to be ignored.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "rlm"
