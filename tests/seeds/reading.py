"""The five documents as the tests see them: their lines, and their blocks by number."""

import hashlib
from functools import cache
from pathlib import Path

from tests.shape.documents import Block, blocks_of

FOLDER = Path(__file__).with_name("documents")

DIGESTS = {
    "000": "c2fcf23b17f21a6f4897795bccbcf6ac0c0b3679765f4ad28b81e57cbf909a65",
    "001": "bef193cf7f2ba22009ee3c33539514f0d2d3a938040b20d5e5578a815be3d93e",
    "002": "f6bade6ee43505b1254530265cb1e5514b9ec88a7cf3e4097d1c5de736283061",
    "003": "346fc9d921ff6dcbb795a5c62a0915a675d68cbd9e7f3bee8eb2e02be7f19e30",
    "004": "c45200bfa5f5e888d80cad2358ce7c17b22aca8f366dc697b715e023ff118f0c",
}
"""SHA-256 of each document as it came."""


@cache
def text_of(document: str) -> str:
    (path,) = FOLDER.glob(f"{document}-*.txt")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS[document], f"{path.name} was edited"
    return data.decode("utf-8")


def blocks() -> dict[str, Block]:
    """Every fenced block of every document, as `004/2`: the second one of 004."""
    return {
        f"{document}/{number}": block
        for document in DIGESTS
        for number, block in enumerate(blocks_of(text_of(document)), 1)
    }


def code_of(name: str) -> str:
    """Return the exact content of a block."""
    return blocks()[name].code
