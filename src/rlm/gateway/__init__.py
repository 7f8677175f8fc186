"""The MCP gateway.

Files for clients elsewhere, in bounded pieces, with a record of what was read.
"""

__all__: list[str] = []
