"""Whole sessions in processes of their own, as root and as somebody else, layer by layer."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.worker.sandbox.ordinary import ANYWHERE, DEVICES, ORDINARY, RESULTS, WITH_SCRATCH
from tests.worker.sandbox.runs import Run, need_namespaces, run, run_cell

USERS = ("root", "stranger")
FORBIDDEN: dict[str, list[str]] = {
    "all layers": [],
    "no namespaces": ["namespaces"],
    "sealed": ["namespaces", "landlock"],
}
ME = os.getpid()


@cache
def public_secret() -> Path:
    """A file of the host that everybody may read, in a folder where everybody may write."""
    folder = Path(tempfile.mkdtemp(prefix="rlm-sandbox-secret-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o777)
    (folder / "secret").write_text("secret")
    (folder / "secret").chmod(0o666)
    return folder


def attacks(folder: object = "") -> dict[str, str]:
    """Code that must raise; each is tried in every setting. `folder` is the one above."""
    return {
        "read a file of the system": 'open("/etc/passwd").read()',
        "read a secret of the host": f'open("{folder}/secret").read()',
        "read it by a raw call": (
            "import ctypes\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            f'fd = libc.open(b"{folder}/secret", 0)\n'
            "if fd < 0: raise OSError(ctypes.get_errno(), 'refused')"
        ),
        "empty it": f'os.open("{folder}/secret", os.O_RDONLY | os.O_TRUNC)',
        "empty it by name": f'os.truncate("{folder}/secret", 0)',
        "change its mode": f'os.chmod("{folder}/secret", 0)',
        "change its times": f'os.utime("{folder}/secret", (0, 0))',
        "write beside it": f'open("{folder}/written", "w").write("x")',
        "remove it": f'os.unlink("{folder}/secret")',
        "change the interpreter": 'open(os.__file__, "a")',
        "change its mode, too": "os.chmod(os.__file__, 0o777)",
        "read the host's memory": f'open("/proc/{ME}/mem", "rb")',
        "read our environment": 'open("/proc/self/environ").read()',
        "shared memory": 'open("/dev/shm/x", "w")',
        "a TCP socket": "import socket; socket.socket()",
        "a UDP socket": "import socket; socket.socket(type=socket.SOCK_DGRAM)",
        "a unix socket": "import socket; socket.socket(socket.AF_UNIX)",
        "a datagram to a socket of the host": (
            "import socket\n"
            "ours, _ = socket.socketpair(type=socket.SOCK_DGRAM)\n"
            'ours.sendto(b"x", "/dev/log")'
        ),
        "a file handed out": (
            "import socket, array\n"
            "ours, _ = socket.socketpair()\n"
            'ours.sendmsg([b"x"], [(socket.SOL_SOCKET, 1, array.array("i", [0]))])'
        ),
        "another program": 'os.execv("/bin/sh", ["sh"])',
        "a subprocess": 'import subprocess; subprocess.run(["/bin/sh", "-c", "true"])',
        "signal the host": f"os.kill({ME}, 0)",
        "a limit raised": (
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))"
        ),
        "a limit of another": f"import resource; resource.prlimit({ME}, resource.RLIMIT_NOFILE)",
        "memory as a file": 'os.memfd_create("x")' if hasattr(os, "memfd_create") else "os.fail",
        "become root": "os.setuid(0)",
        "change the root": 'os.chroot("/")',
        "an interrupt ignored": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "an end ignored": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "a namespace": _raw("unshare", 0x10000000),
        "a tracer": _raw("ptrace", 0, 0, 0, 0),
        "a mount": _raw("mount", 0, 0, 0, 0, 0),
        "shared memory of System V": _raw("shmget", 0, 4096, 0o1600),
        "keys": _raw("keyctl", 0, 0, 0),
    }


def _raw(name: str, *arguments: int) -> str:
    from tests.worker.sandbox.test_kernel import policy

    first, second, _ = policy()[name]
    return (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"number = {first} if os.uname().machine == 'x86_64' else {second}\n"
        f"if libc.syscall(number, *{arguments}) < 0: raise OSError(ctypes.get_errno(), 'refused')"
    )


REFUSALS = {
    "PermissionError",
    "FileNotFoundError",  # pivot_root: it is not there at all
    "ProcessLookupError",  # a pid namespace: so is the process
    "OSError",  # read-only file systems
    "ValueError",  # what Python makes of a limit that may not be raised
}


@cache
def attacked(user: str, setting: str) -> Run:
    settings = {"forbid": FORBIDDEN[setting]}
    return run(user, settings=settings, sessions=[list(attacks(public_secret()).values())])


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", FORBIDDEN)
class TestAttacks:
    @pytest.mark.parametrize("name", attacks())
    def test_every_attack_fails(self, user: str, setting: str, name: str) -> None:
        done = attacked(user, setting)
        assert len(done.outcomes) == len(attacks())
        outcome = done.outcomes[list(attacks()).index(name)]
        assert outcome.error in REFUSALS

    def test_attacks_change_nothing_outside_the_sandbox(self, user: str, setting: str) -> None:
        attacked(user, setting)
        assert [path.name for path in public_secret().iterdir()] == ["secret"]
        assert (public_secret() / "secret").read_text() == "secret"
        assert (public_secret() / "secret").stat().st_mode & 0o777 == 0o666

    def test_the_report_names_the_layers_that_hold(self, user: str, setting: str) -> None:
        report = attacked(user, setting).report
        assert report["seccomp"] is True
        if setting == "all layers":
            need_namespaces(report)
            assert report["namespaces"] == ("root" if user == "root" else "user")
            assert report["file_system"][0] == "pivot_root"
            assert report["scratch"] == "/sandbox"
            assert report["sealed"] is False
        elif setting == "sealed":
            assert report["file_system"] == ["sealed"]
            assert (report["sealed"], report["landlock_abi"]) == (True, 0)
            assert report["missing"][:2] == [
                "landlock: forbidden by the settings",
                "namespaces: forbidden by the settings",
            ]
        elif report["landlock_abi"]:
            assert report["file_system"] == ["landlock"]
        if setting != "all layers":
            assert (report["scratch"], report["namespaces"]) == ("", "")
            assert report["pid_namespace"] is False
            assert report["unchanged"] is True


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", FORBIDDEN)
def test_ordinary_python_works(user: str, setting: str) -> None:
    cells = ANYWHERE if setting == "sealed" else {**ANYWHERE, **ORDINARY, **DEVICES}
    report = attacked(user, setting).report
    if not report["sealed"] and report["scratch"]:
        cells = {**cells, **WITH_SCRATCH}
    elif report["sealed"]:
        cells = ANYWHERE
    forbid = {"forbid": FORBIDDEN[setting]}
    outcomes = run(user, settings=forbid, sessions=[list(cells.values())]).outcomes
    found = {
        name: outcome.error or outcome.result for name, outcome in zip(cells, outcomes, strict=True)
    }
    if (
        found.get("time zones") == "ZoneInfoNotFoundError"
        and not Path("/usr/share/zoneinfo").exists()
    ):
        del found["time zones"]
    assert found == {name: RESULTS[name] for name in found}


@pytest.mark.parametrize("user", USERS)
def test_a_sealed_session_cannot_look_up_any_path(user: str) -> None:
    cells = [
        'os.stat("/")',
        'os.listdir("/")',
        'os.access("/", 0) and os.fail',
        'os.readlink("/proc/self/exe")',
        'os.chdir("/")',
        'os.open("/", os.O_PATH)',
        "import colorsys",
    ]
    done = run(user, settings={"forbid": ["namespaces", "landlock"]}, sessions=[cells])
    errors = [outcome.error for outcome in done.outcomes]
    assert errors[:2] == ["PermissionError"] * 2
    assert errors[2] == ""  # os.access answers False where others raise
    assert errors[3:] == ["PermissionError"] * 3 + ["ModuleNotFoundError"]


HOST_NAMES = """
import ctypes, os, socket
raw = ctypes.create_string_buffer(6 * 65)
ctypes.CDLL(None).uname(raw)
domain = raw.raw[5 * 65 :].rstrip(b"\\0").decode()
result = f"{os.uname().nodename} {socket.gethostname()} {domain}"
"""


@pytest.mark.parametrize("user", USERS)
def test_the_hosts_name_is_not_shown_and_stays(user: str) -> None:
    before = os.uname().nodename
    report, outcome = run_cell(user, HOST_NAMES)
    need_namespaces(report)
    assert (outcome.error, outcome.result) == ("", "sandbox sandbox sandbox")
    assert os.uname().nodename == before != "sandbox"


# -- what a session may take ---------------------------------------------------------------------


FORKS = """
import ctypes, signal
from rlm_worker.sandbox import kernel, namespaces, permits
PARENT, VM, VFORK, FILES = 0x8000, 0x100, 0x4000, 0x400
def by_number(name, *arguments):
    child = kernel.answer(name, *arguments)
    if child < 0: raise OSError(-child, name)
    return child
