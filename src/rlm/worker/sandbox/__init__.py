"""The Linux layers that keep model-written code inside its worker.

All is done with system calls through ctypes: no compiled part, no dependency, no root needed.
Read `layers.py` first: it decides which layers this machine offers and puts them on, in order.
"""

__all__: list[str] = []
