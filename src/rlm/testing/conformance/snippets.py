"""Typical snippets of model-written code, run as models write them."""

from rlm.testing.conformance.bench import NotOffered, Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("snippets")

_SNIPPETS = {
    "json": r"""
import json
json.loads(json.dumps({'a': [1, None]}))
# {'a': [1, None]}
""",
    "re": r"""
import re
re.findall(r'\b(\w+)@(\w+)', 'ann@x bob@y')
# [('ann', 'x'), ('bob', 'y')]
""",
    "csv": r"""
import csv, io
list(csv.DictReader(io.StringIO('a,b\n1,2\n')))
# [{'a': '1', 'b': '2'}]
""",
    "sqlite3 in memory": r"""
import sqlite3
c = sqlite3.connect(':memory:')
c.execute('create table t(a)')
c.executemany('insert into t values(?)', [(1,), (2,)])
c.execute('select sum(a) from t').fetchall()
# [(3,)]
""",
    "datetime and zoneinfo": r"""
from datetime import datetime
from zoneinfo import ZoneInfo
datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('Europe/Paris')).utcoffset().total_seconds()
# 7200.0
""",
    "statistics": r"""
import statistics
statistics.mean([1, 2, 3]), statistics.median([1, 9])
# (2, 5.0)
""",
    "dataclasses": r"""
from dataclasses import asdict, dataclass
@dataclass
class Row:
    a: int
    b: str = 'x'
asdict(Row(1))
# {'a': 1, 'b': 'x'}
""",
    "collections": r"""
from collections import Counter, defaultdict
d = defaultdict(list); d[1].append(2)
Counter('abca').most_common(1), dict(d)
# ([('a', 2)], {1: [2]})
""",
    "itertools and functools": r"""
import functools, itertools
functools.reduce(lambda a, b: a + b, itertools.chain([1], [2, 3]))
# 6
""",
    "asyncio": r"""
import asyncio
async def f(i): return await asyncio.to_thread(llm_query, str(i))
async def m(): return await asyncio.gather(*[f(i) for i in range(5)])
asyncio.run(m())[:2]
# ['re:0', 're:1']
""",
    "threads": r"""
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: n = sum(map(len, pool.map(llm_query, 'abcd')))
n
# 16
""",
    "difflib": r"""
import difflib
difflib.get_close_matches('appel', ['ape', 'apple'])[0]
# 'apple'
""",
    "textwrap": r"""
import textwrap
textwrap.wrap('aa bb cc', 5)
# ['aa bb', 'cc']
""",
    "decimal and fractions": r"""
from decimal import Decimal
from fractions import Fraction
Decimal('0.1') * 3, Fraction(1, 3)
# (Decimal('0.3'), Fraction(1, 3))
""",
    "hashlib and base64": r"""
import base64, hashlib
hashlib.md5(b'x').hexdigest()[:6], base64.b64encode(b'x')
# ('9dd4e4', b'eA==')
""",
    "gzip, bz2, lzma and zip": r"""
import bz2, gzip, io, lzma, zipfile
b = io.BytesIO()
with zipfile.ZipFile(b, 'w') as z: z.writestr('n', 'z')
[m.decompress(m.compress(b'x')) for m in (gzip, bz2, lzma)], zipfile.ZipFile(b).read('n')
# ([b'x', b'x', b'x'], b'z')
""",
    "pickle and copy": r"""
import copy, pickle
class A: n = 1
pickle.loads(pickle.dumps(A())).n, copy.deepcopy([[1]])
# (1, [[1]])
""",
    "inspect.getsource": r"""
import inspect
def foo():
    return 42
inspect.getsource(foo)
# 'def foo():\n    return 42\n'
""",
    "typing and enum": r"""
import enum, typing
class C(enum.Enum):
    R = 1
C.R, typing.get_args(list[int])
# (<C.R: 1>, (<class 'int'>,))
""",
    "string, unicodedata and html": r"""
import html, string, unicodedata
html.unescape('&amp;'), string.Template('$a').substitute(a=1), unicodedata.name('é')[:5]
# ('&', '1', 'LATIN')
""",
    "xml and html.parser": r"""
import xml.etree.ElementTree as E
from html.parser import HTMLParser
E.fromstring('<a><b>1</b></a>').findtext('b')
# '1'
""",
    "time, uuid, secrets and random": r"""
import random, secrets, time, uuid
time.sleep(0.01)
len(str(uuid.uuid4())), len(secrets.token_hex(2)), time.time() > 0
# (36, 4, True)
""",
    "logging to stderr": r"""
import logging
logging.basicConfig(force=True)
logging.warning('seen')
'logged'
# 'logged'
""",
    "heapq, bisect and math": r"""
import bisect, heapq, math
heapq.nlargest(2, [1, 3, 2]), bisect.bisect([1, 2], 2), math.comb(5, 2)
# ([3, 2], 2, 10)
""",
    "ast and pprint": r"""
import ast, pprint
pprint.pformat(ast.literal_eval('[1, 2]'))
# '[1, 2]'
""",
    "contextlib and warnings": r"""
import contextlib, io, warnings
with contextlib.redirect_stdout(io.StringIO()) as s: print(1)
warnings.simplefilter('ignore')
s.getvalue()
# '1\n'
""",
    "urllib.parse and ipaddress": r"""
import ipaddress, urllib.parse
urllib.parse.urlsplit('http://a/b').path, ipaddress.ip_address('::1').version
# ('/b', 6)
""",
    "os and platform facts": r"""
import os, platform
os.cpu_count() is None or os.cpu_count() > 0, bool(platform.system())
# (True, True)
""",
}
"""Name → a cell; its last line says what it must print."""