ways = [
    os.fork,
    permits.fork,
    lambda: namespaces.fork(0),
    lambda: by_number("clone", PARENT | signal.SIGCHLD, 0, 0, 0, 0),
    lambda: by_number("clone", PARENT | VFORK | signal.SIGCHLD, 0, 0, 0, 0),
    lambda: by_number("clone", PARENT | VM | FILES | VFORK | signal.SIGCHLD, 0, 0, 0, 0),
    lambda: by_number("clone", PARENT, 0, 0, 0, 0),
    lambda: by_number("clone", 0, 0, 0, 0, 0),
    lambda: by_number("clone3", 0, 0),
    lambda: by_number("fork"),
    lambda: by_number("vfork"),
    lambda: os.posix_spawn("/bin/true", ["true"], {}),
    lambda: ctypes.CDLL(None).fork(),
]
result = []
for way in ways * 20:
    try:
        child = way()
    except OSError:
        continue
    if child == 0:
        os._exit(0)
    if child > 0:
        result.append(child)
"""
THREAD_BOMB = """
import threading
threading.stack_size(1 << 18)
stop = threading.Event()
result = 0
try:
    while result < 500:
        threading.Thread(target=stop.wait, daemon=True).start()
        result += 1
except RuntimeError:
    pass
stop.set()
"""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", FORBIDDEN)
@pytest.mark.parametrize("checkpoints", [True, False])
def test_code_cannot_fork(user: str, setting: str, checkpoints: bool) -> None:
    """Not even where checkpoints are forks: nobody has permitted one."""
    settings = {"forbid": FORBIDDEN[setting], "checkpoints": checkpoints}
    report, outcome = run_cell(user, FORKS, settings=settings)
    assert (outcome.result, outcome.error) == ([], "")
    assert report["forks"] is (checkpoints and not _cannot_ask(report))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", FORBIDDEN)
def test_a_thread_bomb_is_limited_to_its_own_session(user: str, setting: str) -> None:
    settings = {"max_processes": 16, "forbid": FORBIDDEN[setting]}
    bombs = [[THREAD_BOMB], [THREAD_BOMB]]
    done = run(user, settings=settings, sessions=bombs, together=True)
    if _cannot_ask(done.report) and setting != "all layers":
        pytest.skip("; ".join(done.report["missing"]))
    results = [(outcome.result, outcome.error) for outcome in done.outcomes]
    assert results == [(15, "")] * 2  # and the worker's main thread


def _cannot_ask(report: dict[str, Any]) -> bool:
    return any(reason.startswith("permits: ") for reason in report["missing"])


@pytest.mark.parametrize("user", USERS)
def test_scratch_is_limited(user: str) -> None:
    fill = """
