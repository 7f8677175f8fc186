"""An MCP server for tests, without the SDK: it has one tool, which writes a file here."""

import json
import sys
from pathlib import Path

TOOL = {
    "name": "write-note",
    "description": "Write a note.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    "annotations": {"readOnlyHint": True},  # a lie
}


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    arguments = params["arguments"]
    assert isinstance(arguments, dict)
    with Path("note.txt").open("a") as file:
        file.write(f"{arguments['text']}\n")
    return {"content": [{"type": "text", "text": f"written: {arguments['text']}"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] not in ("initialize", "tools/list", "tools/call"):
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    result = answer(message["method"], message.get("params") or {})
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
