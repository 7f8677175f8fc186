"""Finds the files of the installed packages that sandboxed code may import.

`resolve(["numpy", "pandas"])` finds them in the zygote's interpreter, follows their requirements,
and returns what must be readable. It only reads installed metadata; nothing is imported, and
nothing else in site-packages becomes readable.
"""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rlm import worker
from rlm._util import distribution
from rlm.errors import ConfigError

__all__ = ["Packages", "resolve"]

_OURS = {"rlm", distribution.NAME}
_REFUSED = "{} is the program that runs the sandbox and can't be inside it; leave it out"
_HOST_PROGRAM = Path(worker.__file__).resolve().parent.parent
_LIGHT_BYTES = 2 << 20
_PROBE_SECONDS = 60
_SITE_FOLDERS = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Packages:
    """What a sandbox needs for the allowed packages; all paths are absolute.

    `readable`: files, and folders with everything in them. `listable`: folders whose names may
    be listed, but not read (site-packages, and folders of namespace packages). `search_path`:
    entries for `sys.path`. `imports`: what to preload, the requested ones first. `roots`: import
    names and their paths, as `seal()` in the worker expects them.
    """

    readable: tuple[str, ...] = ()
    listable: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()


def resolve(names: Sequence[str], *, python: str | None = None) -> Packages:
    """Find distributions, or import names, and all that they require in `python` (default: ours).

    Standard library names are fine and need nothing. A ConfigError says what to do about a package
    that is not installed, is installed in editable mode, or is part of this program.
    """
    if not names:
        return Packages()
    about = _ask(python) if python and python != sys.executable else _describe_interpreter()
    installed = _Installed(about)
    asked: list[_Found] = []
    for name in dict.fromkeys(names):
        if canonicalize_name(name) in _OURS:
            raise ConfigError(_REFUSED.format(name))
        if name.partition(".")[0] not in about["standard"]:
            asked += installed.find_asked(name)
    needed = installed.with_requirements(asked)
    return _combine(asked, needed)


# -- the interpreter ------------------------------------------------------------------------------


def _describe_interpreter() -> dict[str, Any]:
    """Return where this interpreter finds packages, and its values for markers (PEP 508).

    Its source also runs in other interpreters, from Python 3.9 on, so it does its own imports.
    """
    import os
    import platform
    import sys

    version = sys.implementation.version
    implementation = "{0.major}.{0.minor}.{0.micro}".format(version)  # noqa: UP032
    if version.releaselevel != "final":
        implementation += version.releaselevel[0] + str(version.serial)
    return {
        "path": [entry for entry in sys.path if entry and os.path.isdir(entry)],  # noqa: PTH112
        "standard": sorted(getattr(sys, "stdlib_module_names", ())),
        "markers": {
            "implementation_name": sys.implementation.name,
            "implementation_version": implementation,
            "os_name": os.name,
            "platform_machine": platform.machine(),
            "platform_python_implementation": platform.python_implementation(),
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": platform.python_version(),
            "python_version": ".".join(platform.python_version_tuple()[:2]),
            "sys_platform": sys.platform,
            "extra": "",
        },
    }


def _ask(python: str) -> dict[str, Any]:
    """Run another interpreter to describe itself."""
    code = f"from __future__ import annotations\n{inspect.getsource(_describe_interpreter)}\n"
    code += "import json\nprint(json.dumps(_describe_interpreter()))"
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the operator chose
            [python, "-E", "-c", code], capture_output=True, timeout=_PROBE_SECONDS, check=False
        )
        if done.returncode:
            raise ValueError(done.stderr.decode("utf-8", "replace").strip()[-200:])
        about: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise ConfigError(f"the packages of {python} can't be listed: {error}") from error
    about["standard"] = about["standard"] or sorted(sys.stdlib_module_names)
    return about


# -- distributions --------------------------------------------------------------------------------