result = 0
try:
    while result < 500:
        with open(f"file{result}", "wb") as file:
            file.write(bytes(1 << 16))
        result += 1
except OSError as error:
    result = [result, error.errno]
"""
    count = """
for number in range(100_000):
    try: os.close(os.open(f"empty{number}", os.O_CREAT))
    except OSError as error:
        result = [number < 10_000, error.errno]
        break
"""
    settings = {"scratch_bytes": 1 << 20}
    done = run(user, settings=settings, sessions=[[fill], [count]])
    need_namespaces(done.report)
    assert done.outcomes[0].result == [16, 28]
    assert done.outcomes[1].result == [True, 28]


@pytest.mark.parametrize("user", USERS)
def test_the_size_of_a_file_is_limited(user: str) -> None:
    cell = """
file = open("f", "wb", buffering=0)
file.write(bytes(1000))
result = file.write(b"x" * 99)
"""
    report, outcome = run_cell(user, cell, settings={"max_file_bytes": 1024})
    need_namespaces(report)
    assert (outcome.result, outcome.error) == (24, "")
    _, outcome = run_cell(user, cell, settings={"max_file_bytes": 1000})
    assert outcome.error == "OSError"


@pytest.mark.parametrize("user", USERS)
def test_the_number_of_open_files_is_limited(user: str) -> None:
    cell = "result = len([os.pipe() for _ in range(100)])"
    assert run_cell(user, cell)[1].result == 100
    assert run_cell(user, cell, settings={"max_open_files": 40})[1].error == "OSError"


def test_processor_time_is_limited() -> None:
    done = run(
        "stranger", settings={"cpu_seconds": 1}, sessions=[["while True: pass"], ["result = 1"]]
    )
    assert [outcome.session for outcome in done.outcomes] == [1]  # the first one was ended


@pytest.mark.parametrize("user", USERS)
def test_sessions_do_not_see_each_others_files(user: str) -> None:
    cells = ["open('mine', 'w').write('x'); result = [os.listdir('.'), os.getuid()]"]
    done = run(user, sessions=[cells, cells])
    need_namespaces(done.report)
    first, second = (outcome.result for outcome in done.outcomes)
    assert first[0] == second[0] == ["mine"]
    assert (first[1] != second[1]) is done.report["own_uid"]


@pytest.mark.parametrize("user", USERS)
def test_no_descriptor_is_left_open(user: str) -> None:
    cell = """
