"""Text of Outlook messages: sender, recipients, date, subject, body and attachments."""

import codecs
import importlib
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from rlm.context.documents.html import markdown_of

__all__ = ["text_of"]

_FROM, _ADDRESS, _TO, _CC, _SUBJECT = 0x0C1A, 0x0C1F, 0x0E04, 0x0E03, 0x0037
_BODY, _HTML, _FILE_LONG, _FILE_SHORT = 0x1000, 0x1013, 0x3707, 0x3704
_SENT, _RECEIVED = 0x0039, 0x0E06
_CODE_PAGES = (0x3FFD, 0x3FDE)
_UNICODE, _BYTES, _BINARY = "001F", "001E", "0102"
_INTEGER, _TIME = 0x0003, 0x0040
_PROPERTIES, _HEAD_BYTES = "__properties_version1.0", 32
_PROPERTY = struct.Struct("<IIQ")
_CODECS = {20127: "ascii", 20866: "koi8-r", 28591: "latin-1", 65001: "utf-8"}
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_SIZES, _SIZES_AT = struct.Struct("<HH"), 30


def text_of(file: BinaryIO) -> str:
    """Return the text of a message."""
    olefile = importlib.import_module("olefile")
    _check_sizes(file)
    with olefile.OleFileIO(file) as storage:
        return _Message(storage).text()


def _check_sizes(file: BinaryIO) -> None:
    """Refuse sectors of a size that no file has; olefile would allocate up to all memory."""
    file.seek(_SIZES_AT)
    head = file.read(_SIZES.size)
    if len(head) == _SIZES.size and _SIZES.unpack(head) not in {(9, 6), (12, 6)}:
        raise ValueError("its sectors have an impossible size")
    file.seek(0)


class _Message:
    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._numbers = self._read_numbers()
        page = next((self._numbers[each] for each in _CODE_PAGES if each in self._numbers), 0)
        self._encoding = _encoding(page & 0xFFFFFFFF)

    def text(self) -> str:
        sender, address = self._text(_FROM), self._text(_ADDRESS)
        if address and "@" in address and address != sender:
            sender = f"{sender} <{address}>".strip()
        lines = {
            "From": sender,
            "To": self._text(_TO),
            "Cc": self._text(_CC),
            "Date": self._date(),
            "Subject": self._text(_SUBJECT),
            "Attachments": ", ".join(self._attachments()),
        }
        head = "\n".join(f"**{name}:** {words}" for name, words in lines.items() if words)
        body = self._text(_BODY) or self._html()
        return f"# Email Message\n\n{head}\n\n## Content\n\n{body}" if head or body else ""

    def _html(self) -> str:
        data = self._stream(f"__substg1.0_{_HTML:04X}{_BINARY}") or b""
        return markdown_of(data.rstrip(b"\0") or self._text(_HTML))

    def _text(self, tag: int, folder: str = "") -> str:
        data = self._stream(f"{folder}__substg1.0_{tag:04X}{_UNICODE}")
        if data is not None:
            return data.decode("utf-16-le", "replace").strip("\0 \r\n\t")
        data = self._stream(f"{folder}__substg1.0_{tag:04X}{_BYTES}") or b""
        return data.decode(self._encoding, "replace").strip("\0 \r\n\t")

    def _attachments(self) -> list[str]:
        folders = dict.fromkeys(
            path[0] for path in self._storage.listdir() if path[0].startswith("__attach_version1.0")
        )
        found = (
            self._text(_FILE_LONG, f"{each}/") or self._text(_FILE_SHORT, f"{each}/")
            for each in folders
        )
        return [name for name in found if name]

    def _date(self) -> str:
        ticks = self._numbers.get(_SENT) or self._numbers.get(_RECEIVED) or 0
        try:
            found = _EPOCH + timedelta(microseconds=ticks // 10)
        except OverflowError:
            return ""
        return found.strftime("%Y-%m-%d %H:%M:%S UTC") if ticks else ""

    def _read_numbers(self) -> dict[int, int]:
        """Return the properties of fixed size: numbers and times."""
        data = (self._stream(_PROPERTIES) or b"")[_HEAD_BYTES:]
        whole = data[: len(data) // _PROPERTY.size * _PROPERTY.size]
        found = {}
        for tag, _, value in _PROPERTY.iter_unpack(whole):
            if tag & 0xFFFF in {_INTEGER, _TIME}:
                found[tag >> 16] = value
        return found

    def _stream(self, name: str) -> bytes | None:
        if not self._storage.exists(name):
            return None
        return bytes(self._storage.openstream(name).read())


def _encoding(page: int) -> str:
    """Return the codec of a Windows code page; the most common codec if it is unknown."""
    name = _CODECS.get(page, f"cp{page}")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "cp1252"
