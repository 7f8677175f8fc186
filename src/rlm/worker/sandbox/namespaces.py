"""Namespaces: a small file tree instead of the host's, no network, separate process ids.

The new root is a tmpfs with a few read-only bind mounts. They are made from open folders, through
/proc/self/fd, so an interpreter in a folder of mode 700 stays readable after the uid changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import struct

from . import kernel
from .interpreter import inside

__all__ = [
    "DEVICES",
    "NOBODY",
    "ROOT",
    "SCRATCH",
    "USER",
    "enter",
    "enter_session",
    "fork",
    "fork_into",
    "fork_into_pid_namespace",
    "move",
    "pivot_root",
    "scratch_for_a_while",
    "tid_address",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

ROOT, USER = "root", "user"
"""The two ways to enter: as real root, or through a user namespace."""

SCRATCH = "/sandbox"
HOST_NAME = b"sandbox"
NOBODY = 65534

_NEW_MOUNT = 0x00020000
_NEW_CGROUP = 0x02000000
_NEW_HOST_NAME = 0x04000000
_NEW_IPC = 0x08000000
_NEW_USER = 0x10000000
_NEW_PID = 0x20000000
_NEW_NETWORK = 0x40000000

_WANTED = (
    _NEW_MOUNT | _NEW_NETWORK | _NEW_IPC | _NEW_HOST_NAME | _NEW_CGROUP,
    _NEW_MOUNT | _NEW_NETWORK | _NEW_IPC | _NEW_HOST_NAME,
    _NEW_MOUNT,
)
"""Best first. The mount namespace isolates files; seccomp also refuses sockets and IPC."""

_READ_ONLY = 1
_NO_SET_UID = 2
_NO_DEVICES = 4
_NO_EXECUTION = 8
_REMOUNT = 32
_BIND = 4096
_RECURSIVE = 16384
_PRIVATE = 1 << 18
_DETACH = 2

_MOUNT_OPTIONS = {
    "ro": _READ_ONLY,
    "nosuid": _NO_SET_UID,
    "nodev": _NO_DEVICES,
    "noexec": _NO_EXECUTION,
}
"""Without the flags for access times, which a remount keeps if they are not named."""

_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_MOUNT_POINTS = ("/tmp", "/var/tmp", "/run", "/mnt", "/var", "/usr")  # noqa: S108 - not written to
_MAX_SCRATCH_FILES = 8192
_MAX_LINKS = 40

_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_CLONE_INTO_CGROUP = 0x200000000
_PR_GET_TID_ADDRESS = 40


# -- entering --------------------------------------------------------------------------------------


def move(
    kind: str,
    readable: Iterable[str],
    hidden: Iterable[str],
    listable: Iterable[str],
    keep_cgroups: bool = False,
) -> None:
    """Leave the host's namespaces for a file tree that contains only these paths."""
    enter(kind, keep_cgroups)
    pivot_root(readable, hidden, listable)


def enter(kind: str, keep_cgroups: bool = False) -> None:
    """Leave the host's namespaces; call `pivot_root` next.

    `keep_cgroups`: inside a cgroup namespace, a process can't join a group outside of it.
    """
    uid, gid = os.getuid(), os.getgid()
    _unshare_best(_NEW_USER if kind == USER else 0, _NEW_CGROUP if keep_cgroups else 0)
    if kind == USER:
        process_folder = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        try:
            _map_identity(process_folder, uid, gid)
        finally:
            os.close(process_folder)


def _unshare_best(base: int, without: int) -> None:
    """Unshare as many kinds of namespaces as old kernels, gVisor or a limit of 0 allow."""
    for flags in _WANTED[:-1]:
        try:
            kernel.call("unshare", base | flags & ~without)
        except OSError:
            continue
        # The new namespace begins with the names of the host.
        for name in ("sethostname", "setdomainname"):
            kernel.call(name, HOST_NAME, len(HOST_NAME))
        return
    kernel.call("unshare", base | _WANTED[-1])


def _map_identity(process_folder: int, uid: int, gid: int) -> None:
    """Enter a new user namespace as nobody; outside, the uid is the same."""
    with contextlib.suppress(OSError):
        # Kernels without this file do not need it; others would refuse the next line.
        _write(process_folder, "self/setgroups", "deny")
    _write(process_folder, "self/gid_map", f"{NOBODY} {gid} 1")
    _write(process_folder, "self/uid_map", f"{NOBODY} {uid} 1")


