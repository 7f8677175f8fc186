"""Measure this interpreter beside those of dspy: starting, a large variable, tools, many at once.

    python benchmark.py                 # what is installed: Deno's only if `dspy[deno]` is

Prints a table in Markdown. Each figure is the median of several rounds, in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy
from dspy.primitives.code_interpreter import CodeInterpreter
from recursivelm_dspy import SandboxInterpreter

MEGABYTES = 50
TOOL_CALLS = 100
AT_ONCE = 8

Factory = Callable[[], CodeInterpreter]


def first_cell(make: Factory) -> float:
    """From nothing to the result of a cell."""
    started = time.perf_counter()
    interpreter = make()
    interpreter.execute("x = 1 + 1\nprint(x)")
    seconds = time.perf_counter() - started
    interpreter.shutdown()
    return seconds


def later_cell(make: Factory) -> float:
    interpreter = make()
    interpreter.execute("x = 1")
    started = time.perf_counter()
    interpreter.execute("print(x + 1)")
    seconds = time.perf_counter() - started
    interpreter.shutdown()
    return seconds


def large_variable(make: Factory) -> float:
    """A cell that measures a text of 50 MB, which is given to it."""
    return _with_large(make, cells=1)


def same_variable_again(make: Factory) -> float:
    """The fifth of five cells with the same text, as in five steps of dspy.RLM."""
    return _with_large(make, cells=5)


def _with_large(make: Factory, cells: int) -> float:
    interpreter = make()
    interpreter.execute("x = 1")
    text = "0123456789" * (MEGABYTES * 100_000)
    for _ in range(cells):
        started = time.perf_counter()
        interpreter.execute("print(len(text))", variables={"text": text})
        seconds = time.perf_counter() - started
    interpreter.shutdown()
    return seconds


def tool_call(make: Factory) -> float:
    """One of a hundred calls of a tool."""
    interpreter = make()
    interpreter.tools["double"] = _double
    interpreter.execute("double(n=1)")
    started = time.perf_counter()
    interpreter.execute(f"for n in range({TOOL_CALLS}):\n    double(n=n)")
    seconds = time.perf_counter() - started
    interpreter.shutdown()
    return seconds / TOOL_CALLS


def _double(n: int) -> int:
    return 2 * n


def many_at_once(make: Factory) -> float:
    """Eight interpreters in eight threads, each from nothing to the result of a cell."""
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda _: first_cell(make), range(AT_ONCE)))
    return time.perf_counter() - started


MEASURES: dict[str, Callable[[Factory], float]] = {
    "start and first cell": first_cell,
    "a later cell": later_cell,
    f"a cell with a {MEGABYTES} MB text": large_variable,
    "the same text, fifth cell": same_variable_again,
    "one tool call": tool_call,
    f"{AT_ONCE} interpreters at once": many_at_once,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    factories: dict[str, Any] = {
        "SandboxInterpreter": SandboxInterpreter,
        "LocalInterpreter (no sandbox)": dspy.LocalInterpreter,
        "PythonInterpreter (Deno)": dspy.PythonInterpreter,
    }
    usable = {}
    for name, make in factories.items():
        try:
            first = first_cell(make)
        except dspy.DSPyError as error:
            print(f"{name}: not measured: {str(error).splitlines()[0]}")
            continue
        usable[name] = make
        print(f"{name}: the first one of this process took {1_000 * first:,.0f} ms")
    print(f"\n| milliseconds | {' | '.join(usable)} |\n|---|{'--:|' * len(usable)}")
    for label, measure in MEASURES.items():
        found = [
            statistics.median(1_000 * measure(make) for _ in range(rounds))
            for make in usable.values()
        ]
        shown = " | ".join(f"{each:,.1f}" if each < 100 else f"{each:,.0f}" for each in found)
        print(f"| {label} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
