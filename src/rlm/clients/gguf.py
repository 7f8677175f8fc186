"""A model file in GGUF format, run in this process with xllamacpp."""

import asyncio
import gc
import mmap
import struct
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from rlm.clients._adapters import Flow, Threads, each_within, imported, public_line, reply_of
from rlm.clients._chat import ChatDialect
from rlm.clients._fields import parse
from rlm.errors import ConfigError, ModelError
from rlm.messages import ModelInfo, Price, Reply, Request

__all__ = ["GGUFClient", "Header", "read_header"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 1_000_000
MAX_DIMENSIONS = 8
STRING, ARRAY = 8, 9
FORMATS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?")))
FORMATS |= {10: "<Q", 11: "<q", 12: "<d"}
"""The scalar kinds of values, by their number in the file."""


class Header(Struct, frozen=True):
    """What the header of a file says. `window_tokens` is what the model was trained for."""

    name: str
    window_tokens: int | None
    parameters: int


def read_header(path: Path) -> Header:
    """Read a file's header; raise ValueError, with the reason, if it is no complete GGUF file."""
    if path.stat().st_size < len(MAGIC):
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _header(_Reader(data))
        except struct.error:
            raise ValueError(
                "it ends in the middle of its header: is the download complete?"
            ) from None


class _Reader:
    """A position in the bytes that advances as values are read."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def count(self) -> int:
        """Read a number of entries; each takes at least a byte, so wrong numbers are detected."""
        value = int(self.number("<Q"))
        if value > min(len(self.data) - self.at, MAX_ENTRIES * 16):
            raise ValueError("it is damaged: it declares more entries than it has room for")
        return value

    def text(self) -> bytes:
        length = int(self.number("<Q"))
        if length > len(self.data) - self.at:
            raise ValueError("it ends in the middle of its header: is the download complete?")
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def skip_texts(self, count: int) -> None:
        size, at, data = len(self.data), self.at, self.data
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
            if at > size:
                raise ValueError("it ends in the middle of its header: is the download complete?")
        self.at = at

    def value(self, kind: int) -> Any:
        """Read a value of a kind; skip the content of an array."""
        if kind == STRING:
            return self.text().decode("utf-8", "replace")
        if kind != ARRAY:
            return self.number(_format(kind))
        inner, count = int(self.number("<I")), self.count()
        if inner == STRING:
            self.skip_texts(count)
        elif inner == ARRAY:
            raise ValueError("it contains nested arrays, which no model needs")
        else:
            self.at += count * struct.calcsize(_format(inner))
            if self.at > len(self.data):
                raise ValueError("it ends in the middle of its header: is the download complete?")
        return None


def _format(kind: int) -> str:
    if kind not in FORMATS:
        raise ValueError(f"it is damaged: it contains a value of unknown type {kind}")
    return FORMATS[kind]


def _header(reader: _Reader) -> Header:
    if bytes(reader.data[:4]) != MAGIC:
        raise ValueError("it does not begin like a GGUF file")
    reader.at = 4
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"it has GGUF version {version}; only versions 2 and 3 can be read")
    tensors, entries = reader.count(), reader.count()
    facts = {}
    for _ in range(entries):
        key = reader.text().decode("utf-8", "replace")
        facts[key] = reader.value(int(reader.number("<I")))
    shapes = list(_shapes(reader, tensors))
    if shapes and reader.at + max(offset for _, offset in shapes) >= len(reader.data):
        raise ValueError("it is shorter than its table of contents says: is the download complete?")
    return _make_header(facts, sum(size for size, _ in shapes))


def _shapes(reader: _Reader, tensors: int) -> Iterator[tuple[int, int]]:
    """Yield the number of values of each tensor, and its offset after the header."""
    for _ in range(tensors):
        reader.text()
        dimensions = int(reader.number("<I"))
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"it is damaged: it contains a tensor with {dimensions} dimensions")
        size = 1
        for _ in range(dimensions):
            size *= int(reader.number("<Q"))
        reader.number("<I")
        yield size, int(reader.number("<Q"))


def _make_header(facts: dict[str, Any], parameters: int) -> Header:
    architecture = facts.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ValueError("it does not name its model's architecture")
    window = facts.get(f"{architecture}.context_length")
    is_number = isinstance(window, int) and not isinstance(window, bool) and window > 0
    return Header(
        name=str(facts.get("general.name") or ""),
        window_tokens=window if is_number else None,
        parameters=parameters,
    )


LARGEST_WINDOW_TOKENS = 32_768
"""The default limit on the window: its memory is allocated at once, whatever is sent."""

BATCH_TOKENS = 128
"""How many tokens of a prompt are read at a time; between batches, a request can be cancelled."""

PROMPT_CACHE_MIB = 256
CLOSING_SECONDS = 60.0
TINY_PARAMETERS = 3_500_000_000
SMALL_PARAMETERS = 15_000_000_000
FREE = Price(0.0, 0.0)


class GGUFClient:
    """Asks the model in one file. With one slot and a seed, equal requests get equal replies.

    `slots` requests run at once, each with its own window; further ones wait. `projector` is the
    file that lets a model see images. `identity` changes when the file does, so that no cached
    reply of another model is used.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        window_tokens: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        gpu_layers: int | None = None,
        projector: str | Path | None = None,
        profile: Literal["frontier", "standard", "small", "tiny"] | None = None,
    ) -> None:
        self._library = imported("xllamacpp", "gguf", "gguf:…")
        self._path = Path(path).expanduser().absolute()
        header = _check_file(self._path)
        for name, value in (
            ("slots", slots),
            ("window_tokens", window_tokens),
            ("threads", threads),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        trained = header.window_tokens or LARGEST_WINDOW_TOKENS
        self._window = window_tokens or min(trained, LARGEST_WINDOW_TOKENS)
        self._slots = slots
        self._settings = {"threads": threads, "gpu_layers": gpu_layers}
        self._projector = None if projector is None else Path(projector).expanduser().absolute()
        if self._projector is not None:
            _check_file(self._projector)
        facts = self._path.stat()
        self.identity = f"gguf:{facts.st_size}:{facts.st_mtime_ns}:{self._window}:{self._projector}"
        self._info = ModelInfo(self._window, FREE, profile or _profile(header))
        self._threads: Threads[Reply] = Threads(slots, "rlm-gguf")
        self._lock = threading.Lock()
        self._server: Any = None
        self._broken: str | None = None

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        window_tokens: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        gpu_layers: int | None = None,
        projector: str | Path | None = None,
        profile: Literal["frontier", "standard", "small", "tiny"] | None = None,
    ) -> "GGUFClient":
        """Return a client for `gguf:<path>`."""
        return cls(
            model,
            window_tokens=window_tokens,
            slots=slots,
            threads=threads,
            gpu_layers=gpu_layers,
            projector=projector,
            profile=profile,
        )

    def __repr__(self) -> str:
        return f"GGUFClient({self._path.name!r})"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request and return its reply. If late or cancelled, stop its generation."""
        return await reply_of(self.stream(request, timeout_seconds=timeout_seconds))

    def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the text as it is written, then the whole reply."""
        pieces = self._threads.stream(lambda flow: self._answer(flow, request))
        return each_within(pieces, timeout_seconds, request.model, self._late)

    def info(self, model: str) -> ModelInfo:
        """Return the window from the file, and a profile by its size. It costs nothing."""
        return self._info

    async def close(self) -> None:
        """Stop generation and free the memory. A later request loads the model again."""
        self._threads.give_up_all()
        if not await self._threads.ended(CLOSING_SECONDS):
            return  # native code that does not return holds the model, so it cannot be freed
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(_freed, [server])

    def _late(self) -> str:
        return f"; the model works on {self._slots} request{'s' * (self._slots > 1)} at a time"

    # -- in a thread ---------------------------------------------------------------------------

    def _answer(self, flow: Flow, request: Request) -> Reply:
        server = self._loaded()
        streamed, problems = ChatDialect().streamed(), []

        def take(chunk: Any) -> bool:
            """Handle one event of the library's stream; return True to stop it."""
            if isinstance(chunk, dict):
                if chunk.get("error"):
                    problems.append(chunk["error"])
                elif text := streamed.add(chunk):
                    flow.send(text)
            return flow.given_up

        try:
            server.handle_chat_completions(self._body(request), take)
        except (ValueError, RuntimeError) as error:
            raise _refusal(request.model, {"message": str(error), "code": 400}) from None
        if problems:
            raise _refusal(request.model, problems[0])
        if not streamed.complete:
            raise ModelError(f"{request.model}: the reply broke off", retryable=True)
        return streamed.reply()

    def _body(self, request: Request) -> dict[str, Any]:
        """Return the request body.

        It asks for progress while the prompt is read, so that reading can be stopped too. Only
        steps of a run are cached for the next request: reuse changes the order of additions and
        so, now and then, a word.
        """
        body: dict[str, Any] = parse(ChatDialect().body(request, stream=True))
        return {**body, "cache_prompt": request.grows, "return_progress": True}

    def _loaded(self) -> Any:
        """Return the model, loaded by the first caller. A failure to load is remembered."""
        with self._lock:
            if self._broken is not None:
                raise ConfigError(self._broken)
            if self._server is None:
                try:
                    self._server = self._load()
                except RuntimeError as error:
                    self._broken = (
                        f"{self._path.name} could not be loaded: {public_line(str(error))} Is the "
                        "file complete, does this xllamacpp know its architecture, and is there "
                        f"enough memory for a window of {self._window:,} tokens (window_tokens)?"
                    )
                    raise ConfigError(self._broken) from None
            return self._server

    def _load(self) -> Any:
        settings = self._library.CommonParams()
        settings.model.path = str(self._path)
        settings.n_ctx = self._window * self._slots
        settings.n_parallel = self._slots
        settings.n_batch = settings.n_ubatch = BATCH_TOKENS
        settings.cache_ram_mib = PROMPT_CACHE_MIB
        settings.verbosity = -1
        settings.warmup = settings.ui = settings.endpoint_slots = False
        if self._settings["threads"]:
            settings.cpuparams.n_threads = self._settings["threads"]
            settings.cpuparams_batch.n_threads = self._settings["threads"]
        if self._settings["gpu_layers"] is not None:
            settings.n_gpu_layers = self._settings["gpu_layers"]
        if self._projector is not None:
            settings.mmproj.path = str(self._projector)
        with tempfile.TemporaryDirectory(prefix="rlm-gguf-") as folder:
            settings.hostnames = [f"{folder}/http.sock"]
            return self._library.Server(settings)


def _check_file(path: Path) -> Header:
    try:
        return read_header(path)
    except FileNotFoundError:
        raise ConfigError(
            f"the file {path} does not exist; write gguf:/path/to/model.gguf"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path} cannot be used as a GGUF model: {reason}") from None


def _profile(header: Header) -> Literal["standard", "small", "tiny"]:
    """Return the profile for a model of that size: up to 3B, it is not asked to write code."""
    if header.parameters <= TINY_PARAMETERS:
        return "tiny"
    return "small" if header.parameters <= SMALL_PARAMETERS else "standard"


def _refusal(model: str, error: Any) -> ModelError:
    """Return the error that the library reports; nothing was billed, and a retry would fail too."""
    facts = error if isinstance(error, Mapping) else {"message": error}
    code = facts.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    advice = "; raise window_tokens" if facts.get("type") == "exceed_context_size_error" else ""
    said = public_line(str(facts.get("message") or "unknown error"))
    return ModelError(f"{model}: {said}{advice}", status=status, retryable=status == 503)


def _freed(holder: list[Any]) -> None:
    """Release the last reference here, because ending the library's threads blocks."""
    holder.clear()
    gc.collect()
