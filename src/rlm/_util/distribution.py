"""The distribution that this package was installed from: its name, its version, its extras.

Other distributions (`rlms`, `rlm-engine`) also install a package called `rlm`. If both were
installed, one has overwritten files of the other. `importlib.metadata` is imported only when
needed: it takes longer to load than the rest of the engine.
"""

import functools

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
    """Return the command that installs one of our extras."""
    return f"pip install '{own_name()}[{extra}]'"


def strangers() -> list[str]:
    """Return the names of other distributions that have written into the package `rlm`."""
    return [name for name in _offering_rlm() if name != own_name()]


def _offering_rlm() -> list[str]:
    from importlib import metadata

    return sorted(set(metadata.packages_distributions().get("rlm", ())))
