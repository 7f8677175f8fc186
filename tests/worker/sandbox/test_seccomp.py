"""The filter, run for both machines in a BPF machine of the tests' own, and once for real."""

import errno
import itertools
import os
import signal
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.worker.sandbox import kernel, privileges, seccomp
from tests.worker.sandbox import bpf
from tests.worker.sandbox.test_kernel import MACHINES, policy

# Children only make system calls and exit, whatever threads the test runner has.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

EPERM = bpf.ERRNO | errno.EPERM
ENOSYS = bpf.ERRNO | errno.ENOSYS
ENOTSUP = bpf.ERRNO | errno.ENOTSUP
PRETENDED = bpf.ERRNO
"""An error of number 0: the call returns as if it had been made."""
ASK = 0x7FC00000
OPTIONS = ("forks", "sealed", "scratch")
PROCESS = 4_194_303
"""The highest process id there can be."""

CHECKED = {name: row[:2] for name, row in policy().items() if row[2] == "checked"}
machines = st.sampled_from(MACHINES)
options = st.fixed_dictionaries({name: st.booleans() for name in OPTIONS})
words = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 64),
    st.sampled_from([1 << 32, (1 << 32) + 2, PROCESS, PROCESS | 1 << 32, 2**64 - 100]),
)
CLONE_NEW = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
THREAD = 0x3D0F00
"""What the C library's pthread_create passes."""
FORK = 0x1200011
"""What its fork passes."""
PARENT = 0x8000
"""The child is the zygote's, not the worker's."""


@cache
def _program(machine: str, chosen: tuple[tuple[str, bool], ...]) -> bytes:
    return seccomp.bind_to_process(seccomp.build(machine, **dict(chosen)), PROCESS)


def program(machine: str, **chosen: bool) -> bytes:
    return _program(machine, tuple(sorted(chosen.items())))


def answer(machine: str, name: str, *arguments: int, **chosen: bool) -> int:
    number = policy_numbers()[name][MACHINES.index(machine)]
    assert number is not None
    return bpf.run(program(machine, **chosen), machine, number, arguments)


@cache
def policy_numbers() -> dict[str, tuple[int | None, int | None]]:
    return {name: row[:2] for name, row in policy().items()}


def allows(machine: str, name: str, *arguments: int, **chosen: bool) -> bool:
    found = answer(machine, name, *arguments, **chosen)
    assert found in {bpf.ALLOW, EPERM}
    return found == bpf.ALLOW


# -- every number --------------------------------------------------------------------------------


def meant(word: str, chosen: dict[str, bool]) -> int:
    match word:
        case "always":
            return bpf.ALLOW
        case "path":
            return EPERM if chosen["sealed"] else bpf.ALLOW
        case "change":
            return bpf.ALLOW if chosen["scratch"] and not chosen["sealed"] else EPERM
        case "unsupported":
            return ENOTSUP
        case "pretended":
            return PRETENDED
        case _:
            return EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("bits", list(itertools.product([False, True], repeat=len(OPTIONS))))
def test_exactly_the_intended_calls_are_allowed(machine: str, bits: tuple[bool, ...]) -> None:
    chosen = dict(zip(OPTIONS, bits, strict=True))
    column = MACHINES.index(machine)
    words = {row[column]: row[2] for row in policy().values() if row[column] is not None}
    wrong = []
    for number in range(601):
        word = words.get(number, "never")
        expected = ENOSYS if number > seccomp.NEWEST_KNOWN else meant(word, chosen)
        found = bpf.run(program(machine, **chosen), machine, number, (7, 7, 7, 7, 7, 7))
        if word != "checked" and found != expected:
            wrong.append((number, word, hex(found)))
    assert wrong == []


def test_the_number_of_allowed_calls_has_not_changed() -> None:
    """A call more is a decision: change the table beside this file, and this number."""
    by_word = [row[2] for row in policy().values() if row[1] is not None]
    counts = {word: by_word.count(word) for word in set(by_word)}
    assert counts == {
        "always": 92,
        "path": 9,
        "change": 11,
        "checked": 15,
        "pretended": 1,
        "unsupported": 12,
        "never": 185,
    }


