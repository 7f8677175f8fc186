"""A process that is given shared contexts, as a worker is; started by `test_shared.py`.

Arguments: the worker's folder, the tests' folder, what to do, and the contexts as JSON.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import pickle
import random
import re
import sys
import time
from pathlib import Path
from typing import Any


def load_package(name: str, folder: str) -> None:
    """Import the worker the way sandboxes do: without the rest of rlm."""
    place = Path(folder) / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def private_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    assert found is not None
    return 1024 * int(found[1])


def main() -> None:
    worker, tests, what, contexts = sys.argv[1:]
    load_package("rlm_worker", worker)
    sys.path.insert(0, tests)
    shared: Any = importlib.import_module("rlm_worker.shared")
    assert shared.is_supported(), "this Python does not pass the self-test"
    before = private_bytes()
    values = []
    for fd, layout in json.loads(contexts):
        values.append(shared.value_of(fd, layout))
        os.close(fd)
    globals()[what](values, before)


def compare(values: list[Any], _: int) -> None:
    """Compare with what the parent says they are; also after a collection, and in a fork."""
    alike: Any = importlib.import_module("alike")
    expected = pickle.load(sys.stdin.buffer)
    for _round in range(2):
        for made, plain in zip(values, expected):  # noqa: B905 (not in 3.9)
            assert made == plain
            found = alike.differences(made, plain)
            assert not found, found
        gc.collect()
    child = os.fork()
    if not child:
        failed = any(alike.differences(*pair) for pair in zip(values, expected))  # noqa: B905
        os._exit(3 if failed else 0)
    assert os.waitpid(child, 0)[1] == 0
    values.clear()
    gc.collect()
    print("alike")


def measure(values: list[Any], before: int) -> None:
    """Touch every character; how much private memory that took."""
    (value,) = values
    if isinstance(value, str):
        seen = value.count("e") + len(value)
    else:
        seen = sum(len(text) + text.count("e") for text in value)
    print(json.dumps([seen, private_bytes() - before]))


def stress(values: list[Any], _: int) -> None:
    """Random work with shared texts beside ordinary ones, for as many seconds as stdin says."""
    alike: Any = importlib.import_module("alike")
    seconds, seed = json.load(sys.stdin)
    chance = random.Random(seed)
    shared_texts = [
        text for value in values for text in ([value] if isinstance(value, str) else value)
    ]
    pairs = [(text, "".join(list(text))) for text in shared_texts]
    kept: dict[Any, Any] = {}
    rounds = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        made, plain = chance.choice(pairs)
        for name in chance.sample(list(alike.TEXT), 8):
            do = alike.TEXT[name]
            assert alike._result(do, made) == alike._result(do, plain), name
        other, same = chance.choice(pairs)
        cut = chance.randrange(len(plain) + 1)
        assert made[cut:] + other == plain[cut:] + same
        assert (made < other, made == other) == (plain < same, plain == same)
        kept[made] = kept[other[cut:]] = [made, other, {made: other}]
        assert kept[plain][1] == same
        if len(kept) > 500:
            kept.clear()
        if not rounds % 200:
            gc.collect()
        rounds += 1
    print(rounds)


def overwrite(values: list[Any], _: int) -> None:
    """Try to make the pages writable, then write into them anyway: the end of this process."""
    (value,) = values
    address = id(value) + sys.getsizeof(value) - len(value) - 1
    page = address // 4096 * 4096
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert value[0] == "a"
    print(protect(page, 4096, 3), ctypes.get_errno(), flush=True)
    ctypes.memset(address, 66, 1)
    print("it was written")


if __name__ == "__main__":
    main()