def _write(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def enter_session(
    scratch_bytes: int, owner: int | None = None, process_folder: int | None = None
) -> None:
    """Enter a mount namespace with a size-limited scratch folder, and change to that folder.

    With `process_folder`, /proc as it was before `pivot_root`, also enter a user namespace, so that
    processes are counted for this session alone. `owner` is the uid of the folder.
    """
    if process_folder is None:
        kernel.call("unshare", _NEW_MOUNT)
    else:
        uid, gid = os.getuid(), os.getgid()
        kernel.call("unshare", _NEW_USER | _NEW_MOUNT)
        _map_identity(process_folder, uid, gid)
    _mount_scratch(scratch_bytes, owner)
    os.chdir(SCRATCH)


@contextlib.contextmanager
def scratch_for_a_while(scratch_bytes: int) -> Generator[None, None, None]:
    """Give the zygote a scratch folder: some packages write files when imported."""
    _mount_scratch(scratch_bytes)
    try:
        yield
    finally:
        kernel.call("umount2", os.fsencode(SCRATCH), _DETACH)


def _mount_scratch(scratch_bytes: int, owner: int | None = None) -> None:
    options = f"size={scratch_bytes},nr_inodes={_MAX_SCRATCH_FILES},mode=700"
    if owner is not None:
        options += f",uid={owner},gid={owner}"
    _mount("tmpfs", SCRATCH, "tmpfs", _NO_SET_UID | _NO_DEVICES | _NO_EXECUTION, options)


# -- a root of our own -----------------------------------------------------------------------------


def pivot_root(
    readable: Iterable[str], hidden: Iterable[str] = (), listable: Iterable[str] = ()
) -> None:
    """Replace the file tree with one of `readable`, without the folders in `hidden`.

    The host's tree, including /proc, is then gone for this process and its children.
    """
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    tree = _Tree(next(each for each in _MOUNT_POINTS if os.path.isdir(each)))
    for path in (*readable, *DEVICES):
        tree.add(path)
    for path in (SCRATCH, *listable):
        tree.add_empty_folder(path)
    umask = os.umask(0o022)
    try:
        tree.build(set(hidden))
    finally:
        os.umask(umask)
        tree.close()
    # Both names may be the same: the old root then covers the new one until it is detached.
    os.chdir(tree.top)
    kernel.call("pivot_root", b".", b".")
    kernel.call("umount2", b".", _DETACH)
    os.chdir("/")


class _Tree:
    """The content of the new root; sources are opened before a mount can cover them."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._sources: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._empty_folders: list[str] = []
        self._shown: dict[str, bool] = {}

    def add(self, path: str) -> None:
        """Add a file or folder, and the symbolic links in its path."""
        path = self._follow(path)
        if path not in self._sources and os.path.exists(path):
            self._sources[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def add_empty_folder(self, path: str) -> None:
        """Add an empty folder, below which other paths can be added."""
        self._empty_folders.append(self._follow(path))

    def _follow(self, path: str) -> str:
        """Resolve the symbolic links in a path, and keep them for the new root."""
        for _ in range(_MAX_LINKS):
            link = _first_link(path)
            if link is None:
                break
            self._links[link] = target = os.readlink(link)
            path = os.path.normpath(os.path.join(os.path.dirname(link), target) + path[len(link) :])
        return path

    def build(self, hidden: set[str]) -> None:
        """Mount everything below `top`."""
        _mount("tmpfs", self.top, "tmpfs", _NO_SET_UID | _NO_DEVICES, "size=1m,mode=755")
        devices = {path for path in DEVICES if path in self._sources}
        for path in sorted({*self._sources, *hidden}):
            if path in hidden:
                self._hide(path)
            elif path not in devices:
                self._show(path)
        for path in self._empty_folders:
            if not self._is_shown(path):
                os.makedirs(self.top + path, exist_ok=True)
        for path in devices:
            self._make_place(path)
        # Links come last: a link with an absolute target would lead out of the new tree.
        for link, target in (*self._links.items(), ("/tmp", SCRATCH)):  # noqa: S108
            self._link(link, target)
        _set_read_only(self.top, _NO_DEVICES)
        for path in devices:
            self._bind(path)
            _set_read_only(self.top + path, _NO_EXECUTION)

    def close(self) -> None:
        """Close the host's folders: an open one is a way back to all files."""
        for source in self._sources.values():
            os.close(source)
        self._sources.clear()

    def _is_shown(self, path: str) -> bool:
        """Return whether the nearest known folder around a path is shown, not hidden."""
        around = [each for each in self._shown if inside(path, each)]
        return bool(around) and self._shown[max(around, key=len)]

    def _show(self, path: str) -> None:
        if not self._is_shown(path):
            self._make_place(path)
            self._bind(path)
            self._shown[path] = True

    def _hide(self, path: str) -> None:
        if self._is_shown(path):
            _mount(
                "tmpfs", self.top + path, "tmpfs", _NO_SET_UID | _NO_DEVICES, "size=64k,mode=755"
            )
            self._shown[path] = False

    def _link(self, link: str, target: str) -> None:
        if not self._is_shown(link) and not os.path.lexists(self.top + link):
            os.makedirs(os.path.dirname(self.top + link), exist_ok=True)
            os.symlink(target, self.top + link)

    def _make_place(self, path: str) -> None:
        """Create a mount point of the right kind."""
        place = self.top + path
        if stat.S_ISDIR(os.fstat(self._sources[path]).st_mode):
            os.makedirs(place, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))

    def _bind(self, path: str) -> None:
        source = f"/proc/self/fd/{self._sources[path]}"
        _mount(source, self.top + path, None, _BIND | _RECURSIVE)