NEVER = """
socket connect bind listen accept accept4 sendmsg sendmmsg recvmmsg execve execveat memfd_create
memfd_secret io_uring_setup io_uring_enter io_uring_register bpf perf_event_open keyctl add_key
request_key userfaultfd ptrace process_vm_readv process_vm_writev process_madvise mount umount2
move_mount open_tree fsopen fsmount mount_setattr unshare setns chroot pivot_root setuid setgid
setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset seccomp
landlock_restrict_self pidfd_open pidfd_getfd pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo
open_by_handle_at name_to_handle_at shmget shmat semget msgget mq_open mknodat fchownat fchown
setsid setpgid setpriority sched_setscheduler sched_setattr sched_setaffinity setrlimit reboot
kexec_load init_module finit_module swapon quotactl settimeofday clock_settime adjtimex syslog
personality kcmp fanotify_init inotify_init1 signalfd4 splice tee vmsplice openat2 acct vhangup
"""


@pytest.mark.parametrize("machine", MACHINES)
@given(arguments=st.tuples(*[words] * 6), chosen=options)
def test_forbidden_calls_fail_with_every_option(
    machine: str, arguments: tuple[int, ...], chosen: dict[str, bool]
) -> None:
    for name in NEVER.split():
        if policy_numbers()[name][MACHINES.index(machine)] is not None:
            assert answer(machine, name, *arguments, **chosen) == EPERM


@given(machine=machines, chosen=options, number=st.integers(seccomp.NEWEST_KNOWN + 1, 2**32 - 1))
def test_newer_calls_and_x32_do_not_exist(
    machine: str, chosen: dict[str, bool], number: int
) -> None:
    assert bpf.run(program(machine, **chosen), machine, number) == ENOSYS


@pytest.mark.parametrize("number", [0, 1, 59, 322, 520, 545])
def test_x32_calls_do_not_exist(number: int) -> None:
    assert bpf.run(program("x86_64"), "x86_64", 0x40000000 | number) == ENOSYS


@given(machine=machines, number=st.integers(0, 600), arch=st.integers(0, 2**32 - 1))
def test_calls_of_another_machine_end_the_process(machine: str, number: int, arch: int) -> None:
    if arch != bpf.ARCHITECTURES[machine]:
        assert bpf.run(program(machine), machine, number, arch=arch) == bpf.KILL


# -- arguments -----------------------------------------------------------------------------------


def low(value: int) -> int:
    return value & 0xFFFFFFFF


def expected(name: str, arguments: tuple[int, ...], chosen: dict[str, bool]) -> int:
    """What each checked call is meant to answer, said once more and differently."""
    forks = chosen["forks"]
    first, second, third = arguments[:3]
    if name == "clone3":
        return ENOSYS
    if name == "fcntl" and low(second) in {6, 7, 37, 38}:
        return PRETENDED
    if name == "setsockopt" and low(second) == 1 and low(third) in {7, 8}:
        return PRETENDED
    if name in {"open", "openat"}:
        flags = low(second if name == "open" else third)
        good = not chosen["sealed"] and not (flags & os.O_TRUNC and flags & 3 not in {1, 2})
    elif name == "clone":
        wanted = first & ~(THREAD | FORK | 0x4000 | 0x400000 | (PARENT if forks else 0)) == 0
        good = wanted and bool(first & 0x10000 or (forks and first & PARENT))
    else:
        good = {
            "kill": low(first) == PROCESS,
            "tkill": low(first) == PROCESS,
            "tgkill": low(first) == PROCESS,
            "rt_sigaction": low(first) not in {2, 15, 24} or second == 0,
            "prctl": low(first) in {15, 16, 0x53564D41} or (low(first), low(second)) == (1, 9),
            "prlimit64": low(first) == 0,
            "ioctl": low(second) in {0x541B, 0x5421, 0x5450, 0x5451, 0x5401, 0x802C542A, 0x5413},
            "fcntl": low(second) in {*range(6), 36, 1030, 1032, 1034},
            "socketpair": low(first) == 1,
            "setsockopt": low(second) == 1 and low(third) in {2, 9, 20, 21},
            "getsockopt": low(second) == 1 and low(third) in {2, 3, 4, 7, 8, 9, 20, 21, 30, 38, 39},
            "sendto": arguments[4] == 0,
        }[name]
    return bpf.ALLOW if good else EPERM


