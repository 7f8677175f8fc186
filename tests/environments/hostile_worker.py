"""A worker that lies: it speaks the protocol to a real host, with hostile values in every field.

    python -m tests.environments.hostile_worker --seconds 60
    python -m tests.environments.hostile_worker --seed 17 --place lines     # one session again

Everything it does follows from a seed. `tests/environments/host_places.py` has the hosts that it is
let loose on, `fuzzing.py` what must hold; this file makes the bytes.
"""

import json
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from rlm.worker import bounds, images, multiplex, wire
from tests.picture_samples import png

__all__ = ["KINDS", "HonestWorker", "HostileWorker", "Worker", "report_of_a_zygote"]

Write = Callable[[bytes], Awaitable[None]]
_HEAD = struct.Struct("<IBII")
_MAX_BYTES = 600_000
_PNG = png()
KINDS = (b"llm", b"rlm", b"operator", b"tool", b"data", b"stream", b"note", b"cite", b"budget")
_LLM = {"model": None, "batched": True}
_ONE_ANSWER = {wire.LOAD_END, wire.LOAD_SHARED, wire.CHECKPOINT, wire.RESUME}


def report_of_a_zygote() -> dict[str, Any]:
    """What an honest sandbox says about its inside."""
    return {
        "namespaces": "root",
        "pid_namespace": True,
        "file_system": ["pivot_root"],
        "landlock_abi": 0,
        "seccomp": True,
        "own_uid": False,
        "sealed": False,
        "scratch": "/tmp",
        "forks": False,
        "missing": [],
    }


