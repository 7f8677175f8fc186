"""Whether any Python operation distinguishes text or bytes in shared pages from ordinary ones.

Runs on every Python that a worker may meet (3.9 and newer), in the tests and in child processes.
"""

from __future__ import annotations

import codecs
import copy
import ctypes
import io
import json
import marshal
import pickle
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable
from typing import Any

Operation = Callable[[Any], Any]


def differences(made: Any, plain: Any) -> list[str]:
    """Return the operations with a different result or error for the object in shared pages."""
    found = [] if type(made) is type(plain) else ["type"]
    if isinstance(plain, (list, dict)):
        if list(made) != list(plain):
            return [*found, "items"]
        pairs = [
            (made[key], plain[key])
            for key in (plain if isinstance(plain, dict) else range(len(plain)))
        ]
        return found + [
            f"{at}: {each}" for at, pair in enumerate(pairs) for each in differences(*pair)
        ]
    if not (made == plain and plain == made) or made != plain:
        found.append("==")
    if {plain: 1}.get(made) != 1 or {made: 1}.get(plain) != 1 or len({made, plain}) != 1:
        found.append("key")
    operations = BYTES if isinstance(plain, bytes) else TEXT if isinstance(plain, str) else {}
    return found + [
        name for name, do in operations.items() if _result(do, made) != _result(do, plain)
    ]


def _result(do: Operation, value: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return do(value)
    except (ValueError, TypeError, SyntaxError, LookupError, MemoryError, RecursionError) as error:
        return type(error), str(error)


def _as_attribute(text: str) -> Any:
    holder = type("Holder", (), {})()
    setattr(holder, text, 1)
    return vars(holder), getattr(holder, text), hasattr(holder, text + "x")


def _wide(text: str) -> Any:
    return ctypes.create_unicode_buffer(text, len(text) + 1)[:]


def _written(text: str) -> Any:
    file = io.StringIO()
    file.write(text)
    print(text, text[:1], file=file)
    return file.getvalue(), io.StringIO(text).readlines()


def _in_pieces(text: str) -> Any:
    half = len(text) // 2
    return text[:half], text[half:], text[1:-1], text[::-1], text[::3], list(text[:9]), text[:0]


TEXT: dict[str, Operation] = {
    "hash": hash,
    "len": len,
    "repr": repr,
    "ascii": ascii,
    "str": str,
    "pieces": _in_pieces,
    "first": lambda text: text[0] + text[-1],
    "order": lambda text: (text < "m", text > "m", sorted([text, "m", text + "a"])),
    "cases": lambda text: (text.upper(), text.lower(), text.title(), text.casefold()),
    "kinds": lambda text: (text.isascii(), text.isalpha(), text.isdigit(), text.isidentifier()),
    "printable": lambda text: (text.isprintable(), text.isspace(), text.isupper()),
    "strip": lambda text: (text.strip(), text.lstrip("a"), text.rstrip("\n")),
    "lines": lambda text: (text.splitlines(), text.splitlines(keepends=True)),
    "split": lambda text: (text.split(), text.split("a"), text.rsplit(" ", 2), text.partition("b")),
    "find": lambda text: (
        text.find("b"),
        text.rfind("a"),
        text.count("a"),
        "é" in text,
        "😀" in text,
    ),
    "itself": lambda text: (
        text.find(text),
        text in text + "a",
        text.startswith(text),
        text.count(text),
    ),
    "replace": lambda text: (text.replace("a", "é😀"), text.replace(text, "b"), text.expandtabs()),
    "translate": lambda text: text.translate({97: "😀", 98: None}),
    "pad": lambda text: (text.center(99, "é"), text.zfill(99), text.ljust(99)),
    "concatenate": lambda text: (text + "a", "é" + text, text + text, text * 2, text + "😀"),
    "join": lambda text: (text.join(["a", "b", "😀"]), "-".join([text, text])),
    "format": lambda text: (f"{text}", f"{text!r:>9}", str.format("{0}{0}", text)),
    "utf-8": lambda text: text.encode(),
    "utf-8 again": lambda text: text.encode("utf-8", "surrogatepass"),
    "utf-16": lambda text: text.encode("utf-16", "surrogatepass"),
    "utf-32": lambda text: text.encode("utf-32", "surrogatepass"),
    "latin-1": lambda text: text.encode("latin-1", "replace"),
    "ascii codec": lambda text: (
        text.encode("ascii", "backslashreplace"),
        codecs.encode(text, "rot13"),
    ),
    "re": lambda text: (
        re.findall(r"\w+", text),
        re.sub(r"(?i)[aé😀]", "<>", text),
        re.split(r"\s", text),
    ),
    "as pattern": lambda text: re.search(re.escape(text), "x" + text) is not None,
    "json": lambda text: (json.dumps(text), json.loads(json.dumps({text: [text]}))),
    "json text": lambda text: repr(json.loads(text)),
    "pickle": lambda text: [pickle.loads(pickle.dumps([text, text], each)) for each in range(6)],
    "marshal": lambda text: marshal.loads(marshal.dumps([text, (text,)])),
    "copy": lambda text: (copy.copy(text), copy.deepcopy([text])),
    "whole number": int,
    "number": lambda text: repr(float(text)),
    "eval": lambda text: eval(repr(text)),
    "compile": lambda text: compile(text, text.replace("\0", ""), "exec").co_code,
    "intern": lambda text: (sys.intern(text), sys.intern(text) is sys.intern("".join(list(text)))),
    "attribute": _as_attribute,
    "wide": _wide,
    "files": _written,
    "normalize": lambda text: [unicodedata.normalize(form, text) for form in ("NFC", "NFKD")],
    "hash again": hash,
}

BYTES: dict[str, Operation] = {
    "hash": hash,
    "len": len,
    "repr": repr,
    "pieces": lambda data: (data[1:-1], data[::-1], data[0], data[-1], list(data[:9])),
    "find": lambda data: (data.find(b"a"), data.count(b"\0"), b"ab" in data, data in data + b"a"),
    "concatenate": lambda data: (data + b"a", data * 2, b"-".join([data, data]), data + data),
    "decode": lambda data: (data.decode("latin-1"), data.decode("utf-8", "replace"), data.hex()),
    "buffer": lambda data: (bytes(memoryview(data)), memoryview(data).readonly, bytearray(data)),
    "re": lambda data: (re.findall(rb"\w+", data), re.sub(rb"[ab]", b"<>", data)),
    "pickle": lambda data: [pickle.loads(pickle.dumps([data, data], each)) for each in range(6)],
    "marshal": lambda data: marshal.loads(marshal.dumps([data, (data,)])),
    "copy": lambda data: (copy.copy(data), copy.deepcopy([data]), bytes(data)),
    "whole number": int,
    "number": lambda data: repr(float(data)),
    "files": lambda data: (io.BytesIO(data).readlines(), data.splitlines(), data.upper()),
    "compile": lambda data: compile(data, "data", "exec").co_code,
}
