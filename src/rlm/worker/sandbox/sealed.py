"""Sealed mode: every import is served from memory, because no file can be opened.

Where neither a mount namespace nor Landlock can hide the file system, the worker's seccomp filter
forbids every open and stat. `seal()` prepares an interpreter for that. Call it in the zygote after
preloading, and before the filter is installed. Afterwards

- extension modules that were not loaded by then can't be loaded (the linker needs their files);
- pure Python modules of the standard library and of the given roots import as usual; tracebacks
  show the source lines of standard modules that were loaded before sealing, the frequent ones;
- `importlib.resources` finds the files beside packages of the given roots;
- `zoneinfo` finds the time zones of this machine, as if the package `tzdata` were installed.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder

from .preload import try_import

__all__ = ["MemoryFinder", "SealReport", "seal"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.abc import Loader
    from types import CodeType, ModuleType
else:
    Loader = object  # The original is slow to import, and we need nothing from it.

_SKIPPED_FOLDERS = {
    # Tests, graphical interfaces, installers, a megabyte of help; then folders without modules.
    *("test", "tests", "idle_test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"),
    *("pydoc_data", "site-packages", "dist-packages", "lib-dynload", "__pycache__"),
}
# Graphics; a library that takes over terminal and signals; dead ones that are slow to load.
_SKIPPED_EXTENSIONS = {"_tkinter", "readline", "nis", "ossaudiodev", "spwd"}
_SKIPPED_PREFIXES = ("_test", "_xx", "xx", "_ctypes_test")
_MAX_RESOURCE_BYTES = 1 << 20
_NOT_RESOURCES = (*EXTENSION_SUFFIXES, ".pyi", ".pyx", ".pxd", ".h", ".c", ".a", ".pyc")

_PYC_HEADER_BYTES = 16
_HASHED, _CHECKED = 0b01, 0b10  # Flags in the header of a .pyc file, see PEP 552.

_ZONES_PACKAGE = "tzdata"
_ZONES_FOLDER = "<tzdata>"
_NOT_ZONES = {"posix", "right", "localtime", "posixrules"}


class SealReport:
    """What `seal()` did.

    `modules`: names that can be imported from memory. `extensions`: extension modules it loaded.
    `unavailable`: extension modules that can't be imported from now on, and why. `time_zones`: how
    many were taken from this machine. `bytecode_bytes`, `source_bytes`, `resource_bytes`: what is
    kept in memory.
    """

    def __init__(self, finder: MemoryFinder, extensions: int, unavailable: dict[str, str]) -> None:
        self.modules = len(finder.modules)
        self.extensions = extensions
        self.unavailable = unavailable
        self.time_zones = finder.time_zones
        self.bytecode_bytes = sum(len(each.bytecode or b"") for each in finder.modules.values())
        self.source_bytes = sum(len(each.source or b"") for each in finder.modules.values())
        self.resource_bytes = sum(map(len, finder.resources.values()))


def seal(extra_roots: Iterable[tuple[str, str]] = ()) -> SealReport:
    """Load all extension modules, copy all pure modules, and cut this interpreter off from disk.

    `extra_roots` are packages to keep besides the standard library, each as its import name and
    the path of its folder or file: ("numpy", ".../site-packages/numpy"). The program that runs
    here must be one of them if it imports anything later. Packages with extension modules must be
    reachable through `sys.path`, which is emptied here.
    """
    roots = list(extra_roots)
    extensions = [*_standard_extensions(), *_extensions_below(roots)]
    unavailable = _import_all(extensions)
    finder = MemoryFinder()
    finder.add_folder("", os.path.dirname(os.__file__), standard=True)
    for name, path in roots:
        finder.add_root(name, path)
    finder.add_missing_parents()
    finder.add_time_zones()
    finder.adopt(list(sys.modules.values()))
    _install(finder)
    return SealReport(finder, len(extensions) - len(unavailable), unavailable)


def _install(finder: MemoryFinder) -> None:
    """Insert the finder before the one for folders, which stays for code that uses it."""
    position = (
        sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    )
    sys.meta_path.insert(position, finder)
    sys.path.clear()
    sys.path_importer_cache.clear()


# -- extension modules ----------------------------------------------------------------------------


def _import_all(names: Iterable[str]) -> dict[str, str]:
    """Import extension modules; return those that failed, with their reasons."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some are deprecated.
        reasons = {name: try_import(name) for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _standard_extensions() -> Iterator[str]:
    """Yield the modules in lib-dynload; built-in ones need no file."""
    folders = [entry for entry in sys.path if os.path.basename(entry) == "lib-dynload"]
    for folder in folders or [os.path.join(os.path.dirname(os.__file__), "lib-dynload")]:
        for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            name = _extension_name(file)
            if name and name not in _SKIPPED_EXTENSIONS and not name.startswith(_SKIPPED_PREFIXES):
                yield name


def _extensions_below(roots: Iterable[tuple[str, str]]) -> Iterator[str]:
    for root, path in roots:
        if not os.path.isdir(path):
            parent, name = root.rpartition(".")[0], _extension_name(os.path.basename(path))
            if name:
                yield _join(parent, name)
        else:
            yield from _extensions_in(root, path)


def _extensions_in(package: str, folder: str) -> Iterator[str]:
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file)
        name = _extension_name(file)
        if name:
            yield f"{package}.{name}"
        elif _is_package_folder(file) and os.path.isdir(path):
            yield from _extensions_in(f"{package}.{file}", path)


