"""The Linux layers that keep model-written code inside its worker.

Everything uses system calls through ctypes: no compiled part, no dependency, no root needed.
Read `layers.py` first: it decides which layers this machine offers and applies them, in order.
"""

__all__: list[str] = []
