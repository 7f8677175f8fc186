"""What takes the place of some modules of the worker where it runs in WebAssembly.

There are no sockets, signals, threads, limits or shared memory in there. Host and worker exchange
the same frames as everywhere; only how bytes travel and how time is noticed is different. These
files run in the sandbox, on its Python 3.14, and import nothing but that and the worker.
"""

__all__: list[str] = []
