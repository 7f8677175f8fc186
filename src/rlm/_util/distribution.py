"""The distribution that this package was installed from: its name, its version, its extras.

Other distributions (`rlms`, `rlm-engine`) also install a package called `rlm`. If both were
installed, one has overwritten files of the other. `importlib.metadata` is imported only when
needed: it takes longer to load than the rest of the engine.
"""

import functools
import importlib.util
import shlex
import sys
from pathlib import Path

__all__ = ["NAME", "install_command", "own_name", "own_version", "strangers"]

NAME = "recursivelm"
_OWN_FILE = "rlm/_util/distribution.py"


@functools.cache
def own_name() -> str:
    """Return the name of the installed distribution, which may be a fork."""
    from importlib import metadata

    for name in _offering_rlm():
        if any(path.as_posix() == _OWN_FILE for path in metadata.files(name) or ()):
            return name
    return NAME  # An editable installation lists no files.


@functools.cache
def own_version() -> str:
    """Return the installed version, or "unknown" in a source tree that is not installed."""
    from importlib import metadata

    try:
        return metadata.version(own_name())
    except metadata.PackageNotFoundError:
        return "unknown"


def install_command(extra: str) -> str:
    """Return the command that installs one of our extras where this program runs."""
    wanted, where = f"'{_source()}[{extra}]'", shlex.quote(sys.prefix)
    if importlib.util.find_spec("pip") and "pipx" not in Path(sys.prefix).parts:
        return f"pip install {wanted}"
    if _installer() == "uv":
        return f"uv pip install --python {where} {wanted}"
    return f"pip --python {where} install {wanted}"


def _source() -> str:
    """Return what to install: the distribution, or a checkout whose source is only on the path."""
    checkout = Path(__file__).parents[3]
    if own_version() == "unknown" and (checkout / "pyproject.toml").exists():
        return str(checkout)
    return own_name()


def _installer() -> str:
    from importlib import metadata

    try:
        return (metadata.distribution(own_name()).read_text("INSTALLER") or "").strip()
    except metadata.PackageNotFoundError:
        return ""


def strangers() -> list[str]:
    """Return the names of other distributions that have written into the package `rlm`."""
    return [name for name in _offering_rlm() if name != own_name()]


def _offering_rlm() -> list[str]:
    from importlib import metadata

    return sorted(set(metadata.packages_distributions().get("rlm", ())))
