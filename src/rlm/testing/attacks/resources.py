"""Resources: memory, disk, processes, threads, open files and output without end."""

from rlm.testing.attacks.attempt import MEMORY_BYTES, Attack
from rlm.testing.attacks.judges import any_of, claims, no_more_than, only_its_own_session

__all__ = ["ATTACKS"]

_GROUP = "resources"
_TOO_MUCH_BYTES = 3 * MEMORY_BYTES
_BLOCK_BYTES = 8 << 20
_BLOCKS = _TOO_MUCH_BYTES // _BLOCK_BYTES

_HOARD = f"""
hoard = []
def take(make):
    '''Touch every page of what is taken.'''
    while len(hoard) < {_BLOCKS}:
        block = make({_BLOCK_BYTES})
        block[::4096] = bytes({_BLOCK_BYTES} // 4096)
        hoard.append(block)
    got('took', len(hoard) * {_BLOCK_BYTES} >> 20, 'MB, where {MEMORY_BYTES >> 20} MB are allowed')
"""

_MEMORY = {
    "take memory on the heap": "take(bytearray)",
    "take memory with shared mappings": "import mmap\ntake(lambda size: mmap.mmap(-1, size))",
    "raise its own limits, then take memory": """
import resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
    hard = resource.getrlimit(kind)[1]
    try: resource.setrlimit(kind, (hard, hard))
    except (OSError, ValueError) as error: denied(error)
take(bytearray)
""",
    "take memory in anonymous files (memfd)": f"""
taken = []
while len(taken) < {_BLOCKS}:
    number = syscall('memfd_create', b'hoard', 0)
    os.ftruncate(number, {_BLOCK_BYTES})
    taken.append(number)
    os.write(number, bytes({_BLOCK_BYTES}))
got('took', len(taken) * {_BLOCK_BYTES} >> 20, 'MB in memfds')
""",
    "take memory in forked children": f"""
import signal
reader, writer = os.pipe()
children = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        try:
            block = bytearray({MEMORY_BYTES * 3 // 4})
            block[::4096] = bytes(len(block) // 4096)
            os.write(writer, b'y')
            time.sleep(5)
        finally: os._exit(0)
    children.append(pid)
os.close(writer)
took = b''
while len(took) < 5 and (more := os.read(reader, 5)): took += more
for pid in children: os.kill(pid, signal.SIGKILL)
if len(took) > 3: got('took', len(took) * {MEMORY_BYTES * 3 // 4} >> 20, 'MB in children')
""",
}

_DISK = {
    "fill the disk with one large file": """
with open('large', 'wb') as file:
    try: os.posix_fallocate(file.fileno(), 0, 1 << 30)
    except PermissionError:
        for _ in range(1024): file.write(bytes(1 << 20))
got('took', os.stat('large').st_blocks * 512 >> 20, 'MB of disk')
os.unlink('large')
""",
    "fill the disk with many files": """
import shutil
os.mkdir('many')
for number in range(64):
    with open(f'many/{number}', 'wb') as file:
        try: os.posix_fallocate(file.fileno(), 0, 16 << 20)
        except PermissionError: file.write(bytes(16 << 20))
got('took 1,024 MB of disk')
shutil.rmtree('many')
""",
    "create a sparse file of a terabyte": """
with open('sparse', 'wb') as file: file.truncate(1 << 40)
got('has a file of', os.stat('sparse').st_size >> 40, 'TB')
""",
    "use up the file system's inodes": """
os.mkdir('crowd')
for number in range(12_000): os.close(os.open(f'crowd/{number}', os.O_CREAT))
got('made 12,000 files')
""",
}

_FORK_BOMB = """
import signal
children = []
try:
    for _ in range(150):
        pid = os.fork()
        if pid == 0:
            time.sleep(5)
            os._exit(0)
        children.append(pid)
except OSError as error: denied(f'{error} after {len(children)}')
else: got('runs 150 processes')
for pid in children: os.kill(pid, signal.SIGKILL)
"""

_THREAD_BOMB = """
import threading
threading.stack_size(1 << 18)
stop, count = threading.Event(), 0
try:
    while count < 1_000:
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except (RuntimeError, MemoryError, OSError) as error: denied(f'{error} after {count}')
else: got('runs 1,000 threads')
stop.set()
"""

_FD_BOMB = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
except (OSError, ValueError) as error: denied(error)
number, count = os.open('.', os.O_RDONLY), 0
try:
    while count < 10_000:
        os.dup(number)
        count += 1
except OSError as error: denied(f'{error} after {count}')
else: got('holds 10,000 open files')
"""

_FLOODS = {
    "flood the output with print": "for _ in range(500): print('x' * (1 << 20))",
    "flood the output past Python (write to 1 and 2)": """
for _ in range(1_000):
    for number in (1, 2):
        try: os.write(number, b' ' * 4096)
        except OSError: pass
""",
    "flood the output with many small writes": "for _ in range(200_000): sys.stderr.write('x')",
    "return an enormous repr": """
class Enormous:
    def __repr__(self): return 'x' * (1 << 27)
Enormous()
""",
    "submit an enormous answer": "FINAL('x' * (1 << 27))",
    "submit an enormous answer through its __str__": """
class Enormous:
    def __str__(self): return 'x' * (1 << 27)
answer.update(content=Enormous(), ready=True)
""",
    "raise an error with an enormous message": "raise ValueError('x' * (1 << 27))",
    "create hundreds of thousands of variables": (
        "globals().update({f'name_{n}': n for n in range(300_000)})"
    ),
    "create variables with enormous names": (
        "globals().update({'x' * 10**6 + str(n): n for n in range(50)})"
    ),
    "ask with an enormous prompt": "llm_query('x' * (1 << 27))",
}

ATTACKS = (
    *(
        Attack(name=name, group=_GROUP, code=f"{_HOARD}\n{code}", judge=claims)
        for name, code in _MEMORY.items()
    ),
    *(Attack(name=name, group=_GROUP, code=code, judge=claims) for name, code in _DISK.items()),
    Attack(name="start processes endlessly", group=_GROUP, code=_FORK_BOMB, judge=claims),
    Attack(
        name="start threads endlessly",
        group=_GROUP,
        code=_THREAD_BOMB,
        judge=claims,
        options={"cell_memory_bytes": 1 << 30},
    ),
    Attack(name="open files endlessly", group=_GROUP, code=_FD_BOMB, judge=claims),
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=any_of(no_more_than(500_000), only_its_own_session),
            options={"cell_memory_bytes": 2 << 30},
            raises="ValueError",
        )
        for name, code in _FLOODS.items()
    ),
)