flag_words = st.builds(
    lambda base, extra: base ^ extra,
    st.sampled_from(
        [THREAD, FORK, FORK | PARENT, 0x4111, 0, 0x241, 0x200, 0x203, 1030, 0x541B, 0x53564D41]
    ),
    st.one_of(st.just(0), st.integers(0, 63).map(lambda bit: 1 << bit)),
)


@pytest.mark.parametrize("name", sorted(CHECKED))
@given(machine=machines, chosen=options, arguments=st.tuples(*[st.one_of(words, flag_words)] * 6))
def test_calls_are_allowed_by_their_arguments(
    name: str, machine: str, chosen: dict[str, bool], arguments: tuple[int, ...]
) -> None:
    if CHECKED[name][MACHINES.index(machine)] is not None:
        found = answer(machine, name, *arguments, **chosen)
        assert found == expected(name, arguments, chosen), (hex(found), arguments)


@pytest.mark.parametrize("machine", MACHINES)
class TestArguments:
    def test_threads_are_always_allowed_and_processes_optionally(self, machine: str) -> None:
        assert allows(machine, "clone", THREAD)
        assert not allows(machine, "clone", FORK)
        assert not allows(machine, "clone", FORK | PARENT)
        assert not allows(machine, "clone", THREAD | PARENT)
        assert allows(machine, "clone", FORK | PARENT, forks=True)
        assert not allows(machine, "clone", FORK, forks=True)  # the zygote would not know of it
        assert not allows(machine, "clone", 0x4111, forks=True)  # vfork
        assert not allows(machine, "clone", FORK | PARENT << 32, forks=True)

    def test_older_ways_to_fork_are_forbidden(self, machine: str) -> None:
        for name in ("fork", "vfork"):
            if policy_numbers()[name][MACHINES.index(machine)] is not None:
                assert not allows(machine, name, forks=True)
                assert not allows(machine, name)
        assert answer(machine, "clone3", 0x1000, 88, forks=True) == ENOSYS

    def test_dying_with_the_parent_can_be_requested_but_not_undone(self, machine: str) -> None:
        set_parent_death_signal, get_it = 1, 2
        assert allows(machine, "prctl", set_parent_death_signal, signal.SIGKILL)
        for other in (0, signal.SIGTERM, signal.SIGCONT, 64):
            assert not allows(machine, "prctl", set_parent_death_signal, other)
        assert not allows(machine, "prctl", get_it, signal.SIGKILL)

    @pytest.mark.parametrize("flag", [*CLONE_NEW, 0x2000, 0x1000, 0x80, 1 << 33])
    def test_namespaces_and_process_handles_cannot_be_created(
        self, machine: str, flag: int
    ) -> None:
        assert not allows(machine, "clone", FORK | PARENT | flag, forks=True)
        assert not allows(machine, "clone", THREAD | flag, forks=True)
        assert not allows(machine, "clone", THREAD | flag)

    def test_signals_can_be_sent_to_the_own_process_only(self, machine: str) -> None:
        for name in ("kill", "tgkill", "tkill"):
            assert allows(machine, name, PROCESS, 9)
            for other in (0, 1, PROCESS - 1, 2**64 - 1, 2**32 - 1):
                assert not allows(machine, name, other, 9)
                assert not allows(machine, name, other, 9, forks=True)

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGXCPU"])
    def test_handlers_of_signals_that_stop_cells_cannot_be_changed(
        self, machine: str, name: str
    ) -> None:
        number = int(getattr(signal, name))
        assert allows(machine, "rt_sigaction", number, 0)
        assert not allows(machine, "rt_sigaction", number, 0x7FFF0000)
        assert not allows(machine, "rt_sigaction", number, 0x5 << 32)  # the lower half is zero
        assert allows(machine, "rt_sigaction", signal.SIGUSR1, 0x7FFF0000)

    def test_datagrams_cannot_have_an_address(self, machine: str) -> None:
        assert allows(machine, "sendto", 5, 0x1000, 10, 0, 0, 0)
        assert not allows(machine, "sendto", 5, 0x1000, 10, 0, 0x1000, 16)
        assert not allows(machine, "sendto", 5, 0x1000, 10, 0, 0x5 << 32, 16)

    def test_locking_pretends_to_succeed_and_does_nothing(self, machine: str) -> None:
        assert answer(machine, "flock", 5, 2) == PRETENDED
        for lock in (6, 7, 37, 38):
            assert answer(machine, "fcntl", 5, lock, 0x1000) == PRETENDED
        for lease_or_notice in (1024, 1025, 1026):
            assert not allows(machine, "fcntl", 5, lease_or_notice)

    def test_socket_buffers_cannot_be_resized(self, machine: str) -> None:
        for option in (7, 8):
            assert answer(machine, "setsockopt", 5, 1, option, 0x1000, 4) == PRETENDED
            assert not allows(machine, "setsockopt", 5, 6, option, 0x1000, 4)
            assert allows(machine, "getsockopt", 5, 1, option)
        for force in (32, 33):
            assert not allows(machine, "setsockopt", 5, 1, force, 0x1000, 4)

    def test_the_peer_of_a_socket_cannot_be_identified(self, machine: str) -> None:
        credentials, groups, security, pidfd = 17, 59, 31, 77
        for option in (credentials, groups, security, pidfd):
            assert not allows(machine, "getsockopt", 5, 1, option)
        for option in (16, 76, 34):  # to be told with every message
            assert not allows(machine, "setsockopt", 5, 1, option, 0x1000, 4)

    @pytest.mark.parametrize(("flags", "good"), [(0, True), (0o1101, True), (0o1102, True)])
    def test_open_flags_are_checked(self, machine: str, flags: int, good: bool) -> None:
        assert allows(machine, "openat", 0, 0, flags) is good
        assert not allows(machine, "openat", 0, 0, flags, sealed=True)

    @pytest.mark.parametrize("flags", [0o1000, 0o1003])
    def test_files_cannot_be_truncated_by_opening_them_for_reading(
        self, machine: str, flags: int
    ) -> None:
        assert not allows(machine, "openat", 0, 0, flags)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_filter_fits_the_kernels_limit(machine: str) -> None:
    for bits in itertools.product([False, True], repeat=len(OPTIONS)):
        built = seccomp.build(machine, **dict(zip(OPTIONS, bits, strict=True)))
        assert len(built) % 8 == 0
        assert len(built) // 8 <= 4096


