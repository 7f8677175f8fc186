"""Files: reading, listing, writing and removing what belongs to the host."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import (
    any_of,
    claims,
    is_hosts_file,
    leaks,
    litters,
    shows_status_of,
    touched,
)

__all__ = ["ATTACKS"]

_GROUP = "files"

_READING = {
    "read a secret file next to the host program": "print(open(target['secret_file']).read())",
    "read it with a raw openat": """
number = syscall('openat', -100, target['secret_file'].encode(), 0, 0)
print(os.read(number, 1000))
""",
    "read it through a symbolic link": """
os.symlink(target['secret_file'], 'link')
print(open('link').read())
""",
    "read it through a hard link": """
os.link(target['secret_file'], 'hard')
print(open('hard').read())
""",
    "read it through /proc/self/root": """
print(open('/proc/self/root' + target['secret_file']).read())
""",
    "read it by climbing out of the working folder": """
print(open('../' * 30 + target['secret_file'].lstrip('/')).read())
""",
    "read it through the root of process 1": """
print(open('/proc/1/root' + target['secret_file']).read())
""",
    "read it through the root of another process": """
print(open(f"/proc/{target['victim']['pid']}/root{target['secret_file']}").read())
""",
    "read it through a file handle (open_by_handle_at)": """
if target['secret_handle'] is None:
    raise NotImplementedError('this file system has no handles')
here = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
number = syscall('open_by_handle_at', here, bytes.fromhex(target['secret_handle']), 0)
print(os.read(number, 1000))
""",
    "import a module from next to the host program": """
sys.path.insert(0, target['host_folder'])
import rlm_check_neighbour
print(rlm_check_neighbour.KEY)
""",
    "find it by walking the temporary folders": """
import tempfile
for top in {tempfile.gettempdir(), os.path.dirname(os.getcwd()), '/tmp', '/var/tmp'}:
    for entry in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        path = os.path.join(top, entry, 'secret.txt')
        if entry.startswith('rlm-') and os.path.exists(path):
            print(open(path).read())
""",
}

_WRITING = {
    "create a file in a folder of the host": (
        "open(target['host_folder'] + '/open/made.txt', 'w').write('x')"
    ),
    "change a file of the host": (
        "open(target['host_folder'] + '/precious/file.txt', 'a').write('x')"
    ),
    "remove a file of the host": "os.unlink(target['host_folder'] + '/precious/file.txt')",
    "move a file of the host": """
os.rename(target['host_folder'] + '/precious/file.txt', target['host_folder'] + '/open/moved.txt')
""",
    "change the permissions of a file, then the file": """
path = target['host_folder'] + '/precious/file.txt'
os.chmod(path, 0o777)
open(path, 'w').write('x')
""",
    "create a file in /dev/shm": "open('/dev/shm/' + target['shared_name'], 'w').write('x')",
    "create a System V shared memory segment": """
number = library().shmget(target['shared_key'], 4096, 0o1666)
denied(OSError('shmget')) if number < 0 else print(number)
""",
}

_LINKS = """
os.symlink(target['host_folder'] + '/precious', 'folder')
os.symlink(target['host_folder'] + '/precious/file.txt', 'file')
"""

_DEEP = """
os.mkdir(target['shared_name'])
os.chdir(target['shared_name'])
for _ in range(1_200):
    os.mkdir('d')
    os.chdir('d')
"""

_LOCKED = """
os.mkdir(target['shared_name'])
os.mkdir(target['shared_name'] + '/inner')
open(target['shared_name'] + '/inner/file', 'w').close()
os.chmod(target['shared_name'] + '/inner', 0)
os.chmod(target['shared_name'], 0)
"""

_DEVICES = """
import glob
paths = ['/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/fuse', '/dev/net/tun', '/dev/loop-control']
for path in sorted(glob.glob('/dev/*')):
    try:
        if stat.S_ISBLK(os.stat(path).st_mode): paths.append(path)
    except OSError: pass
for path in paths:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        got('opened', path)
    except OSError as error: denied(error)
"""

ATTACKS = (
    Attack(
        name="read /etc/passwd",
        group=_GROUP,
        code="with open('/etc/passwd') as file: inode(file.fileno()); print(len(file.read()))",
        judge=is_hosts_file("/etc/passwd"),
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=leaks, shares=True)
        for name, code in _READING.items()
    ),
    Attack(
        name="list the root folder",
        group=_GROUP,
        code="print(len(os.listdir('/')))\ninode('/')",
        judge=is_hosts_file("/"),
    ),
    Attack(
        name="list the home folder",
        group=_GROUP,
        code="print(len(os.listdir(target['home'])))\ninode(target['home'])",
        judge=is_hosts_file(),
    ),
    Attack(
        name="see that a path exists (stat)",
        group=_GROUP,
        code="inode('/etc/passwd')",
        judge=is_hosts_file("/etc/passwd"),
        success="visible",
    ),
    Attack(
        name="see the size and time of a file (stat)",
        group=_GROUP,
        code="""
status = os.stat(target['secret_file'])
print('status:', status.st_size, status.st_mtime_ns)
""",
        judge=shows_status_of,
        success="visible",
    ),
    Attack(
        name="see where a link points (readlink)",
        group=_GROUP,
        code="print(os.readlink(target['host_folder'] + '/link'))",
        judge=leaks,
        success="visible",
    ),
    Attack(
        name="see how full a disk of the host is (statfs)",
        group=_GROUP,
        code="got('sees', os.statvfs(target['host_folder']).f_bavail, 'blocks')",
        judge=claims,
        success="visible",
    ),
    *(
        Attack(name=name, group=_GROUP, code=code, judge=touched, shares=True)
        for name, code in _WRITING.items()
    ),
    Attack(name="make the host's cleanup follow a link", group=_GROUP, code=_LINKS, judge=touched),
    Attack(
        name="leave a folder that is nested too deeply to remove",
        group=_GROUP,
        code=_DEEP,
        judge=litters,
    ),
    Attack(name="leave a folder that no one can enter", group=_GROUP, code=_LOCKED, judge=litters),
    Attack(
        name="create a device and open it (mknod)",
        group=_GROUP,
        code="""
os.mknod('device', stat.S_IFCHR | 0o666, os.makedev(1, 5))
with open('device', 'rb', 0) as device: got('read', device.read(1), 'from a device it made')
""",
        judge=claims,
    ),
    Attack(name="open a device of the machine", group=_GROUP, code=_DEVICES, judge=claims),
    Attack(
        name="open a kernel setting for writing",
        group=_GROUP,
        code="""
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/power/state'):
    try:
        os.close(os.open(path, os.O_WRONLY))
        got('opened', path)
    except OSError as error: denied(error)
""",
        judge=claims,
    ),
    Attack(
        name="import rlm itself",
        group=_GROUP,
        code="""
sys.path.append(target['rlm_folder'])
import rlm.errors
got(rlm.errors.__file__)
""",
        judge=any_of(claims),
    ),
)
