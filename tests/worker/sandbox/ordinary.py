"""What cells do all the time and must be able to: code, and the `result` it sets."""

from typing import Any

ORDINARY = {
    "modules": """
names = '''
abc argparse ast base64 bisect calendar cmath collections configparser contextlib
copy csv dataclasses datetime decimal difflib email.message enum fractions functools gzip hashlib
heapq html.parser http.client inspect io itertools json lzma math multiprocessing.pool numbers
operator pathlib pickle platform pprint queue random re secrets shelve shlex statistics string
struct tarfile textwrap timeit typing unicodedata unittest urllib.parse uuid xml.etree.ElementTree
zipfile zlib'''
for name in names.split():
    __import__(name)
result = "imported"
""",
    "extension modules": "import _bisect, ssl, _queue; result = ssl.OPENSSL_VERSION[:7]",
    "time zones": (
        "import zoneinfo, datetime\n"
        'there = zoneinfo.ZoneInfo("Europe/Zurich")\n'
        "result = datetime.datetime(2024, 7, 1, tzinfo=there).utcoffset().seconds"
    ),
}
ANYWHERE = {
    "threads": """
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    result = sum(pool.map(lambda number: number * number, range(10)))
""",
    "asyncio": """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: 42)
result = asyncio.run(main())
""",
    "sqlite": """
import sqlite3
result = sqlite3.connect(":memory:").execute("select 6 * 7").fetchone()[0]
""",
    "callbacks": """
import ctypes
numbers = (ctypes.c_int * 3)(3, 1, 2)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
ctypes.CDLL(None).qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
result = list(numbers)
""",
    "random bytes": "result = len(os.urandom(8))",
    "a handler": "import signal; result = signal.signal(signal.SIGUSR1, signal.SIG_IGN) == 0",
    "a signal to itself": "os.kill(os.getpid(), 0); result = 'sent'",
    "time": "import time; time.sleep(0.001); result = time.time() > 1e9",
    "a pipe": "r, w = os.pipe(); os.write(w, b'x'); result = os.read(r, 5).decode()",
    "a socket pair": """
import socket
a, b = socket.socketpair()
a.settimeout(5); b.settimeout(5)
a.sendall(b"hello"); result = b.recv(5).decode()
""",
    "shared memory of its own": "import mmap; m = mmap.mmap(-1, 8192); m[0] = 7; result = m[0]",
    "limits can be asked": "import resource; result = resource.getrlimit(resource.RLIMIT_CORE)[1]",
}
WITH_SCRATCH = {
    "a file": "open('a.txt', 'w').write('text'); result = open('a.txt').read()",
    "a temporary file": """
import tempfile
with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=folder) as file:
    file.write(b"abc"); file.flush(); result = os.stat(file.name).st_size
""",
    "a copy with its times": """
import shutil
open("one", "w").write("x" * 9); os.utime("one", (1, 1)); os.chmod("one", 0o600)
shutil.copy2("one", "two"); os.rename("two", "three"); result = int(os.stat("three").st_mtime)
""",
    "a folder called tmp": """
open("/tmp/b", "w").write("x")
result = os.listdir("/sandbox").count("b")
""",
    "a database": """
import sqlite3
with sqlite3.connect("data.db") as db:
    db.execute("create table t (n)"); db.execute("insert into t values (5)")
    result = db.execute("select n from t").fetchone()[0]
""",
    "where it is": "result = os.getcwd()",
}
RESULTS: dict[str, Any] = {
    "modules": "imported",
    "extension modules": "OpenSSL",
    "time zones": 7200,
    "threads": 285,
    "asyncio": 42,
    "sqlite": 42,
    "callbacks": [1, 2, 3],
    "random bytes": 8,
    "a handler": True,
    "a signal to itself": "sent",
    "time": True,
    "a pipe": "x",
    "a socket pair": "hello",
    "shared memory of its own": 7,
    "limits can be asked": 0,
    "a file": "text",
    "a temporary file": 3,
    "a copy with its times": 1,
    "a folder called tmp": 1,
    "a database": 5,
    "where it is": "/sandbox",
    "devices": [1, 4],
}
DEVICES = {
    "devices": """
result = [open("/dev/null", "w").write("x"), len(open("/dev/urandom", "rb").read(4))]
"""
}
