"""Replacements for some modules of the worker where it runs in WebAssembly.

There are no sockets, signals, threads, limits or shared memory. Host and worker exchange the same
frames as elsewhere, but bytes travel through a file, and interrupts are polled. These files run
in the sandbox, on its Python 3.14, and import only its standard library and the worker.
"""

__all__: list[str] = []