result = []
for fd in range(3, 256):
    try: os.fstat(fd)
    except OSError: continue
    result.append(fd)
"""
    for forbid in FORBIDDEN["all layers"], FORBIDDEN["no namespaces"]:
        assert run_cell(user, cell, settings={"forbid": forbid})[1].result == []


# -- what may be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", ["all layers", "no namespaces"])
def test_granted_paths_and_packages_are_readable(user: str, setting: str) -> None:
    folder = public_secret().parent / f"rlm-grant-{ME}-{user}-{setting.replace(' ', '-')}"
    packages = folder / "lib" / "site-packages"
    for name in ("allowed", "other"):
        (packages / name).mkdir(parents=True, exist_ok=True)
        (packages / name / "__init__.py").write_text(f"value = {name!r}")
    (folder / "link").symlink_to(packages)
    cells = [
        f"result = open('{packages}/allowed/__init__.py').read()",
        f"open('{packages}/other/__init__.py').read()",
        f"result = 'allowed' in os.listdir('{packages}')",
        f"import sys; sys.path.append('{folder}/link'); import allowed; result = allowed.value",
        f"open('{packages}/allowed/new', 'w')",
    ]
    settings = {
        "readable": [f"{folder}/link/allowed"],
        "listable": [str(packages)],
        "forbid": FORBIDDEN[setting],
    }
    try:
        done = run(user, settings=settings, sessions=[cells])
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.rmdir()
    if done.report["sealed"]:
        pytest.skip("; ".join(done.report["missing"]))
    results = [outcome.error or outcome.result for outcome in done.outcomes]
    assert results[0] == "value = 'allowed'"
    assert results[1] in {"PermissionError", "FileNotFoundError"}
    assert results[2:4] == [True, "allowed"]
    assert results[4] in {"PermissionError", "OSError"}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("setting", ["all layers", "no namespaces"])
def test_installed_packages_are_not_readable(user: str, setting: str) -> None:
    cell = """
import sys
found = []
for start in {os.path.dirname(os.__file__), "/usr/lib/python3", "/usr/local/lib"}:
    for name in "site-packages", "dist-packages":
        for folder, _, files in os.walk(os.path.join(start, name)):
            for file in files:
                try: open(os.path.join(folder, file), "rb").close()
                except OSError: continue
                found.append(file)
result = len(found)
"""
    report, outcome = run_cell(user, cell, settings={"forbid": FORBIDDEN[setting]})
    if report["sealed"]:
        pytest.skip("; ".join(report["missing"]))
    assert (outcome.result, outcome.error) == (0, "")