def _first_link(path: str) -> str | None:
    """Return the first symbolic link in a path."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        start = "/" + "/".join(parts[:count])
        if os.path.islink(start):
            return start
    return None


def _set_read_only(top: str, also: int) -> None:
    """Make a mount and everything below it read-only; earlier restrictions remain."""
    flags = _READ_ONLY | _NO_SET_UID | also
    # struct mount_attr: to set, to clear, propagation, user namespace. These four flags have the
    # same values there as in mount(2).
    change = struct.pack("<QQQQ", flags, 0, 0, 0)
    try:
        kernel.call(
            "mount_setattr", _AT_FDCWD, os.fsencode(top), _AT_RECURSIVE, change, len(change)
        )
    except OSError:
        _set_read_only_one_by_one(top, flags)  # Linux before 5.12


def _set_read_only_one_by_one(top: str, flags: int) -> None:
    """Remount with all flags: a remount replaces them, and a user namespace may not lose any."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = file.read().splitlines()
    for line in lines:
        fields = line.split()
        place = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
        if inside(place, top):
            had = sum(_MOUNT_OPTIONS.get(each, 0) for each in fields[5].decode().split(","))
            _mount(None, place, None, _REMOUNT | _BIND | had | flags)


def _mount(
    source: str | None, place: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    try:
        kernel.call("mount", _text(source), _text(place), _text(kind), flags, _text(options))
    except OSError as error:
        raise OSError(error.errno, f"mounting {place}: {error.strerror}") from None


def _text(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


# -- process ids -----------------------------------------------------------------------------------


def fork_into_pid_namespace() -> int:
    """Fork like os.fork(), but make the child process 1 of a new pid namespace, which ends with it.

    Going back after `unshare` needs privileges that a user namespace does not give.
    """
    return fork(_NEW_PID)


def fork(flags: int) -> int:
    """Fork like os.fork(), with flags of clone(2) that the C library's fork does not take.

    Only for a process with one thread: what Python does around forks (locks, lists of threads,
    registered functions) is skipped. Such a process does not need it, it would take as long as the
    fork itself, and the copy would not be exact: `random` would be seeded again.
    """
    tid = tid_address()
    flags |= signal.SIGCHLD
    if tid:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # The address for the thread id is the 4th argument on x86_64 and the 5th on aarch64; the
    # other one is for thread-local storage and ignored without its flag.
    return kernel.call("clone", flags, 0, 0, tid, tid)


def fork_into(cgroup: int) -> int:
    """Fork like `fork`, but start the child in a control group (Linux 5.7).

    Moving a process into a group later makes all processors wait for each other.
    """
    tid = tid_address()
    flags = _CLONE_INTO_CGROUP | (_CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID if tid else 0)
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
    # set_tid, set_tid_size, cgroup.
    arguments = struct.pack("<11Q", flags, 0, tid, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    return kernel.call("clone3", arguments, len(arguments))


def tid_address() -> int:
    """Return the address of the C library's thread id, or 0; a fork must update it.

    The kernel knows the address because glibc asks to have it cleared at exit. musl has another
    word cleared, so the address is used only if it holds this thread's id.
    """
    address = ctypes.c_uint64(0)
    kernel.answer("prctl", _PR_GET_TID_ADDRESS, ctypes.addressof(address), 0, 0, 0)
    where = address.value  # Still 0 if the kernel was built without this option.
    found = where and ctypes.c_int.from_address(where).value == kernel.call("gettid")
    return where if found else 0
