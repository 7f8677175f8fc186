"""System calls by name, through ctypes; not every C library wraps them."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from ctypes import c_long

from .orders import MACHINES

__all__ = ["MACHINE", "SYSCALLS", "answer", "call", "number", "prctl"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Argument = Union[int, bytes, None]

MACHINE = os.uname().machine if sys.maxsize > 1 << 32 else ""
"""Empty in a 32-bit process, which has other call numbers than its kernel."""

SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    # What user code may do, some of it only with certain arguments (see seccomp.py).
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "ioctl": (16, 29),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "msync": (26, 227),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "sendfile": (40, 71),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "shutdown": (48, 210),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "socketpair": (53, 199),
    "setsockopt": (54, 208),
    "getsockopt": (55, 209),
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "exit": (60, 93),
    "wait4": (61, 260),
    "kill": (62, 129),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "flock": (73, 32),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "getdents": (78, None),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "rename": (82, None),
    "mkdir": (83, None),
    "rmdir": (84, None),
    "link": (86, None),
    "unlink": (87, None),
    "symlink": (88, None),
    "readlink": (89, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "umask": (95, 166),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "getgroups": (115, 158),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "utime": (132, None),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "getpriority": (140, 141),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "prctl": (157, 167),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "tkill": (200, 130),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "epoll_create": (213, None),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "restart_syscall": (219, 128),
    "fadvise64": (221, 223),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "tgkill": (234, 131),
    "utimes": (235, None),
    "waitid": (247, 95),
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "futimesat": (261, None),
    "newfstatat": (262, 79),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "readlinkat": (267, 78),
    "fchmodat": (268, 53),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "utimensat": (280, 88),
    "epoll_pwait": (281, 22),
    "eventfd": (284, None),
    "fallocate": (285, 47),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "prlimit64": (302, 261),
    "getcpu": (309, 168),
    "renameat2": (316, 276),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "copy_file_range": (326, 285),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "statx": (332, 291),
    "rseq": (334, 293),
    "clone3": (435, 435),
    "close_range": (436, 436),
    "faccessat2": (439, 439),
    "epoll_pwait2": (441, 441),
    "fchmodat2": (452, 452),
    # What is needed to apply the layers.
    "capset": (126, 91),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "unshare": (272, 97),
    "seccomp": (317, 277),
    "pidfd_open": (434, 434),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
"""Name to number on x86_64 and on aarch64; None where a machine never had the call."""

_COLUMNS = {name: column for column, name in enumerate(MACHINES)}

# PyDLL keeps the GIL: nothing here waits, and a fork needs it.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = c_long


def number(name: str, machine: str = MACHINE) -> int | None:
    """Return the number of a call, or None if the machine lacks it or is unknown."""
    column = _COLUMNS.get(machine)
    return None if column is None else SYSCALLS[name][column]


def call(name: str, *arguments: Argument) -> int:
    """Make a system call. Bytes are passed by address; a failure raises OSError."""
    result = answer(name, *arguments)
    if result < 0:
        raise OSError(-result, f"{name}: {os.strerror(-result)}")
    return result


def answer(name: str, *arguments: Argument) -> int:
    """Make a system call; return the negative error number if it fails.

    For expected failures: exceptions are expensive in a process that was just forked.
    """
    this = number(name)
    if this is None:
        return -errno.ENOSYS
    result: int = _syscall(
        c_long(this),
        # A plain int would be passed as 32 bits, with garbage in the rest of the register.
        *[c_long(each) if isinstance(each, int) else each for each in arguments],
    )
    return result if result >= 0 else -ctypes.get_errno()


def prctl(option: int, *arguments: int) -> int:
    """Set or get a property of this process; missing arguments are zero."""
    return call("prctl", option, *arguments, *([0] * (4 - len(arguments))))
