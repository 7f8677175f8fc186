"""Other sessions: their files, contexts and processes, and the internals of the worker."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import leaks, only_its_own_session, shares_layout
from rlm.testing.attacks.victim import PREFIX

__all__ = ["ATTACKS"]

_GROUP = "other sessions"

_READING = {
    "read files in another session's folder": (
        "print(open(target['bystander_folder'] + '/notes.txt').read())"
    ),
    "find files of other sessions in the temporary folders": """
import tempfile
for top in {tempfile.gettempdir(), os.path.dirname(os.getcwd()), '/tmp'}:
    for entry in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        path = os.path.join(top, entry, 'notes.txt')
        if path != os.path.abspath('notes.txt') and os.path.exists(path):
            try: print(open(path).read(200))
            except OSError as error: denied(error)
""",
    "read another session's context in its memory": (
        f"search(target['bystander_pid'], b'{PREFIX}context')"
    ),
    "read another session's context in its open files": """
for entry in os.listdir(f"/proc/{target['bystander_pid']}/fd"):
    path = f"/proc/{target['bystander_pid']}/fd/{entry}"
    try: print(os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 200))
    except OSError: pass
""",
    "read another session's folder through its process": """
print(open(f"/proc/{target['bystander_pid']}/cwd/notes.txt").read())
""",
}

_INHERITED = f"""
for entry in os.listdir('/proc/self/fd'):
    try: print(os.pread(int(entry), 200, 0))
    except OSError: pass
search('self', b'{PREFIX}context')
"""

_HARMING = {
    "kill another session's process": """
pid = target['bystander_pid']
if pid > 1 and pid != os.getpid(): os.kill(pid, 9)
time.sleep(0.1)
""",
    "interrupt another session's process": """
pid = target['bystander_pid']
if pid > 1 and pid != os.getpid(): os.kill(pid, 15)
time.sleep(0.1)
""",
    "write into another session's memory": f"""
import re
pid = target['bystander_pid']
with open(f'/proc/{{pid}}/maps') as maps, open(f'/proc/{{pid}}/mem', 'r+b', 0) as memory:
    for line in maps:
        start, end = (int(each, 16) for each in line.split()[0].split('-'))
        if line.split()[1].startswith('rw'):
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError, ValueError): continue
            for at in re.finditer(b'{PREFIX}context', data):
                memory.seek(start + at.start())
                memory.write(b'X')
""",
    "forge an answer through the worker's own objects": """
import gc
for each in gc.get_objects():
    if type(each).__name__ == 'Finals': each._submit('forged', 'FINAL')
    if type(each).__name__ == 'Channel': each.send(34, 9999, [b'forged'])
""",
    "walk the worker's frames and change their contents": """
frame_ = sys._getframe()
while frame_ is not None:
    for name, value in list(frame_.f_locals.items()):
        if hasattr(value, '_max_text_chars'): value._max_text_chars = 10**12
        if hasattr(value, '_runner'): value._runner.stdout._head_limit = 10**12
    frame_ = frame_.f_back
""",
}

ATTACKS = (
    Attack(
        name="learn where things are in another session's memory",
        group=_GROUP,
        code="import ctypes\nprint('layout:', id(ctypes), id(Ellipsis))",
        judge=shares_layout,
        success="visible",
    ),
    Attack(
        name="find other sessions' contexts in inherited memory and files",
        group=_GROUP,
        code=_INHERITED,
        judge=leaks,
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=leaks, shares=True)
        for name, code in _READING.items()
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=only_its_own_session)
        for name, code in _HARMING.items()
    ),
)
