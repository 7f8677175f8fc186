"""The bytes of a text where they lie: of ASCII, CPython keeps exactly what travels."""

import sys

__all__ = ["ascii_in_place"]

_LEAST_CHARS = 1 << 20
"""Below this a copy takes less time than `ctypes` takes to load."""


def ascii_in_place(text: str) -> memoryview | None:
    """A view of the text, which lives as long as that is used; None if its bytes must be made.

    With it a hash and a system call can go through a gigabyte without holding the interpreter up.
    """
    if len(text) < _LEAST_CHARS or not text.isascii() or sys.implementation.name != "cpython":
        return None
    import ctypes

    size = ctypes.c_ssize_t()
    find = ctypes.pythonapi.PyUnicode_AsUTF8AndSize  # Of ASCII it makes no copy.
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t)]
    address = find(text, ctypes.byref(size))
    data = (ctypes.c_char * size.value).from_address(address)
    vars(data)["text"] = text  # It must not go before its bytes do.
    return memoryview(data).cast("B").toreadonly()
