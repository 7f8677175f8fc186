"""Find programs and the home folder, and never take the working folder for one of them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["base_folder", "home_folder", "on_path"]


def on_path(program: str) -> str | None:
    """Return where PATH has a program.

    Unlike `shutil.which`, never one of the working folder, which may be a stranger's: Windows looks
    there first, and so does an empty or relative entry of PATH.
    """
    for folder in os.get_exec_path():
        if not Path(folder).is_absolute():
            continue
        for ending in _endings(program):
            path = Path(folder) / f"{program}{ending}"
            try:
                if path.is_file() and os.access(path, os.X_OK):
                    return str(path)
            except (OSError, ValueError):  # a name that no file can have
                continue
    return None


def _endings(program: str) -> list[str]:
    """Return what may follow the name of a program in its file name."""
    if sys.platform != "win32":
        return [""]
    known = [each for each in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if each]
    has_one = program.lower().endswith(tuple(each.lower() for each in known))
    return ["", *known] if has_one else known


def home_folder() -> Path:
    """Return the home of this user: an absolute path, whatever HOME holds."""
    home = Path.home()
    if home.is_absolute():
        return home
    if sys.platform == "win32":
        raise RuntimeError(f"the home folder {str(home)!r} is not an absolute path")
    import pwd  # Few programs have such a HOME.

    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def base_folder(variables: Mapping[str, str], name: str, *below_home: str) -> Path:
    """Return an XDG folder; the specification wants relative ones to be ignored."""
    named = Path(variables.get(name, ""))
    return named if named.is_absolute() else home_folder().joinpath(*below_home)
