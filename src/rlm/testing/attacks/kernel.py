"""The kernel: calls that no cell needs, in forms that do no harm even if they are allowed.

Each has to be denied, by permission or by a filter. Any other answer of the kernel, even an invalid
argument, shows that the call got through.
"""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import claims

__all__ = ["ATTACKS"]

_CODES = {
    "make an io_uring": "probe('io_uring_setup', 1, bytes(120))",
    "create a bpf map": "probe('bpf', 0, struct.pack('<IIII', 2, 4, 4, 1) + bytes(112), 128)",
    "watch processor events (perf)": """
wanted = struct.pack('<IIQ', 1, 112, 1) + bytes(24) + struct.pack('<Q', 0x60) + bytes(64)
probe('perf_event_open', wanted, 0, -1, -1, 0)
""",
    "use the kernel's keyrings (keyctl)": "probe('keyctl', 0, -3, 1, 0, 0)",
    "catch page faults (userfaultfd)": "probe('userfaultfd', 1)",
    "create a user namespace and mount in it": """
syscall('unshare', 0x10000000 | 0x00020000)
got('made a user namespace')
""",
    "create a network namespace": "\nprobe('unshare', 0x40000000)",
    "enter the namespace of another process (setns)": """
with open(f"/proc/{target['victim']['pid']}/ns/uts") as namespace:
    syscall('setns', namespace.fileno(), 0)
got('entered a namespace')
""",
    "change the root folder (chroot)": "os.chroot('.')\ngot('changed its root')",
    "mount something": "probe('mount', b'none', b'.', b'tmpfs', 32, None)",
    "mount with the new calls (fsopen)": "probe('fsopen', b'tmpfs', 0)",
    "copy a mount tree (open_tree)": "probe('open_tree', -100, b'.', 1)",
    "swap the root folder (pivot_root)": "probe('pivot_root', b'.', b'.')",
    "restart the machine": "probe('reboot', 0, 0, 0, 0)",
    "load another kernel": "probe('kexec_load', 0, 0, None, 0xdead)",
    "load a module into the kernel": "probe('init_module', b'', 0, b'')",
    "rename the machine": "probe('sethostname', b'', -1)",
    "set the clock": "probe('settimeofday', None, None)",
    "read the kernel's log": """
import ctypes
probe('syslog', 3, ctypes.create_string_buffer(200), 200)
""",
    "become another user": "os.setresuid(1, 1, 1)\ngot('is user', os.getuid())",
    "become root": """
before = os.getuid()
os.setuid(0)
if not before: raise NotImplementedError('it is called root already; see its capabilities')
got('became root')
""",
    "join another group": "os.setgroups([0, 1])\ngot('is in groups', os.getgroups())",
    "hold capabilities (capset)": """
import ctypes
head, data = struct.pack('<Ii', 0x20080522, 0), ctypes.create_string_buffer(24)
try: syscall('capset', head, struct.pack('<IIIIII', *[0xffffffff, 0xffffffff, 0] * 2))
except OSError as error: denied(error)
syscall('capget', head, data)
effective = struct.unpack('<IIIIII', data.raw)
held = effective[0] | effective[3] << 32
if held: got(f'holds the capabilities {held:x}')
""",
    "raise its own hard limits": """
import resource
for name in ('NOFILE', 'NPROC', 'AS', 'FSIZE', 'STACK', 'MEMLOCK'):
    kind = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY: continue
    try:
        resource.setrlimit(kind, (hard + 4096, hard + 4096))
        got('raised', name, 'to', hard + 4096)
    except (OSError, ValueError) as error: denied(error)
""",
}

ATTACKS = tuple(
    Attack(name=name, group="kernel", code=code, judge=claims, shares=code.startswith("probe"))
    for name, code in _CODES.items()
)
