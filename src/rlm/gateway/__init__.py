"""The MCP gateway: files for clients elsewhere, in bounded pieces, on the record."""

__all__: list[str] = []
