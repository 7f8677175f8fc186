"""Find programs and the home folder, and never look in the working folder."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["base_folder", "home_folder", "on_path"]


def on_path(program: str) -> str | None:
    """Return the path of a program on PATH, or None.

    Unlike `shutil.which`, never look in the working folder, which may be a stranger's: Windows does
    so first, and so does an empty or relative entry of PATH.
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
    """Return the suffixes that the file name of a program may have."""
    if sys.platform != "win32":
        return [""]
    known = [each for each in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if each]
    has_one = program.lower().endswith(tuple(each.lower() for each in known))
    return ["", *known] if has_one else known


def home_folder() -> Path:
    """Return this user's home folder: an absolute path, whatever HOME says."""
    home = Path.home()
    if home.is_absolute():
        return home
    if sys.platform == "win32":
        raise RuntimeError(f"the home folder {str(home)!r} is not an absolute path")
    import pwd  # Imported here: such a HOME is rare.

    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def base_folder(variables: Mapping[str, str], name: str, *below_home: str) -> Path:
    """Return an XDG folder; as the specification demands, relative paths are ignored."""
    named = Path(variables.get(name, ""))
    return named if named.is_absolute() else home_folder().joinpath(*below_home)