class _Found:
    """One installed distribution: its folder, its files, and what can be imported from it."""

    def __init__(self, distribution: Distribution) -> None:
        self.name: str = distribution.metadata["Name"] or ""
        self.requires = distribution.requires or []
        self.site = Path(str(distribution.locate_file(""))).resolve()
        self._distribution = distribution
        self._files = self._inside()
        self.listable = {self.site}
        self.readable: list[Path] = []
        self.roots: dict[str, Path] = {}
        self._sort_out(self._files)

    def _inside(self) -> dict[str, Any]:
        """Return the files in site-packages as a tree: a folder is a dict, a file its size."""
        tree: dict[str, Any] = {}
        for file in self._distribution.files or self._guessed_files():
            if ".." in file.parts or Path(file).is_absolute():
                continue  # A command or a manual page, which no import needs.
            folder = tree
            for part in file.parts[:-1]:
                folder = folder.setdefault(part, {})
            folder[file.parts[-1]] = getattr(file, "size", None) or 0
        return tree

    def _guessed_files(self) -> list[Path]:
        """Guess from the declared names; some Linux distributions remove the list of files."""
        declared = (self._distribution.read_text("top_level.txt") or "").split()
        found: list[Path] = []
        for name in declared or [self.name.replace("-", "_")]:
            if (self.site / name / "__init__.py").is_file():
                found.append(Path(name, "__init__.py"))
            elif (self.site / f"{name}.py").is_file():
                found.append(Path(f"{name}.py"))
        return found

    def _sort_out(self, tree: dict[str, Any], *above: str) -> None:
        """Classify each file and folder; descend only into namespace packages."""
        for name, inside in tree.items():
            path = self.site.joinpath(*above, name)
            if isinstance(inside, dict):
                self._sort_out_folder(inside, path, (*above, name))
            elif module := _module_in(name):
                self._add_root((*above, module), path)
            elif above:
                self.readable.append(path)

    def _sort_out_folder(self, inside: dict[str, Any], path: Path, parts: tuple[str, ...]) -> None:
        if parts[-1] == "__pycache__":  # Bytecode of single modules; others use it too.
            self.readable += [path / file for file in inside]
        elif not all(map(str.isidentifier, parts)) or not _has_modules(inside):
            self.readable.append(path)  # Metadata, shared libraries, data.
        elif "__init__.py" in inside or any(_module_in(file) == "__init__" for file in inside):
            self._add_root(parts, path)
        else:
            self.listable.add(path)
            self._sort_out(inside, *parts)

    def _add_root(self, parts: tuple[str, ...], path: Path) -> None:
        self.roots[".".join(parts)] = path
        self.readable.append(path)

    def imports(self) -> list[str]:
        """Return the public names that can be imported, without tests."""
        return [
            name
            for name in self.roots
            if not any(
                part.startswith("_") or part in {"test", "tests"} for part in name.split(".")
            )
        ]

    def is_light(self) -> bool:
        """Return whether it is small enough to be preloaded if it is only a dependency."""
        return _bytes_in(self._files) <= _LIGHT_BYTES

    def complaint(self) -> str | None:
        """Return why it can't be used in a sandbox, or None."""
        if canonicalize_name(self.name) in _OURS or "rlm" in self.roots:
            return _REFUSED.format(self.name)
        if self._is_editable():
            return (
                f"{self.name} is installed in editable mode, so its files are your project's; "
                f"install a copy instead: pip install {self.name}, or pip install FOLDER without -e"
            )
        if not self.roots:
            return f"{self.name} has no module to import; leave it out, or reinstall it with pip"
        around = [path for path in self.readable if _holds_the_host(path.resolve())]
        if around:
            return f"{self.name} would make {around[0]} readable, and this program runs there"
        return None

    def _is_editable(self) -> bool:
        origin = json.loads(self._distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return True
        if any(name.startswith("__editable__") for name in self._files):
            return True
        points_away = any(name.endswith(".pth") for name in self._files) and not self.roots
        # Metadata beside a project's sources has no list of installed files.
        is_project = (
            self._distribution.read_text("RECORD") is None and self.site.name not in _SITE_FOLDERS
        )
        return points_away or is_project


class _Installed:
    """The distributions on an interpreter's path."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._path: list[str] = about["path"]
        self._markers: dict[str, str] = about["markers"]
        self._standard: frozenset[str] = frozenset(about["standard"])

    def find(self, name: str) -> _Found | None:
        """Find a distribution by name, in any spelling."""
        found = next(iter(Distribution.discover(name=name, path=self._path)), None)
        return _Found(found) if found else None

    def find_asked(self, name: str) -> list[_Found]:
        found = self.find(name)
        if found is not None:
            return [found]
        providers = self._providers(name)
        if not providers:
            raise ConfigError(
                f"the package {name!r} is not installed for the interpreter of the sandbox: "
                f"pip install {name} there, or leave it out"
            )
        exact = [each for each in providers if name in each.roots]
        if not exact and len(providers) > 1:
            several = ", ".join(sorted(each.name for each in providers))
            raise ConfigError(
                f"{name!r} belongs to several packages; name the ones you want: {several}"
            )
        return exact or providers

    def _providers(self, import_name: str) -> list[_Found]:
        """Return the distributions that contain a module of that name, or part of a namespace."""
        everything = map(_Found, Distribution.discover(path=self._path))
        return [
            found
            for found in everything
            if any(f"{root}.".startswith(f"{import_name}.") for root in found.roots)
        ]

    def with_requirements(self, asked: Iterable[_Found]) -> list[_Found]:
        """Return these and all that they require, each once; refuse what a sandbox may not have."""
        found: dict[str, _Found] = {}
        ahead = [(each, "") for each in asked]
        while ahead:
            each, needed_by = ahead.pop(0)
            key = canonicalize_name(each.name)
            if key in found:
                continue
            if complaint := each.complaint():
                raise ConfigError(complaint + (f" (needed by {needed_by})" if needed_by else ""))
            found[key] = each
            ahead += [(one, each.name) for one in self._required_by(each)]
        return list(found.values())

    def _required_by(self, found: _Found) -> Iterator[_Found]:
        for name in filter(None, (self._required_name(each, found) for each in found.requires)):
            dependency = self.find(name)
            if dependency is not None:
                yield dependency
            elif name not in self._standard:
                raise ConfigError(
                    f"{found.name} needs the package {name!r}, which is not installed for the "
                    f"interpreter of the sandbox: pip install {name} there"
                )

    def _required_name(self, requirement: str, found: _Found) -> str | None:
        """Return the distribution that a requirement names, or None if its marker is false here."""
        try:
            parsed = Requirement(requirement)
            holds = parsed.marker is None or parsed.marker.evaluate(self._markers)
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName) as error:
            raise ConfigError(
                f"the requirement {requirement!r} of {found.name} is unreadable "
                f"({str(error).partition(chr(10))[0]}); install another version of {found.name}"
            ) from error
        return parsed.name if holds else None


# -- helpers --------------------------------------------------------------------------------------


def _combine(asked: Sequence[_Found], needed: Sequence[_Found]) -> Packages:
    names = {each.name for each in asked}
    light = [each for each in needed if each.name not in names and each.is_light()]
    imports = [name for each in (*asked, *light) for name in each.imports()]
    readable: list[Path] = []
    for each in needed:
        for path in each.readable:
            # If a package is a symbolic link into a store, both ends are needed.
            readable += [path] if path.resolve() == path else [path, path.resolve()]
    return Packages(
        readable=_unique(path for path in readable if path.exists()),
        listable=_unique(path for each in needed for path in sorted(each.listable)),
        search_path=_unique(each.site for each in needed),
        imports=tuple(dict.fromkeys(imports)),
        roots=tuple(
            {name: str(path) for each in needed for name, path in each.roots.items()}.items()
        ),
    )


def _unique(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, paths)))


def _module_in(file: str) -> str | None:
    """Return the name of the module in a file, or None."""
    for suffix in (".py", *EXTENSION_SUFFIXES, ".so"):
        stem = file.removesuffix(suffix)
        # In an interpreter other than ours, extension modules have another tag in their names.
        if suffix == ".so":
            stem = re.sub(r"\.(cpython-[\w-]+|abi3)$", "", stem)
        if stem != file and stem.isidentifier():
            return stem
    return None


def _has_modules(tree: dict[str, Any]) -> bool:
    return any(
        _has_modules(inside) if isinstance(inside, dict) else _module_in(name)
        for name, inside in tree.items()
    )


def _bytes_in(tree: dict[str, Any]) -> int:
    return sum(_bytes_in(each) if isinstance(each, dict) else each for each in tree.values())


def _holds_the_host(path: Path) -> bool:
    """Return whether a folder contains this program or its data."""
    return any(place.is_relative_to(path) for place in (_HOST_PROGRAM, Path.cwd(), Path.home()))
