"""Files of Microsoft's older format, which is a file system: Outlook messages, old workbooks."""

import base64
import itertools
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_compound_file", "write_message", "write_old_workbook"]

NOBODY, END, TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
ROOT, STORAGE, STREAM = 5, 1, 2
SECTOR_BYTES, MIN_BYTES = 512, 4_096

OLD_WORKBOOK = (
    "c-rk)O=uHA6#izKG(Wcasj1KkB@}G6wg>UzrP;Q$_LN$^_=BjaS^R0;NDxF1wOVr$LGYw_Db#}pt6uy;"
    "1-*F?DtZtEAyGUDf}r4`&HCnLS5uA9fEEn%g?aPl&3rpAGxKI<_r-iPKXa$GfM1Y69g21U^<_3eDc}|&"
    "pnBU@s+;>M*&6>90)CpvdM_R}KKH3PRP$Yc#BI-0lE6DkdvP2i8Ow~XAO_fnlu$nOk`%Z`mJnLlt0tBQ"
    "S*~Vzi(5Wo*~gZPEPJVKUhKiVG19fgS;f0#JJ*Gvo_miuZ`iU4&3L9(@tI4a)Ygms?2*(&tyHvm8ZZl*"
    ">0#3{v#K1%bp(Okgq~!wXK*l&7_EX?e6{1i7dPCW#I=28?E+-~w$$$XgWXS)Sjir!V81Lqz!dBQ99222"
    "Lc*hJ>acAhy?{<yD&Ry`D|O7Q15$@fDx5rQT2$z_EDDu@Oi-N$yn95J>>iCARShK52(upL*ou&s3pYN$"
    "Opc8j``I$ZCr0U9S*N^$jkAhD<Pb_exw4BH8(E&?r><qam1T?^ro3ac*-^GmbDQ&A+d=(oX1p>w%k=f6"
    "=RR(~-<ErCY#@DZxNtf)_u802JB?hL`06)}ZqY5SUQu{pxVdolptmere%p`yGUE7dJBMc&iz?6vQI@5W"
    "8XfVYB%QHRY*B$Nn61X+G4(H)J<0pwzMGPmiYF`ZB=gh=Ps*S(Cl`jOom6|EB%c*N9sSUkkWIL&n$s@&"
    "6G3QbXlQ6?XlQ8E1_a+aOLuIKbMaTVc%SoKXOU7-e<rC}>_CQoC+Hn<2o~j8oT_U5tbtd!&l1bzxZevE"
    "c2e(IjAM-b7_WN$(p#7)|3AwnM*dz1Roj2D8bAMW|K9<sDc;f"
)
"""A workbook of Excel 97 with one sheet of three rows, compressed."""


def write_old_workbook(path: Path) -> Path:
    path.write_bytes(zlib.decompress(base64.b85decode(OLD_WORKBOOK)))
    return path


def write_message(path: Path, texts: Mapping[int, str], **more: bytes) -> Path:
    """An Outlook message whose properties are Unicode; `more` are streams by their name."""
    streams = {
        f"__substg1.0_{tag:04X}001F": text.encode("utf-16-le") for tag, text in texts.items()
    }
    return write_compound_file(path, {**streams, **more})


def write_compound_file(path: Path, streams: Mapping[str, bytes]) -> Path:
    """A file with streams, named `stream` or `storage/stream`.

    They are filled up to 4,096 bytes: smaller ones would have to be stored in another way.
    """
    chain: list[int] = []
    sectors, starts = b"", {}
    for name, data in streams.items():
        starts[name] = len(chain)
        sectors += _append(chain, data.ljust(MIN_BYTES, b"\0"))
    directory = len(chain)
    sectors += _append(chain, _directory(streams, starts))
    tables = -(-(len(chain) + 2) // 128)
    numbers = [*chain, *([TABLE] * tables)]
    numbers += [NOBODY] * (tables * 128 - len(numbers))
    places = [len(chain) + each for each in range(tables)]
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<9I", 0, tables, directory, 0, MIN_BYTES, END, 0, END, 0)
    head += struct.pack("<109I", *places, *([NOBODY] * (109 - tables)))
    path.write_bytes(head + sectors + struct.pack(f"<{len(numbers)}I", *numbers))
    return path


def _append(chain: list[int], data: bytes) -> bytes:
    """Add the sectors of a stream to the table of what follows what."""
    count = -(-len(data) // SECTOR_BYTES)
    chain += [*range(len(chain) + 1, len(chain) + count), END]
    return data.ljust(count * SECTOR_BYTES, b"\0")


def _directory(streams: Mapping[str, bytes], starts: Mapping[str, int]) -> bytes:
    """Return the entries; the children of a storage are a list, which is a very uneven tree."""
    folders: dict[str, list[str]] = {"": []}
    for name in streams:
        folder = name.rpartition("/")[0]
        if folder not in folders:
            folders[folder] = []
            folders[""].append(folder)
        folders[folder].append(name)
    order = ["", *(name for children in folders.values() for name in children)]
    after: dict[str, str] = {}
    for children in folders.values():
        after.update(itertools.pairwise(children))
    entries = b""
    for name in order:
        label = (name.rpartition("/")[2] or "Root Entry").encode("utf-16-le") + b"\0\0"
        kind = ROOT if not name else STORAGE if name in folders else STREAM
        following = order.index(after[name]) if name in after else NOBODY
        child = order.index(folders[name][0]) if folders.get(name) else NOBODY
        size = max(len(streams[name]), MIN_BYTES) if name in streams else 0
        entries += label.ljust(64, b"\0") + struct.pack("<HBB", len(label), kind, 1)
        entries += struct.pack("<III", NOBODY, following, child) + bytes(36)
        entries += struct.pack("<IQ", starts.get(name, END), size)
    return entries
