"""Ways to the sample servers, and a model that runs cells against them."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm import RLM, ScriptedClient
from rlm.tools import McpServer, mcp

HERE = Path(__file__).parent


def sample(**options: Any) -> McpServer:
    """The sample as a child process."""
    return mcp([sys.executable, str(HERE / "sample.py")], **options)


def hostile(scene: str, **options: Any) -> McpServer:
    return mcp([sys.executable, "-S", "-E", str(HERE / "hostile.py"), scene], **options)


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


class Asked:
    """What came of a run: its answer, what the model was shown, and each cell."""

    def __init__(self, model: ScriptedClient, result: Any) -> None:
        self.answer = result.answer
        self.result = result
        texts = [str(request.messages[-1].content) for request in model.requests[1:]]
        self.outputs = texts
        self.prompt = str(model.requests[0].messages[0].content)
        self.lines = [line for line in self.prompt.splitlines() if line.startswith("- `")]

    def line_of(self, name: str) -> str:
        (line,) = [each for each in self.lines if each.startswith(f"- `{name}(")]
        return line

    def failure(self, index: int) -> str:
        """The ToolFailed line that a cell ended with."""
        (line,) = [x for x in self.outputs[index].splitlines() if x.startswith("ToolFailed: ")]
        return line.removeprefix("ToolFailed: ")


def run(tools: Any, *cells: str, **options: Any) -> Asked:
    """Cells in a real session, one a step; the last one submits."""
    model = ScriptedClient([cell(each) for each in cells])
    with RLM(model, tools=tools, **options) as rlm:
        return Asked(model, rlm.ask("What is there?"))


@contextmanager
def served(app: Callable[..., Awaitable[None]]) -> Generator[str, None, None]:
    """An ASGI application in a real uvicorn, in a thread; its address."""
    import uvicorn

    config = uvicorn.Config(
        app, port=0, log_level="critical", lifespan="on", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something holds that other processes bring about."""
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")