@pytest.mark.parametrize("threads", [False, True])
@given(machine=machines, number=st.integers(0, 600), flags=st.one_of(words, flag_words))
def test_the_listener_is_notified_only_of_forks_and_optionally_threads(
    threads: bool, machine: str, number: int, flags: int
) -> None:
    numbers = {
        name: policy_numbers()[name][MACHINES.index(machine)] for name in ("clone", "fork", "vfork")
    }
    listener = seccomp.build_listener(machine, threads)
    for each in (number, *(number for number in numbers.values() if number is not None)):
        forks = each in {numbers["fork"], numbers["vfork"]}
        forks |= each == numbers["clone"] and (threads or not flags & 0x10000)
        assert bpf.run(listener, machine, each, (flags,)) == (ASK if forks else bpf.ALLOW)
        assert bpf.run(listener, machine, each, (flags,), arch=1) == bpf.KILL


# -- for real ------------------------------------------------------------------------------------


def test_the_kernel_enforces_the_filter() -> None:
    if kernel.number("seccomp") is None:
        pytest.skip(f"there is no table for {kernel.MACHINE!r}")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            privileges.forbid_new_privileges()
            seccomp.install(seccomp.bind_to_process(seccomp.build(kernel.MACHINE), os.getpid()))
            codes = [
                kernel.answer("unshare", 0),
                kernel.answer("clone3", 0, 0),
                kernel.answer("kill", os.getppid(), 0),
                kernel.answer("kill", os.getpid(), 0),
                kernel.answer("clone", FORK, 0, 0, 0, 0),
                kernel.answer("clone", FORK | PARENT, 0, 0, 0, 0),
                kernel.answer("prctl", 1, 9, 0, 0, 0),
                kernel.answer("prctl", 1, 0, 0, 0, 0),
            ]
            os.write(writer, repr(codes).encode())
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    answers = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    if "seccomp" in answers:
        pytest.skip(answers)
    no = -errno.EPERM
    assert answers == repr([no, -errno.ENOSYS, no, 0, no, no, 0, no])