_WITH_FILES = {
    "tempfile": r"""
import tempfile
with tempfile.NamedTemporaryFile('w+') as f:
    f.write('x'); f.seek(0); print(f.read())
# x
""",
    "files, pathlib, glob and shutil": r"""
import glob, pathlib, shutil
pathlib.Path('n.txt').write_text('hi')
shutil.copy('n.txt', 'm.txt')
sorted(glob.glob('[mn].txt')), open('m.txt').read()
# (['m.txt', 'n.txt'], 'hi')
""",
    "sqlite3 in a file": r"""
import sqlite3
c = sqlite3.connect('a.db'); c.execute('create table t(a)')
c.execute('insert into t values(1)'); c.commit(); c.close()
sqlite3.connect('a.db').execute('select * from t').fetchall()
# [(1,)]
""",
    "mmap and tarfile": r"""
import io, mmap, tarfile
m = mmap.mmap(-1, 4096); m[:2] = b'ab'
t = tarfile.open(fileobj=io.BytesIO(), mode='w'); t.close(); m[:2]
# b'ab'
""",
}
"""Snippets for environments whose cells have a folder to write to."""

_LEFT_OUT = (
    "antigravity this idlelib turtle turtledemo tkinter nt ntpath winreg msvcrt winsound msilib "
    "ossaudiodev spwd nis lib2to3 pty tty"
)

_IMPORT_ALL = f"""
import importlib, sys, warnings
warnings.simplefilter('ignore')
left_out = set('{_LEFT_OUT}'.split())
missing = []
known = getattr(sys, 'stdlib_module_names', sys.builtin_module_names)  # all since Python 3.10
names = [n for n in sorted(known) if n[0] != '_' and n not in left_out]
for name in names:
    try: importlib.import_module(name)
    except ImportError: missing.append(name)
print(len(names), *missing)
"""


def _add(name: str, snippet: str, needs_files: bool) -> None:
    code, _, shown = snippet.strip().rpartition("\n# ")

    @checks(name)
    async def runs(repl: Repl) -> None:
        if needs_files:
            await _has_a_folder(repl)
        await repl.shows(code, shown)


async def _has_a_folder(repl: Repl) -> None:
    result = await repl.run("open('probe', 'w').close()")
    if result.error is not None:
        raise NotOffered(f"cells have no folder to write to: {result.error.message}")


for _name, _snippet in _SNIPPETS.items():
    _add(_name, _snippet, needs_files=False)
for _name, _snippet in _WITH_FILES.items():
    _add(_name, _snippet, needs_files=True)


@checks("the standard library can be imported", fresh=True)
async def standard_library(repl: Repl) -> str:
    total, *missing = (await repl.show(_IMPORT_ALL)).split()
    if len(missing) > int(total) // 10:
        raise Unmet(f"{len(missing)} of {total} modules are missing: {' '.join(missing)}"[:300])
    return f"{int(total) - len(missing)} of {total} modules" + (
        f"; missing: {' '.join(missing)}" if missing else ""
    )


@checks("the working folder is empty at first, and no key is in os.environ", fresh=True)
async def clean(repl: Repl) -> None:
    listed = await repl.run("import os\nos.listdir('.')")
    if listed.error is None:
        expect(listed.stdout, "[]\n", "what is in the working folder")
    shown = await repl.show("import os\n[n for n in os.environ if 'KEY' in n or 'TOKEN' in n]")
    expect(shown, "[]", "variables with KEY or TOKEN in their names")
