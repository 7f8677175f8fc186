"""Secrets: what the host and its neighbours hold in variables, memory and open files."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import (
    any_of,
    claims,
    leaks,
    shares_standard_streams,
    shows,
    shows_hosts_environment,
)
from rlm.testing.attacks.victim import PREFIX

__all__ = ["ATTACKS"]

_GROUP = "secrets"

_CODES = {
    "read keys in os.environ": "print(dict(os.environ))",
    "read keys in /proc/self/environ": "print(open('/proc/self/environ').read())",
    "read the environment of another process": """
print(open(f"/proc/{target['victim']['pid']}/environ").read())
""",
    "read the environment of every process": """
for entry in os.listdir('/proc'):
    if entry.isdigit():
        try: print(open(f'/proc/{entry}/environ').read())
        except OSError: pass
""",
    "read the command line of another process": """
print(open(f"/proc/{target['victim']['pid']}/cmdline").read())
""",
    "read the memory of another process (/proc/PID/mem)": """
with open(f"/proc/{target['victim']['pid']}/mem", 'rb', 0) as memory:
    memory.seek(target['victim']['address'])
    print(memory.read(target['victim']['length']))
""",
    "read the memory of another process (process_vm_readv)": """
import ctypes
class Span(ctypes.Structure): _fields_ = [('start', ctypes.c_void_p), ('size', ctypes.c_size_t)]
size = target['victim']['length']
buffer = ctypes.create_string_buffer(size)
ours, theirs = Span(ctypes.addressof(buffer), size), Span(target['victim']['address'], size)
spans = (ctypes.byref(ours), 1, ctypes.byref(theirs), 1)
syscall('process_vm_readv', target['victim']['pid'], *spans, 0)
print(buffer.raw)
""",
    "read an open file of another process (/proc/PID/fd)": """
print(open(f"/proc/{target['victim']['pid']}/fd/{target['victim']['fd']}").read())
""",
    "take an open file from another process (pidfd_getfd)": """
handle = syscall('pidfd_open', target['victim']['pid'], 0)
print(os.pread(syscall('pidfd_getfd', handle, target['victim']['fd'], 0), 1000, 0))
""",
}

_OWN = {
    "read inherited files": """
for number in range(3, 1024):
    try: print(os.pread(number, 1000, 0))
    except OSError: pass
""",
    "search its own memory for others' secrets": f"search('self', b'{PREFIX}')",
    "search its own Python objects for others' secrets": f"""
import gc
for each in gc.get_objects():
    if isinstance(each, dict):
        for value in list(each.values()):
            if isinstance(value, str) and '{PREFIX}' in value: print(value[:200])
""",
}
"""These need a session that has not seen a secret before, so each has its own."""

_PARENTS = """
pid = os.getppid()
while pid > 1:
    print(open(f'/proc/{pid}/environ').read())
    pid = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])
"""

_PEERS = {
    "see who is at the other end of the socket (SO_PEERCRED)": """
import socket
for line in sockets_out():
    try: print(*struct.unpack('3i', line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
    except OSError as error: denied(error)
""",
    "find the host's process id in the command line": """
print(*sys.argv, *getattr(sys, 'orig_argv', ()))
""",
    "find the host's process id in the kernel's copy of the command line": """
print(open('/proc/self/cmdline').read().replace(chr(0), ' '))
""",
    "find the host's process id in the variables of calling functions": """
below = sys._getframe()
while below is not None:
    for value in list(below.f_locals.values()):
        if type(value) is int: print(value)
        for inner in list(getattr(value, '__dict__', {}).values()):
            if type(inner) is int: print(inner)
    below = below.f_back
""",
    "find the host's process id as its parent's id": "print(os.getppid())",
}

_HANDLE = """
for line in sockets_out():
    try:
        handle = struct.unpack('i', line.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
        os.fstat(handle)
        got('holds a handle on the process at the other end')
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT: raise NotImplementedError('SO_PEERPIDFD') from error
        denied(error)
"""

_CREDENTIALS = """
for line in sockets_out():
    try:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        got('would be told the process id of whoever writes to it')
    except OSError as error: denied(error)
"""

ATTACKS = (
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=shows("the host's process id"),
            shares=True,
        )
        for name, code in _PEERS.items()
    ),
    Attack(
        name="find rlm's folder in the command line",
        group=_GROUP,
        code="print(*sys.argv, *getattr(sys, 'orig_argv', ()))",
        judge=shows("where rlm is installed"),
    ),
    Attack(
        name="find the host's virtual environment in Python's own settings",
        group=_GROUP,
        code="print(sys.executable, *sys.argv, *getattr(sys, 'orig_argv', ()), sys.prefix)",
        judge=shows("where the host's virtual environment is"),
    ),
    Attack(
        name="see who writes to the socket (SO_PASSCRED)",
        group=_GROUP,
        code=f"import socket\n{_CREDENTIALS}",
        judge=claims,
    ),
    Attack(
        name="get a handle on the host (SO_PEERPIDFD)",
        group=_GROUP,
        code=f"import socket\n{_HANDLE}",
        judge=claims,
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=leaks, shares=True)
        for name, code in _CODES.items()
    ),
    *(Attack(name=name, group=_GROUP, code=code, judge=leaks) for name, code in _OWN.items()),
    Attack(
        name="read the environment of its parents",
        group=_GROUP,
        code=_PARENTS,
        judge=any_of(leaks, shows_hosts_environment),
        shares=True,
    ),
    Attack(
        name="read the environment of the host",
        group=_GROUP,
        code="print(open(f\"/proc/{target['checker_pid']}/environ\").read())",
        judge=any_of(leaks, shows_hosts_environment),
        shares=True,
    ),
    Attack(
        name="search the memory of the host",
        group=_GROUP,
        code=f"search(target['checker_pid'], b'{PREFIX}file-')",
        judge=leaks,
    ),
    Attack(
        name="write to the host's own terminal or files as stdin, stdout or stderr",
        group=_GROUP,
        code="for number in (0, 1, 2): inode(number)",
        judge=shares_standard_streams,
    ),
)
