"""The Linux layers that keep model-written code inside its worker.

Everything uses system calls through ctypes: no compiled parts, no dependencies, no need for root.
Read `layers.py` first: it decides which layers to use on this machine and applies them in order.
"""

__all__: list[str] = []
