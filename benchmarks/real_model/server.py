"""Serve a local model over OpenAI's interface, with continuous batching.

    python -m benchmarks.real_model.server MODEL.gguf --port 8000 --slots 64

Needs torch, gguf and tokenizers. `/v1/chat/completions` with and without `stream`, `/v1/models`,
and `/stats`. Replies are greedy: temperature and other sampling are ignored.
"""

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from benchmarks.real_model.batching import Batcher, Generation, Model, Step, computed

__all__ = ["Engine", "Tokenizer", "make_app"]

DEFAULT_MAX_TOKENS = 1_024
MAX_BODY_BYTES = 16 << 20


class Tokenizer(Protocol):
    """What turns chats into tokens and back; see `qwen2.Tokenizer`."""

    ends: set[int]

    def prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class Engine:
    """A thread that runs the model step by step while there is work."""

    def __init__(self, model: Model, batcher: Batcher) -> None:
        self._model, self._batcher = model, batcher
        self._changed = threading.Condition()
        self._ended: dict[int, Callable[[BaseException | None], None]] = {}
        self._closed = False
        self.stats = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "steps": 0}
        self.stats["most_in_a_step"] = 0
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    async def generate(self, prompt: list[int], max_tokens: int) -> Generation:
        """Return a finished request; if the caller is cancelled, so is the request."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        generation = Generation(prompt, max_tokens)

        def settle(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        with self._changed:
            self._batcher.add(generation)
            self._ended[id(generation)] = lambda error: _in_loop(loop, settle, error)
            self._changed.notify()
        try:
            await done
        finally:
            with self._changed:
                self._batcher.cancel(generation)
                self._ended.pop(id(generation), None)
        return generation

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                step = self._batcher.plan()
                while not step and not self._closed:
                    self._changed.wait()
                    step = self._batcher.plan()
                if self._closed:
                    return
            self._take(step)

    def _take(self, step: Step) -> None:
        try:
            tokens = computed(self._model, step)
        except Exception as error:  # noqa: BLE001 - whatever the model raises answers its requests
            self._fail(step, error)
            return
        with self._changed:
            self._count(step)
            for generation in self._batcher.finish(step, tokens):
                self.stats["requests"] += 1
                self.stats["completion_tokens"] += len(generation.produced)
                if (settle := self._ended.pop(id(generation), None)) is not None:
                    settle(None)

    def _count(self, step: Step) -> None:
        self.stats["steps"] += 1
        self.stats["prompt_tokens"] += sum(each.end - each.begin for each in step.readings)
        most = max(self.stats["most_in_a_step"], len(step.decodings))
        self.stats["most_in_a_step"] = most

    def _fail(self, step: Step, error: BaseException) -> None:
        with self._changed:
            for generation in [*step.decodings, *(each.of for each in step.readings)]:
                self._batcher.cancel(generation)
                if (settle := self._ended.pop(id(generation), None)) is not None:
                    settle(error)


def _in_loop(
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[BaseException | None], None],
    error: BaseException | None,
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, error)


# -- HTTP -----------------------------------------------------------------------------------------


def make_app(engine: Engine, tokenizer: Tokenizer, name: str) -> web.Application:
    """Return the server; `name` is what the model is called."""

    async def complete(request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            messages = [
                (str(each["role"]), _text(each.get("content"))) for each in body["messages"]
            ]
            asked = body.get("max_completion_tokens") or body.get("max_tokens")
            max_tokens = int(asked or DEFAULT_MAX_TOKENS)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _refused(f"the body is no chat completion: {error!r}", "invalid_request")
        prompt = await asyncio.to_thread(tokenizer.prompt, messages)
        try:
            generation = await engine.generate(prompt, max_tokens)
        except ValueError as error:
            return _refused(str(error), "context_length_exceeded")
        except Exception as error:  # noqa: BLE001 - the model failed, not the server
            return _refused(f"the model failed: {error!r}", "server_error", status=500)
        reply = _reply(generation, tokenizer.decode(generation.produced), name)
        return _streamed(reply) if body.get("stream") is True else web.json_response(reply)

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def stats(request: web.Request) -> web.Response:
        return web.json_response(engine.stats)

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/stats", stats)
    return app


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return "" if content is None else str(content)


def _refused(message: str, code: str, status: int = 400) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


def _reply(generation: Generation, text: str, name: str) -> dict[str, Any]:
    prompt, produced = len(generation.prompt), len(generation.produced)
    message = {"role": "assistant", "content": text}
    reason = generation.finish_reason
    return {
        "id": f"chatcmpl-{id(generation):x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": produced,
            "total_tokens": prompt + produced,
        },
    }


def _streamed(reply: dict[str, Any]) -> web.Response:
    """Return the whole reply as a stream of one piece."""
    (choice,) = reply["choices"]
    base = {**reply, "object": "chat.completion.chunk"}
    del base["usage"]
    piece = {"index": 0, "delta": choice["message"], "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    rows = [
        {**base, "choices": [piece]},
        {**base, "choices": [end]},
        {**base, "choices": [], "usage": reply["usage"]},
    ]
    lines = "".join(f"data: {json.dumps(row)}\n\n" for row in rows)
    return web.Response(text=lines + "data: [DONE]\n\n", content_type="text/event-stream")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file of a Qwen2 model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--slots", type=int, default=64, help="requests in work at once")
    parser.add_argument("--window", type=int, default=32_768, help="tokens of prompt and reply")
    parser.add_argument("--step-tokens", type=int, default=4_096, help="of prompts, in a step")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    from benchmarks.real_model.qwen2 import load

    began = time.monotonic()
    model, tokenizer = load(
        options.model, slots=options.slots, window_tokens=options.window, device=options.device
    )
    window = model.shape.window_tokens
    print(f"loaded in {time.monotonic() - began:.0f} s, window {window}", flush=True)
    batcher = Batcher(
        slots=options.slots,
        window_tokens=window,
        ends=tokenizer.ends,
        step_tokens=options.step_tokens,
    )
    app = make_app(Engine(model, batcher), tokenizer, options.model.stem)
    web.run_app(app, host=options.host, port=options.port, handler_cancellation=True, print=None)


if __name__ == "__main__":
    main()
