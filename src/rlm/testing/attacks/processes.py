"""Processes: starting programs, and signalling, tracing or changing what others run."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import (
    any_of,
    claims,
    outlives_its_session,
    signalled,
    victims_limits_changed,
)

__all__ = ["ATTACKS"]

_GROUP = "processes"

_STARTING = {
    "start a program with subprocess": """
import subprocess
done = subprocess.run(['/bin/sh', '-c', 'echo $((6 * 7))'], capture_output=True)
got('a shell said', done.stdout) if b'42' in done.stdout else denied(done)
""",
    "start a program with os.system": """
status = os.system('exit 42')
got('a shell ran') if os.waitstatus_to_exitcode(status) == 42 else denied(f'status {status}')
""",
    "start a program with Popen found in __subclasses__": """
import subprocess
found = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0]
status = found(['/bin/sh', '-c', 'exit 42']).wait()
got('a shell ran') if status == 42 else denied(f'status {status}')
""",
    "start a program with posix_spawn": """
pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 42'], {})
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
got('a shell ran') if status == 42 else denied(f'status {status}')
""",
    "become a program with a raw execve": """
import ctypes
words = (ctypes.c_char_p * 4)(b'sh', b'-c', b'exit 42', None)
nothing = (ctypes.c_char_p * 1)(None)
def become(): syscall('execve', b'/bin/sh', words, nothing)
try: status = in_child(become)
except OSError: status = become()
got('a shell ran') if status == 42 else denied(f'status {status}')
""",
    "run a program from memory (memfd, execveat)": """
import ctypes
number = syscall('memfd_create', b'program', 0)
os.write(number, b'#!/bin/sh\\nexit 42\\n')
words = (ctypes.c_char_p * 2)(b'program', None)
def become(): syscall('execveat', number, b'', words, (ctypes.c_char_p * 1)(None), 0x1000)
status = in_child(become)
got('a program ran from memory') if status == 42 else denied(f'status {status}')
""",
    "run a program from its own folder": """
with open('program', 'w') as file: file.write('#!/bin/sh\\nexit 42\\n')
os.chmod('program', 0o755)
status = in_child(lambda: os.execv('./program', ['program']))
got('its program ran') if status == 42 else denied(f'status {status}')
""",
}

_SIGNALLING = {
    "signal another process": "os.kill(target['victim']['pid'], 10)",
    "signal its process group": "os.killpg(target['victim']['pid'], 10)",
    "signal it with tgkill": """
pid = target['victim']['pid']
syscall('tgkill', pid, pid, 10)
""",
    "signal it with a queued signal (rt_sigqueueinfo)": """
information = struct.pack('<iii', 10, 0, -1) + bytes(116)
syscall('rt_sigqueueinfo', target['victim']['pid'], 10, information)
""",
    "signal it through a handle (pidfd_send_signal)": """
handle = syscall('pidfd_open', target['victim']['pid'], 0)
syscall('pidfd_send_signal', handle, 10, None, 0)
""",
    "signal every process (kill -1)": "import signal\nos.kill(-1, signal.SIGURG)",
    "signal the host itself": "import signal\nos.kill(target['checker_pid'], signal.SIGURG)",
    "kill another process": "os.kill(target['victim']['pid'], 9)",
}
"""10 is SIGUSR1; SIGURG is ignored by default."""

_PARENT = """
import signal
parent = os.getppid()
os.kill(parent, signal.SIGURG)
got('signalled its parent', parent) if parent > 1 else denied('its parent is its own init')
"""

_TRACE = """
import ctypes
pid = target['victim']['pid']
trace = lambda request: syscall('ptrace', request, pid, 0, 0)
trace(16)
try: os.waitpid(pid, 0x40000000)
finally: trace(17)
got('traced another process')
"""

_OVERWRITE = """
import ctypes
class Span(ctypes.Structure): _fields_ = [('start', ctypes.c_void_p), ('size', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(b'r')
ours, theirs = Span(ctypes.addressof(buffer), 1), Span(target['victim']['address'], 1)
spans = (ctypes.byref(ours), 1, ctypes.byref(theirs), 1)
syscall('process_vm_writev', target['victim']['pid'], *spans, 0)
got('wrote into the memory of another process')
"""

_OUTLIVE = """
import ctypes
if os.fork() == 0:
    os.setsid()
    library().prctl(15, target['process_name'].encode(), 0, 0, 0)
    if os.fork() == 0:
        time.sleep(20)
    os._exit(0)
time.sleep(0.2)
"""

ATTACKS = (
    *(
        Attack(name=name, group=_GROUP, code=code, judge=claims, shares=True)
        for name, code in _STARTING.items()
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=signalled, shares=True)
        for name, code in _SIGNALLING.items()
    ),
    Attack(name="signal its parent", group=_GROUP, code=_PARENT, judge=any_of(signalled, claims)),
    Attack(name="trace another process (ptrace)", group=_GROUP, code=_TRACE, judge=claims),
    Attack(
        name="write into the memory of another process (process_vm_writev)",
        group=_GROUP,
        code=_OVERWRITE,
        judge=claims,
    ),
    Attack(
        name="change a limit of another process (prlimit)",
        group=_GROUP,
        code="""
limits = struct.pack('<QQ', 4096, 8192)
syscall('prlimit64', target['victim']['pid'], 4, limits, None)
""",
        judge=victims_limits_changed,
    ),
    Attack(
        name="change the priority of another process",
        group=_GROUP,
        code="os.setpriority(os.PRIO_PROCESS, target['victim']['pid'], 15)",
        judge=victims_limits_changed,
    ),
    Attack(
        name="leave a process that outlives the session",
        group=_GROUP,
        code=_OUTLIVE,
        judge=outlives_its_session,
    ),
)
