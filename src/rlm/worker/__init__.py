"""The program that runs inside every sandbox: a Python REPL at the end of a byte stream.

Standard library only, Python 3.9 or newer, nothing of `rlm` imported: a sandbox loads this folder
as the package `rlm_worker`. The host imports it as `rlm.worker` for the frame format (`wire`) and
the published REPL names (`namespace`). Read `main.py` first, then `runner.py`. Modules that are
slow to import (`typing`, `asyncio`, `inspect`) are not imported before they are needed.
"""

__all__: list[str] = []
