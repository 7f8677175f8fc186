"""The MCP gateway.

It shows files to clients elsewhere, in bounded pieces, and records what was read.
"""

__all__: list[str] = []
