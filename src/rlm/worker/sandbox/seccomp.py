"""The system calls that user code may make, as a program that the kernel runs before each one.

All others are refused: known calls fail with EPERM (Python raises PermissionError), newer ones with
ENOSYS, so that the C library uses an older call.

Executable memory (PROT_EXEC in mmap and mprotect) stays allowed. ctypes callbacks need it through
libffi, extension modules need it through dlopen, and refusing it would protect nothing: ctypes can
make any system call with any arguments anyway, so the border is this list, not the instructions
between two calls. Native files can't be brought in: scratch is mounted noexec, memfd is refused.
"""

from __future__ import annotations

import ctypes
import errno
import signal
import struct
from functools import lru_cache

from . import kernel

__all__ = [
    "NEWEST_KNOWN",
    "bind_to_process",
    "build",
    "build_listener",
    "install",
    "install_listener",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Instruction = tuple[int, int, int, int]
    """Operation, instructions to skip if true, instructions to skip if false, operand."""

    Code = list[Instruction]
    """Instructions that always end with an answer, so that blocks can be concatenated."""

NEWEST_KNOWN = 469
"""The highest number in Linux 6.18, on both machines. x32 calls start far above it."""

_OWN_PROCESS = 0x5E5E5E5E
"""A placeholder for the process id until `bind_to_process`; far above any id."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# -- what is allowed ------------------------------------------------------------------------------

_ALWAYS = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range
dup dup2 dup3 pipe pipe2 eventfd eventfd2 fstat fstatfs fsync fdatasync ftruncate fallocate
fadvise64 sendfile copy_file_range getcwd umask
mmap mprotect munmap mremap madvise msync brk
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
recvfrom recvmsg shutdown getsockname getpeername
rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
restart_syscall pause alarm getitimer setitimer nanosleep clock_nanosleep clock_gettime clock_getres
gettimeofday time times getrusage sysinfo uname getrandom
futex set_robust_list set_tid_address rseq membarrier arch_prctl sched_yield
sched_getaffinity sched_getparam sched_getscheduler getpriority getcpu gettid getpid getppid
getpgid getpgrp getsid getuid geteuid getgid getegid getresuid getresgid getgroups
wait4 waitid exit exit_group
"""
"""No path, no other process, no check. ftruncate and fallocate need a writable file."""

_PATHS = """
stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat statfs getdents
getdents64 chdir fchdir
"""
"""Look up names. newfstatat and statx are here although libc also uses them for fstat: even with
the flag for that they follow a path that isn't empty, and a filter can't see the path."""

_CHANGES = """
mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat truncate
chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat
"""
"""Change the file system. Landlock does not control modes and times, so a session without a scratch
folder must not have these: its uid may be the one that owns the interpreter."""

_ATTRIBUTES = """
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr
"""
"""Answered with "not supported", which shutil.copy2 ignores; it would raise EPERM."""

# -- numbers of the kernel, the same on both machines ---------------------------------------------

_CLONE_THREAD = 0x00010000
_CLONE_FOR_THREADS_AND_FORKS = (
    0x00000100  # CLONE_VM
    | 0x00000200  # CLONE_FS
    | 0x00000400  # CLONE_FILES
    | 0x00000800  # CLONE_SIGHAND
    | 0x00004000  # CLONE_VFORK
    | _CLONE_THREAD
    | 0x00040000  # CLONE_SYSVSEM
    | 0x00080000  # CLONE_SETTLS
    | 0x00100000  # CLONE_PARENT_SETTID
    | 0x00200000  # CLONE_CHILD_CLEARTID
    | 0x00400000  # CLONE_DETACHED, without effect, set by musl
    | 0x01000000  # CLONE_CHILD_SETTID
    | 17  # SIGCHLD, the signal at exit
)
"""Not allowed: namespaces, CLONE_PTRACE, CLONE_PIDFD, CLONE_IO."""

_CLONE_PARENT = 0x00008000
"""If forks are allowed, a new process must become a child of the zygote, which counts them."""

_FROZEN_SIGNALS = (signal.SIGINT, signal.SIGXCPU, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1
_PRCTL = (
    15,  # PR_SET_NAME
    16,  # PR_GET_NAME
    0x53564D41,  # PR_SET_VMA: allocators name their memory
)
_IOCTL = (
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
    0x5401,  # TCGETS: isatty
    0x802C542A,  # TCGETS2: isatty of newer C libraries
    0x5413,  # TIOCGWINSZ: get_terminal_size
)
_FCNTL = (
    0,  # F_DUPFD
    1,  # F_GETFD
    2,  # F_SETFD
    3,  # F_GETFL
    4,  # F_SETFL
    5,  # F_GETLK
    36,  # F_OFD_GETLK
    1030,  # F_DUPFD_CLOEXEC
    1032,  # F_GETPIPE_SZ
    1034,  # F_GET_SEALS
)
"""Without F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: they send signals to others."""

_FCNTL_LOCKS = (
    6,  # F_SETLK
    7,  # F_SETLKW
    37,  # F_OFD_SETLK
    38,  # F_OFD_SETLKW
)
"""Answered with success, and nothing is locked. A lock belongs to the file, not to the mount: one
on a read-only file would keep the host and other sessions waiting. Nobody else uses the files that
a session writes to, so sqlite3 and dbm lose nothing."""

_AF_UNIX = 1
_SOL_SOCKET = 1
_SOCKET_OPTIONS = (
    2,  # SO_REUSEADDR
    9,  # SO_KEEPALIVE
    20,  # SO_RCVTIMEO
    21,  # SO_SNDTIMEO
)
"""Without SO_ATTACH_FILTER and the like, which pass programs to the kernel."""

_SOCKET_BUFFERS = (
    7,  # SO_SNDBUF
    8,  # SO_RCVBUF
)
"""May be read. Setting one succeeds and changes nothing: what waits in sockets is kernel memory,
which no limit of a process counts. With the default size, a session gets at most half as much
again, times its number of open files."""

_SOCKET_FACTS = (
    3,  # SO_TYPE
    4,  # SO_ERROR
    30,  # SO_ACCEPTCONN
    38,  # SO_PROTOCOL
    39,  # SO_DOMAIN
)
"""Without SO_PEERCRED, SO_PEERPIDFD, SO_PEERGROUPS and SO_PEERSEC: the peer is the host."""

_O_ACCMODE, _O_WRONLY, _O_RDWR, _O_TRUNC = 0o3, 0o1, 0o2, 0o1000

# -- the program ----------------------------------------------------------------------------------

_LOAD = 0x20  # the word at this offset of struct seccomp_data
_AND = 0x54
_SKIP = 0x05
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06

_OFFSET_OF_NUMBER = 0
_OFFSET_OF_ARCHITECTURE = 4
_OFFSET_OF_ARGUMENTS = 16

_ALLOW: Code = [(_RETURN, 0, 0, 0x7FFF0000)]
_ASK: Code = [(_RETURN, 0, 0, 0x7FC00000)]
_KILL: Code = [(_RETURN, 0, 0, 0x80000000)]


def _refuse(error: int) -> Code:
    return [(_RETURN, 0, 0, 0x00050000 | error)]


_DENY = _refuse(errno.EPERM)
_PRETEND = _refuse(0)
"""Return 0 from the call, as if it had been made."""


def build(
    machine: str,
    *,
    forks: bool = False,
    sealed: bool = False,
    scratch: bool = True,
) -> bytes:
    """Return the program for `machine`, to be bound and installed in any number of processes.

    `forks` allows new processes as children of the parent, `sealed` refuses all that opens or looks
    up a path, `scratch` allows changes to the file system. A process may only signal itself.
    """
    answers: dict[int, Code] = {}
    for names, code in (
        (_ALWAYS, _ALLOW),
        (_PATHS, _DENY if sealed else _ALLOW),
        (_CHANGES, _ALLOW if scratch and not sealed else _DENY),
        (_ATTRIBUTES, _refuse(errno.ENOTSUP)),
    ):
        answers.update(_numbered(machine, dict.fromkeys(names.split(), code)))
    answers.update(_numbered(machine, _checked(forks, sealed)))
    program = [
        (_LOAD, 0, 0, _OFFSET_OF_ARCHITECTURE),
        *_if(_EQUAL, _ARCHITECTURES[machine], _by_number(answers), _KILL),
    ]
    return _packed(program)


@lru_cache(maxsize=None)
def build_listener(machine: str, threads: bool) -> bytes:
    """Return a program that makes every fork wait for an answer from the holder of its listener.

    With `threads`, so does every new thread. It allows everything else; if a process has two
    programs, the stricter one counts.
    """
    clone = _ASK if threads else [_argument(0), *_if(_ANY_BIT, _CLONE_THREAD, _ALLOW, _ASK)]
    code = _ALLOW
    for number, ask in _numbered(machine, {"clone": clone, "fork": _ASK, "vfork": _ASK}).items():
        code = _if(_EQUAL, number, ask, code)
    code = [(_LOAD, 0, 0, _OFFSET_OF_NUMBER), *code]
    check = _if(_EQUAL, _ARCHITECTURES[machine], code, _KILL)
    return _packed([(_LOAD, 0, 0, _OFFSET_OF_ARCHITECTURE), *check])


def _packed(program: Code) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


class _Program(ctypes.Structure):
    """struct sock_fprog: the number of instructions, and where they are."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def bind_to_process(program: bytes, process: int) -> bytes:
    """Insert the id of the process that will run the program, which may only signal itself."""
    return program.replace(struct.pack("<I", _OWN_PROCESS), struct.pack("<I", process))


def install(program: bytes) -> None:
    """Install the filter in every thread of this process, for good; needs no_new_privs."""
    all_threads = 1
    thread = _install(program, all_threads)
    if thread:
        raise OSError(errno.EBUSY, f"thread {thread} has its own system call filter")


def install_listener(program: bytes) -> int:
    """Install a filter that asks, in this thread; return the descriptor for the answers."""
    new_listener = 1 << 3
    return _install(program, new_listener)


def _install(program: bytes, flags: int) -> int:
    set_mode_filter = 1
    header = _Program(len(program) // 8, program)
    return kernel.call("seccomp", set_mode_filter, flags, ctypes.addressof(header))


def _numbered(machine: str, codes: dict[str, Code]) -> dict[int, Code]:
    """Return the calls by number, without those that this machine lacks."""
    numbers = {name: kernel.number(name, machine) for name in codes}
    return {number: codes[name] for name, number in numbers.items() if number is not None}


def _checked(forks: bool, sealed: bool) -> dict[str, Code]:
    """Return the calls that are allowed only with certain arguments.

    The kernel takes ids, commands and flags of type int from the lower half of an argument and
    drops the upper half, so only the lower one is checked. For pointers and the flags of clone,
    both halves are.
    """
    signals = _only(0, [_OWN_PROCESS])
    return {
        "clone": _clone(forks),
        "clone3": _refuse(errno.ENOSYS),  # Its flags are in memory; libc falls back to clone.
        "fork": _DENY,  # Its child, and that of vfork, can't be a child of the zygote.
        "vfork": _DENY,
        "kill": signals,
        "tgkill": signals,
        "tkill": signals,  # musl's raise; the main thread has the id of its process.
        "rt_sigaction": _sigaction(),
        "prctl": _prctl(),
        "prlimit64": _only(0, [0]),
        "ioctl": _only(1, _IOCTL),
        "fcntl": _only(1, _FCNTL, otherwise=_only(1, _FCNTL_LOCKS, _PRETEND)),
        "flock": _PRETEND,
        "socketpair": _only(0, [_AF_UNIX]),
        "setsockopt": _only(1, [_SOL_SOCKET], _set_socket_option()),
        "getsockopt": _only(
            1, [_SOL_SOCKET], _only(2, (*_SOCKET_OPTIONS, *_SOCKET_BUFFERS, *_SOCKET_FACTS))
        ),
        # With an address, a datagram socket from socketpair reaches any socket of the host.
        "sendto": _null(4),
        "open": _DENY if sealed else _opening(1),
        "openat": _DENY if sealed else _opening(2),
    }


def _clone(forks: bool) -> Code:
    fork = _if(_ANY_BIT, _CLONE_PARENT, _ALLOW, _DENY) if forks else _DENY
    kind = _if(_ANY_BIT, _CLONE_THREAD, _ALLOW, fork)
    wanted = _CLONE_FOR_THREADS_AND_FORKS | (_CLONE_PARENT if forks else 0)
    unwanted = ~wanted & 0xFFFFFFFF
    lower_half = [_argument(0), *_if(_ANY_BIT, unwanted, _DENY, kind)]
    return [_argument(0, upper=True), *_if(_EQUAL, 0, lower_half, _DENY)]


def _prctl() -> Code:
    """Allow harmless options, and PR_SET_PDEATHSIG with SIGKILL."""
    dying_with_parent = _if(_EQUAL, _PR_SET_PDEATHSIG, _only(1, [signal.SIGKILL]), _DENY)
    code = dying_with_parent
    for option in _PRCTL:
        code = _if(_EQUAL, option, _ALLOW, code)
    return [_argument(0), *code]


def _sigaction() -> Code:
    """Allow reading the handlers that stop a cell (the new action is null), not replacing them."""
    code = _ALLOW
    for frozen in _FROZEN_SIGNALS:
        code = _if(_EQUAL, frozen, _null(1), code)
    return [_argument(0), *code]


def _opening(flags: int) -> Code:
    """Allow O_TRUNC only with writing: Landlock before ABI 3 would let it empty any file."""
    writing = _if(_EQUAL, _O_WRONLY, _ALLOW, _if(_EQUAL, _O_RDWR, _ALLOW, _DENY))
    truncating = [(_AND, 0, 0, _O_ACCMODE), *writing]
    return [_argument(flags), *_if(_ANY_BIT, _O_TRUNC, truncating, _ALLOW)]


def _set_socket_option() -> Code:
    return _only(2, _SOCKET_OPTIONS, otherwise=_only(2, _SOCKET_BUFFERS, _PRETEND))


def _only(
    position: int, values: Iterable[int], then: Code = _ALLOW, otherwise: Code = _DENY
) -> Code:
    code = otherwise
    for value in values:
        code = _if(_EQUAL, value, then, code)
    return [_argument(position), *code]


def _null(position: int) -> Code:
    upper_half = [_argument(position, upper=True), *_if(_EQUAL, 0, _ALLOW, _DENY)]
    return [_argument(position), *_if(_EQUAL, 0, upper_half, _DENY)]


def _argument(position: int, upper: bool = False) -> Instruction:
    """Load half of an argument; both machines are little-endian, so the lower half comes first."""
    return (_LOAD, 0, 0, _OFFSET_OF_ARGUMENTS + 8 * position + 4 * upper)


def _if(condition: int, operand: int, then: Code, otherwise: Code) -> Code:
    if len(then) < 256:
        return [(condition, 0, len(then), operand), *then, *otherwise]
    # A conditional jump skips at most 255 instructions, an unconditional one any number.
    return [(condition, 1, 0, operand), (_SKIP, 0, 0, len(then)), *then, *otherwise]


def _by_number(answers: dict[int, Code]) -> Code:
    """Find the answer by bisection: the kernel runs a new filter once per number."""
    ranges: list[tuple[int, Code]] = []
    for number in range(NEWEST_KNOWN + 1):
        code = answers.get(number, _DENY)
        if not ranges or ranges[-1][1] != code:
            ranges.append((number, code))
    ranges.append((NEWEST_KNOWN + 1, _refuse(errno.ENOSYS)))
    return [(_LOAD, 0, 0, _OFFSET_OF_NUMBER), *_search(ranges)]


def _search(ranges: list[tuple[int, Code]]) -> Code:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    upper, lower = _search(ranges[middle:]), _search(ranges[:middle])
    return _if(_AT_LEAST, ranges[middle][0], upper, lower)
