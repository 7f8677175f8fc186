"""Promises of a session that monty does not keep: by itself, and together with `local`."""

__all__ = ["LACKS", "LACKS_WITH_LOCAL"]

_GLOBALS = "monty has no globals()"
_STATEMENTS = "monty has no `del` and no inheritance"
_THREADS = "monty has no threads"
_TASKS = "of asyncio monty has gather, run and sleep only"
_LIBRARY = "monty has a part of the standard library only"
_FILES = "monty has no files and no system"
_MEMORY = "what a worker may hold is fixed before its contexts come"
_SURROGATES = "texts in monty hold no lone surrogates"
_PLAIN = "functions and values in monty have few attributes and constructors"

LACKS_WITH_LOCAL: dict[str, str] = {
    "a regular expression that explodes": (
        "monty's regular expressions do not explode, so there is nothing to interrupt"
    ),
    "a stack overflow in C": (
        "the cell is an ordinary error in monty; if it kills full Python too, the session stays"
    ),
}
"""Both are about cells that do no harm in monty, where the suite expects some."""

LACKS: dict[str, str] = {
    **LACKS_WITH_LOCAL,
    "names: every published name": _GLOBALS,
    "names: tools are there by name": _PLAIN,
    "names: call functions, finals and tools are restored": _GLOBALS,
    "names: for every other name": _GLOBALS,
    "names: the namespace is the real __main__": _LIBRARY,
    "names: new, changed and deleted variables": _FILES,
    "cells: whatever a cell raises": _STATEMENTS,
    "cells: a cell that raises keeps the variables": _GLOBALS,
    "cells: input() fails": "monty has no input()",
    "cells: redirected output": _LIBRARY,
    "calls: pictures arrive": _PLAIN,
    "calls: a tool that fails": _PLAIN,
    "tools: threads": _THREADS,
    "concurrency: twenty threads": _THREADS,
    "concurrency: gathered calls": _TASKS,
    "concurrency: every call function": _TASKS,
    "concurrency: many threads": _THREADS,
    "concurrency: calls are nested": _THREADS,
    "concurrency: a call that is cancelled": _TASKS,
    "concurrency: threads left behind": _THREADS,
    "surrogate": _SURROGATES,
    **{
        f"snippets: {name}": _LIBRARY
        for name in (
            *("csv", "sqlite3 in memory", "datetime and zoneinfo", "statistics", "dataclasses"),
            *("difflib", "textwrap", "decimal and fractions", "gzip, bz2", "pickle and copy"),
            *("inspect.getsource", "string, unicodedata", "xml and", "time, uuid", "logging"),
            *("heapq, bisect", "ast and pprint", "contextlib", "urllib.parse"),
            "the standard library can be imported",
        )
    },
    "snippets: asyncio": _TASKS,
    "snippets: threads": _THREADS,
    "snippets: typing and enum": _STATEMENTS,
    "snippets: os and platform": _FILES,
    "snippets: the working folder": _FILES,
    "limits: a hoard of strings": _STATEMENTS,
    "limits: one large allocation": "monty has no bytearray",
    "limits: a context does not count": _MEMORY,
    "limits: a full disk": _FILES,
    "limits: too many processes": _FILES,
    "interrupts: a deadlock": _THREADS,
    "interrupts: a thread that is joined": _THREADS,
    "interrupts: a pool whose workers": _THREADS,
    "interrupts: a queue": _LIBRARY,
    "interrupts: a select": _LIBRARY,
    "interrupts: the __str__": "monty can't wait for the host inside of str()",
    "recovery: os._exit": _FILES,
    "recovery: a segmentation fault": _LIBRARY,
    "recovery: an abort": _FILES,
    "recovery: variables, modules and files": _GLOBALS,
}
"""Without promotion. With it, all of these run, in `local`."""