class Worker:
    """Takes what the host sends and writes answers; one per stream, checkpoints included."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.is_over = False
        self.frames = 0
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)

    async def take(self, data: bytes) -> None:
        """Bytes from the host."""
        self._decoder.feed(data)
        while not self.is_over and (frame := self._decoder.pop()) is not None:
            await self.answer(frame)

    async def answer(self, frame: wire.Frame) -> None:
        raise NotImplementedError


def parts_of_answer(frame: wire.Frame) -> tuple[int, list[bytes]] | None:
    """What an honest worker answers to a request; None if nothing."""
    if frame.type == wire.INIT:
        return wire.READY, [b'{"python": "3"}']
    if frame.type == wire.EXEC:
        counts = wire.DONE_COUNTS.pack(3, 0, 1, 0, False)
        return wire.DONE, [counts, b"", b"ok\n", b"", b"x\0int"]
    if frame.type == wire.FETCH:
        return wire.VALUE, [b"{}", b"text"]
    if frame.type == wire.LIST_FILES:
        return wire.VALUE, [b"{}", b'[["a.txt", 4]]']
    if frame.type == wire.READ_FILE:
        return wire.VALUE, [b"{}", b"data" if frame.parts[2] == b"0" else b""]
    return (wire.VALUE, [b"{}"]) if frame.type in _ONE_ANSWER else None


class HonestWorker(Worker):
    """Shows that a host still works."""

    async def answer(self, frame: wire.Frame) -> None:
        if (answer := parts_of_answer(frame)) is not None:
            self.frames += 1
            await self.write(wire.encode(answer[0], frame.id, answer[1]))


class HostileWorker(Worker):
    """Answers some requests as it should, so that there are more, and all others as it likes."""

    def __init__(self, write: Write, seed: int) -> None:
        super().__init__(write)
        self.random = random.Random(seed)
        self._requests_left = self.random.randint(1, 8)
        self._malice = self.random.choice((0.05, 0.2, 0.8))  # Too much of it ends a session soon.
        self._last_call = 0
        self._tearing = [self._mangled, self._garbage]
        self._acts = [self._call] * 8 + [self._flood, self._unasked, *self._tearing]

    async def answer(self, frame: wire.Frame) -> None:
        answer = parts_of_answer(frame)
        if answer is None:
            return
        chance = self.random.random
        tears = False
        acts = self.random.choice((0, 1, 2, 4)) if frame.type != wire.INIT else 0
        for _ in range(acts if chance() < 0.9 else 1):
            act = self.random.choice(self._acts) if chance() < self._malice else self._call
            tears |= act in self._tearing
            await self._send(act(frame))
        self._requests_left -= 1
        if self._requests_left < 0 or (chance() < 0.1 and frame.type != wire.INIT):
            self.is_over = True  # It falls silent, and the test closes the connection.
            return
        kind, parts = answer
        if chance() < self._malice / (4 if frame.type == wire.INIT else 1):
            parts = self._mutated(kind, parts)
        number = frame.id if chance() > self._malice / 10 else self._number()
        await self._send(_packed(kind, number, parts))
        if tears:  # The host may wait for the rest of a frame, in vain.
            self.is_over = True

    async def _send(self, data: bytes) -> None:
        self.frames += 1
        if len(data) < 300 and self.random.random() < 0.2:  # Split at every byte.
            for at in range(len(data)):
                await self.write(data[at : at + 1])
        elif self.random.random() < 0.2:
            at = self.random.randrange(len(data) + 1)
            await self.write(data[:at])
            await self.write(data[at:])
        else:
            await self.write(data)

    # Acts: bytes for the stream.

    def _call(self, request: wire.Frame) -> bytes:
        """A call of some kind, with one or more fields that are not as they should be."""
        kind = self.random.choice(KINDS)
        parts = self._valid_call(kind)
        if self.random.random() < self._malice:
            parts = self._mutated(wire.CALL, parts)
        self._last_call += self.random.random() > self._malice / 10
        number = self._last_call if self.random.random() > self._malice / 10 else self._number()
        return _packed(wire.CALL, number, parts)

    def _valid_call(self, kind: bytes) -> list[bytes]:
        prompts = [self._text() for _ in range(self.random.randint(1, 5))]
        if kind == b"llm" and self.random.random() < 0.3:
            rows, sent = images.attached([[_PNG, "a.png"]] * len(prompts))
            return [kind, wire.to_json({**_LLM, "images": rows}), *prompts, *sent]
        if kind == b"llm":
            schema = b', "schema": {"enum": ' + self._numbers() + b"}}" if self._is_odd() else b"}"
            return [kind, wire.to_json(_LLM)[:-1] + schema, *prompts]
        if kind == b"operator":
            labels = self._numbers() if self._is_odd() else b'["a"]'
            about = b'{"name": "classify", "options": {"labels": %s}, "model": null}' % labels
            return [kind, about, *prompts]
        if kind == b"rlm":
            contexts = [{"kind": self.random.choice(("text", "json"))} for _ in prompts]
            given = [self._json() if each["kind"] == "json" else self._text() for each in contexts]
            return [kind, wire.to_json({**_LLM, "contexts": contexts}), *prompts, *given]
        if kind == b"cite":
            whole = {"start": None, "end": None, "name": self.random.choice((None, 0, "a.txt"))}
            place = {**whole, "start": self.random.randint(-9, 99), "end": 2**62}
            if self.random.random() < 0.5:
                return [kind, wire.to_json(place)]
            return [kind, wire.to_json(whole), self._json()]
        if kind == b"tool":
            value = self._json() if self._is_odd() else json.dumps(self._value(4)).encode()
            return [kind, b'{"name": "lookup", "arguments": {"a": %s}}' % value]
        if kind == b"data":
            asked = {"query": self._text().decode("utf-8", "replace"), "parameters": [None, 1]}
            method = self.random.choice(("sql", "rows", "close", "_process"))
            return [kind, wire.to_json({"source": "x", "method": method, "arguments": asked})]
        return [kind, b"{}", *([b"key", self._json()] if kind in (b"stream", b"note") else [])]

    def _flood(self, request: wire.Frame) -> bytes:
        """Hundreds of frames at once, some of them of one number."""
        one = _packed(wire.CALL, 7, [b"budget", b"{}"])
        if self.random.random() < 0.3:
            return one * self.random.randint(2, 50)
        first = self._last_call + 1
        self._last_call += self.random.randint(1, 600)
        numbers = range(first, self._last_call + 1)
        return b"".join(_packed(wire.CALL, number, [b"budget", b"{}"]) for number in numbers)

    def _unasked(self, request: wire.Frame) -> bytes:
        """An unexpected answer, or one that belongs to another request."""
        kind = self.random.choice((wire.READY, wire.DONE, wire.VALUE))
        fake = wire.Frame(self.random.choice((wire.EXEC, wire.FETCH, wire.INIT)), 0, [b"x"])
        answer = parts_of_answer(fake)
        assert answer is not None
        return _packed(kind, self._number(), self._mutated(kind, answer[1]))

    def _mangled(self, request: wire.Frame) -> bytes:
        """A frame whose head does not belong to its body."""
        data = bytearray(_packed(wire.CALL, 1, self._valid_call(b"llm")))
        choice = self.random.randrange(5)
        if choice == 0:
            at = self.random.randrange(min(len(data), 40))
            data[at] ^= 1 << self.random.randrange(8)
        elif choice == 1:
            struct.pack_into("<I", data, 0, self._number())  # The length of the body.
        elif choice == 2:
            struct.pack_into("<I", data, 9, self._number())  # The number of parts.
        elif choice == 3:
            data[4] = self.random.randrange(256)  # The type.
        else:
            del data[self.random.randrange(len(data)) :]
        return bytes(data)

    def _garbage(self, request: wire.Frame) -> bytes:
        return self.random.randbytes(self.random.choice((1, 3, 12, 100, 5_000)))

    # Values.

    def _mutated(self, kind: int, parts: list[bytes]) -> list[bytes]:
        parts = list(parts)
        for _ in range(self.random.randint(1, 3)):
            choice = self.random.randrange(8)
            if choice == 0 and parts:
                del parts[self.random.randrange(len(parts))]
            elif choice == 1:
                count = self.random.choice((1, 1, 3, 2_000))
                parts += [self._bytes() if count < 4 else b""] * count
            elif choice == 2 and kind == wire.DONE and parts:
                parts[0] = self._counts()
            elif choice == 3 and kind == wire.DONE and len(parts) > 4:
                parts[1], more = self._ending()
                parts = parts[:5] + more
            elif choice == 4 and kind == wire.DONE and len(parts) > 4:
                parts[0] = wire.DONE_COUNTS.pack(0, 0, 900, self.random.choice((0, 900)), False)
                parts[4] = b"\0".join(self._text() for _ in range(self.random.choice((1, 4_000))))
            elif parts:
                parts[self.random.randrange(len(parts))] = self._bytes()
        return parts

    def _counts(self) -> bytes:
        u64 = [self.random.choice((0, 5, 2**63, 2**64 - 1)) for _ in range(2)]
        u32 = [self.random.choice((0, 1, 1_001, 2**32 - 1)) for _ in range(2)]
        data = wire.DONE_COUNTS.pack(*u64, *u32, True)
        return data[:-1] + self.random.choice((b"\0", b"\1", b"\xff", b""))

    def _ending(self) -> tuple[bytes, list[bytes]]:
        """Metadata of a cell's result, with the texts it names or different ones."""
        names = ["submission", "answer_content", "submission_json"]
        texts = self.random.sample(names, self.random.randint(0, 3))
        fields = ("type", "message", "traceback")
        error = {name: self._text().decode("utf-8", "replace") for name in fields}
        meta: dict[str, Any] = {"error": error, "how": "FINAL", "texts": texts}
        if self.random.random() < 0.3:
            meta[self.random.choice((*meta, "x"))] = self._value(3)
        count = len(texts) if self.random.random() < 0.8 else self.random.randint(0, 4)
        return wire.to_json(meta), [self._text() for _ in range(count)]

    def _number(self) -> int:
        near = self.random.randint(0, 12)
        return self.random.choice((0, 1, near, near, 2**16, 2**31, 2**32 - 1))

    def _size(self) -> int:
        if self.random.random() < 0.85:
            return self.random.choice((0, 1, 2, 40, 300, 5_000))
        return self.random.choice((70_000, 300_000, _MAX_BYTES))

    def _is_odd(self) -> bool:
        return self.random.random() < self._malice

    def _numbers(self) -> bytes:
        """Numbers that take msgspec thousands of times as long as others."""
        numbers = (b"1e300", b"1.7976931348623157E308", b"4.9e-324", b"-1e-310", b"8" * 900)
        number = self.random.choice(numbers)
        return b"[" + b",".join([number] * (1 + self._size() // len(number))) + b"]"

    def _bytes(self) -> bytes:
        return self.random.choice((self._text, self._json, self._broken))()

    def _broken(self) -> bytes:
        size = min(self._size(), 5_000)
        beginning = self.random.choice((b"", b"\xff\xfe", b"\xef\xbb\xbf", b"{", b'"', b"\x89PNG"))
        return beginning + self.random.randbytes(size)

    def _text(self) -> bytes:
        wide, lone = "\U0001f600".encode(), b"\xed\xa0\x80"
        piece = self.random.choice((b"x", b"\xc3\xa9", lone, wide, b"\0", b"\n", b"x" + lone))
        return piece * (self._size() // len(piece)) + self.random.choice((b"", wide))

    def _json(self) -> bytes:
        """JSON that is large, deep, odd, or none."""
        size = self._size()
        forms = (
            lambda: json.dumps(self._value(4)).encode(),
            lambda: b"[" * size + b"]" * self.random.choice((size, 0)),
            lambda: b'{"a":' * (size // 5) + b"1" + b"}" * (size // 5),
            lambda: b"[" + b"[]," * (size // 3) + b"[]]",
            self._numbers,
            lambda: b"{" + b'"ratio":1e300,' * (size // 14) + b'"a":1}',
            lambda: b'["' + b"\\ud800" * (size // 6) + b'"]',
            lambda: b"-" + b"9" * size,
            lambda: b"1e" + b"9" * min(size, 5_000),
            lambda: b'{"a": 1, "a": NaN, "b": [Infinity, -Infinity, -0, 1e400]}',
            lambda: '"\u20ac"'.encode("utf-16"),
            lambda: b" " * size + b"{}",
            lambda: b'"' + b'\\"' * (size // 2) + b'"',
        )
        return self.random.choice(forms)()

    def _value(self, depth: int) -> Any:
        plain: tuple[Any, ...] = (
            None, True, False, 0, -1, 2**63, -(2**70), 10**50, 0.5, float("nan"), float("inf"),
            "", "x", "\ud800", "\0", "a" * 300, "submission", "FINAL", [], {},
        )  # fmt: skip
        if depth and self.random.random() < 0.5:
            count = self.random.randint(0, 4)
            if self.random.random() < 0.5:
                return [self._value(depth - 1) for _ in range(count)]
            names = ("model", "batched", "contexts", "images", "tools", "error", "kind", "\ud800")
            return {self.random.choice(names): self._value(depth - 1) for _ in range(count)}
        return self.random.choice(plain)

    # Side channels.

    def monitor_lines(self) -> bytes:
        """Malformed reports of deaths and signals."""
        lines = [
            b'{"signalled": true}', b'{"status": 0}', b'{"status": -9}', b'{"status": "x"}',
            b'{"status": 1e999}', b'{"status": -' + b"9" * 500 + b"}", b'{"lost": "gone"}', b"[]",
            b'{"error": "' + b"e" * 9_000 + b'"}', b'{"lost": 5}', b"5", b"null", b"NaN", b"{}",
            b"[" * 9_000, b"\xff\xfe", b'"\\ud800"', b"x" * 70_000, b"", self._json()[:60_000],
        ]  # fmt: skip
        chosen = self.random.choices(lines, k=self.random.randint(0, 4))
        return b"".join(line + b"\n" for line in chosen)

    def report(self) -> bytes:
        """A report of a zygote, mostly as it should be; with the length before it."""
        report: Any = report_of_a_zygote()
        if self.random.random() < self._malice / 3:
            report[self.random.choice((*report, "error"))] = self._value(3)
        data = json.dumps(report).encode()
        if self.random.random() < self._malice / 10:
            data = self._json()
        length = len(data)
        if self.random.random() < self._malice / 20:
            length, self.is_over = self._number(), True  # The rest will never come.
        return struct.pack("<I", length) + data

    def mux_pieces(self) -> Iterator[bytes]:
        """Malformed pieces for a pipe, or pieces that no honest side would send."""
        while self.random.random() < 0.5:
            channel = self.random.choice((0, 1, 2, 3, 4, 5, 255))
            size = self.random.choice((0, 0, 5, 65_536, 65_537, 2**32 - 1))
            yield struct.pack("<BI", channel, size) + bytes(min(size, multiplex.MAX_PIECE_BYTES))


def _packed(kind: int, number: int, parts: list[bytes]) -> bytes:
    """A frame of whatever kind; nothing is checked."""
    lengths = struct.pack(f"<{len(parts)}I", *map(len, parts))
    body = len(lengths) + sum(map(len, parts)) + _HEAD.size - 4
    return _HEAD.pack(body, kind & 255, number, len(parts)) + lengths + b"".join(parts)


assert bounds.MAX_META_BYTES < _MAX_BYTES, "the fuzzer must be able to go beyond it"

if __name__ == "__main__":
    from tests.environments.fuzzing import main

    main()
