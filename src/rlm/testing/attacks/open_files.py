"""Open files shared with others: modes, flags, locks and leases work despite a read-only mount."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import bystander_says, claims, is_locked

__all__ = ["ATTACKS"]

_DESCRIPTORS = {
    "change the mode of the host's /dev/null through stdin, stdout or stderr": """
for number in (0, 1, 2):
    try:
        os.fchmod(number, stat.S_IMODE(os.fstat(number).st_mode))
        got('could set the mode of', number)
    except OSError as error: denied(error)
""",
    "change the mode of the host's /dev/null, opened by name": """
number = os.open('/dev/null', os.O_RDWR)
os.fchmod(number, stat.S_IMODE(os.fstat(number).st_mode))
got('could set the mode of /dev/null')
""",
    "change the owner of an inherited file (fchown)": """
for number in (0, 1, 2):
    status = os.fstat(number)
    try:
        os.fchown(number, status.st_uid, status.st_gid)
        got('could set the owner of', number)
    except OSError as error: denied(error)
""",
    "change the times of the host's /dev/null (futimens)": """
for number in (0, 1, 2):
    status = os.fstat(number)
    try:
        os.utime(number, ns=(status.st_atime_ns, status.st_mtime_ns))
        got('could set the times of', number)
    except OSError as error: denied(error)
""",
}

_LOCKS = {
    "lock a read-only file (flock)": "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "lock a read-only file for all readers (flock)": (
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)"
    ),
    "lock a read-only file (fcntl)": "fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
    "lock a read-only file (open file description locks)": (
        "fcntl.fcntl(file, 37, struct.pack('<hhxxxxqqixxxx', fcntl.F_RDLCK, 0, 0, 0, 0))"
    ),
    "lock a read-only file, waiting (F_SETLKW)": "fcntl.lockf(file, fcntl.LOCK_SH)",
    "take kernel memory with thousands of locks": """
for start in range(20_000): fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 2 * start)
""",
}
_LOCKED_MODULES = ("csv", "shelve", "sched", "cmd", "wave", "timeit")
"""Files of the standard library, which host and cells share; one per attack, since locks last."""

_NOTICES = {
    "take a lease on a file, to be notified when it is opened": """
import fcntl
fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, fcntl.F_RDLCK)
got('holds a lease')
""",
    "be notified of changes in a folder (F_NOTIFY)": """
import fcntl
fcntl.fcntl(os.open(os.path.dirname(os.__file__), os.O_RDONLY), 1026, 2)
got('is told of changes')
""",
    "be notified of changes in a folder (inotify)": """
number = library().inotify_init1(0)
if number < 0: raise PermissionError('inotify_init1')
watch = library().inotify_add_watch(number, os.path.dirname(os.__file__).encode(), 2)
got('is told of changes') if watch >= 0 else denied('inotify_add_watch')
""",
    "send signals when a file is ready (F_SETOWN)": """
import fcntl, socket
ours, theirs = socket.socketpair()
fcntl.fcntl(ours, 8, target['victim']['pid'])
got('another process would get the signals of a socket')
""",
}


def _lock(module: str, code: str) -> str:
    return f"import fcntl, {module}\nfile = open({module}.__file__)\ninode(file.fileno())\n{code}"


_FLAGS = """
import fcntl
for number in (0, 1, 2):
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
"""
_SEES_FLAGS = """
import fcntl, os
print('SEEN' if fcntl.fcntl(0, fcntl.F_GETFL) & os.O_APPEND else 'nothing')
"""

_HELD_LOCK = "file_held = open(os.__file__)\nimport fcntl\nfcntl.flock(file_held, fcntl.LOCK_EX)"
_SEES_LOCK = """
import fcntl, os
try:
    with open(os.__file__) as file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('nothing')
except BlockingIOError: print('SEEN')
"""

ATTACKS = (
    *(
        Attack(name=name, group="locks and flags", code=code, judge=claims)
        for name, code in (_DESCRIPTORS | _NOTICES).items()
    ),
    *(
        Attack(
            name=name,
            group="locks and flags",
            code=_lock(module, code),
            judge=is_locked(module),
            shares=True,
        )
        for module, (name, code) in zip(_LOCKED_MODULES, _LOCKS.items(), strict=True)
    ),
    Attack(
        name="talk to another session through the flags of stdin",
        group="locks and flags",
        code=_FLAGS,
        judge=bystander_says(_SEES_FLAGS),
        shares=True,
    ),
    Attack(
        name="talk to another session through a lock",
        group="locks and flags",
        code=_HELD_LOCK,
        judge=bystander_says(_SEES_LOCK),
        shares=True,
    ),
)