def _extension_name(file: str) -> str | None:
    """Return the module in a shared library, or None if it contains none."""
    suffix = next((each for each in EXTENSION_SUFFIXES if file.endswith(each)), None)
    name = file[: -len(suffix)] if suffix else ""
    return name if name.isidentifier() else None


def _is_package_folder(name: str) -> bool:
    return name.isidentifier() and name not in _SKIPPED_FOLDERS


def _join(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


# -- pure Python modules --------------------------------------------------------------------------


class _Kept:
    """One module in memory: bytecode, or source where there is no valid bytecode, or both."""

    __slots__ = ("bytecode", "is_package", "path", "source")

    def __init__(
        self, path: str, is_package: bool, bytecode: bytes | None, source: bytes | None
    ) -> None:
        self.path = path
        self.is_package = is_package
        self.bytecode = bytecode
        self.source = source

    def code(self) -> CodeType:
        if self.bytecode is not None:
            code: CodeType = marshal.loads(memoryview(self.bytecode)[_PYC_HEADER_BYTES:])  # noqa: S302
            return code
        return compile(self.source or b"", self.path, "exec", dont_inherit=True)


class MemoryFinder(Loader):
    """A finder and loader, for `sys.meta_path`, of modules in memory."""

    def __init__(self) -> None:
        self.modules: dict[str, _Kept] = {}
        self.resources: dict[str, bytes] = {}
        self.time_zones = 0

    # -- filling it, while there are files

    def add_root(self, name: str, path: str) -> None:
        """Store what can be imported from a package folder or a module file."""
        if os.path.isdir(path):
            self.add_folder(name, path)
        elif path.endswith(".py"):
            self._add_file(name, path, *_bytecode_place(os.path.dirname(path)))

    def add_folder(self, package: str, folder: str, standard: bool = False) -> None:
        """Store the modules below a folder; without a package name, as top-level modules.

        Packages that are not `standard` keep their other files too, but no source if there is
        bytecode: the sources of a large package would take tens of megabytes.
        """
        place, ending = _bytecode_place(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, _, suffix = entry.name.rpartition(".")
                if suffix == "py" and "." not in stem:
                    name = package if stem == "__init__" else _join(package, stem)
                    self._add_file(name, entry.path, place, ending, standard)
                elif entry.is_dir():
                    if _is_package_folder(entry.name):
                        self.add_folder(_join(package, entry.name), entry.path, standard)
                elif not standard and not entry.name.endswith(_NOT_RESOURCES):
                    self._add_resource(entry)

    def _add_file(
        self, name: str, path: str, place: str, ending: str, standard: bool = False
    ) -> None:
        file = os.path.basename(path)
        try:
            bytecode = _valid_bytecode(os.path.join(place, file[: -len(".py")] + ending), path)
            with_source = bytecode is None or (standard and name in sys.modules)
            source = _read(path) if with_source else None
        except OSError:
            return  # A broken link, or unreadable: Python could not import it either.
        self.modules[name] = _Kept(path, file == "__init__.py", bytecode, source)

    def add_missing_parents(self) -> None:
        """Add packages for folders of modules without an __init__.py (namespaces)."""
        for name, kept in list(self.modules.items()):
            folder = os.path.dirname(kept.path)
            if kept.is_package:
                folder = os.path.dirname(folder)
            while "." in name:
                name = name.rpartition(".")[0]
                if name not in self.modules:
                    self._add_empty_package(name, folder)
                folder = os.path.dirname(folder)

    def _add_empty_package(self, name: str, folder: str) -> None:
        self.modules[name] = _Kept(os.path.join(folder, "__init__.py"), True, None, b"")

    def _add_resource(self, entry: os.DirEntry[str]) -> None:
        if entry.is_file() and entry.stat().st_size <= _MAX_RESOURCE_BYTES:
            self.resources[entry.path] = _read(entry.path)

    def add_time_zones(self) -> None:
        """Store this machine's time zones as the package `tzdata`, unless that was added.

        Every version of `zoneinfo` looks into that package when it finds no file.
        """
        import zoneinfo

        if _ZONES_PACKAGE in self.modules:
            return
        folder = next(filter(os.path.isdir, zoneinfo.TZPATH), None)
        self._add_empty_package(_ZONES_PACKAGE, _ZONES_FOLDER)
        zones = list(self._add_zones(folder, "")) if folder else []
        self.time_zones = len(zones)
        self.resources[f"{_ZONES_FOLDER}/zones"] = "\n".join(sorted(zones)).encode()

    def _add_zones(self, folder: str, below: str) -> Iterator[str]:
        inside = f"zoneinfo/{below}".rstrip("/")
        package = f"{_ZONES_PACKAGE}/{inside}".replace("/", ".")
        self._add_empty_package(package, f"{_ZONES_FOLDER}/{inside}")
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _NOT_ZONES:
                    continue
                if entry.is_dir():
                    yield from self._add_zones(entry.path, f"{below}{entry.name}/")
                    continue
                data = _read(entry.path)
                if data.startswith(b"TZif"):
                    self.resources[f"{_ZONES_FOLDER}/{inside}/{entry.name}"] = data
                    yield below + entry.name

    def adopt(self, modules: Iterable[ModuleType]) -> None:
        """Become the loader of modules that were loaded from files, which can't be read
        again."""
        for module in modules:
            kept = self.modules.get(getattr(module, "__name__", ""))
            spec = getattr(module, "__spec__", None)
            if kept and spec and getattr(module, "__file__", None) == kept.path:
                module.__loader__ = spec.loader = self

    # -- serving imports

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        kept = self.modules.get(name)
        if kept is None:
            return None
        spec = ModuleSpec(name, self, origin=kept.path, is_package=kept.is_package)
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(kept.path))
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, for an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        return self._kept(name).code()

    def get_source(self, name: str) -> str | None:
        """Return the source, if stored, for tracebacks, `inspect` and `linecache`."""
        source = self._kept(name).source
        return None if source is None else importlib.util.decode_source(source)

    def get_filename(self, name: str) -> str:
        return self._kept(name).path

    def is_package(self, name: str) -> bool:
        return self._kept(name).is_package

    def get_data(self, path: str) -> bytes:
        return _Resource(self.resources, path).read_bytes()

    def get_resource_reader(self, name: str) -> _Resource | None:
        kept = self._kept(name)
        folder = os.path.dirname(kept.path)
        return _Resource(self.resources, folder) if kept.is_package else None

    def _kept(self, name: str) -> _Kept:
        try:
            return self.modules[name]
        except KeyError:
            raise ImportError(f"{name} is not kept in memory", name=name) from None


class _Resource:
    """A file or folder beside a package, in both forms that `importlib.resources` accepts.

    Since Python 3.10 it uses `files()` like a path; before, and for old code, a reader of names in
    one folder. The base classes of both are slow to import and differ between Python versions.
    """

    def __init__(self, resources: dict[str, bytes], path: str) -> None:
        self._resources = resources
        self._path = path
        self.name = os.path.basename(path)

    def files(self) -> _Resource:
        return self

    def joinpath(self, *names: str) -> _Resource:
        return _Resource(self._resources, os.path.join(self._path, *names))

    __truediv__ = joinpath

    def iterdir(self) -> Iterator[_Resource]:
        return map(self.joinpath, self.contents())

    def is_file(self) -> bool:
        return self._path in self._resources

    def is_dir(self) -> bool:
        return any(path.startswith(self._path + os.sep) for path in self._resources)

    def read_bytes(self) -> bytes:
        try:
            return self._resources[self._path]
        except KeyError:
            raise FileNotFoundError(f"{self._path} is not kept in memory") from None

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(
        self, mode: str = "r", encoding: str | None = None, errors: str | None = None
    ) -> io.BytesIO | io.TextIOWrapper:
        stream = io.BytesIO(self.read_bytes())
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", errors)

    # -- the older reader

    def open_resource(self, resource: str) -> io.BytesIO:
        return io.BytesIO(self.joinpath(resource).read_bytes())

    def resource_path(self, resource: str) -> str:
        raise FileNotFoundError(f"{resource} is in memory, not in a file")

    def is_resource(self, name: str) -> bool:
        return self.joinpath(name).is_file()

    def contents(self) -> Iterator[str]:
        """Yield the names in this folder, including those of folders."""
        start = self._path + os.sep
        below = (path[len(start) :] for path in self._resources if path.startswith(start))
        return iter({path.partition(os.sep)[0]: None for path in below})


# -- files ----------------------------------------------------------------------------------------


def _read(path: str) -> bytes:
    """Read a whole file, three times as fast as `open(path).read()`; there are thousands."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _bytecode_place(folder: str) -> tuple[str, str]:
    """Return the folder and the suffix of the bytecode files of a folder's modules."""
    place, file = os.path.split(importlib.util.cache_from_source(os.path.join(folder, "x.py")))
    return place, file[len("x") :]


def _valid_bytecode(path: str, source_path: str) -> bytes | None:
    """Return a .pyc file, with header, if Python would use it for this source."""
    try:
        data = _read(path)
    except OSError:
        return None
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) <= _PYC_HEADER_BYTES:
        return None
    flags = int.from_bytes(data[4:8], "little")
    if flags & _HASHED:
        fresh = not flags & _CHECKED or data[8:16] == importlib.util.source_hash(_read(source_path))
        return data if fresh else None
    stat = os.stat(source_path)
    written = (int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF)
    recorded = (int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little"))
    return data if recorded == written else None
