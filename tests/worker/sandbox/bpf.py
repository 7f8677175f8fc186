"""A classic BPF machine, as small as the filters need it: runs a seccomp program over one call."""

import struct

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def run(
    program: bytes,
    machine: str,
    number: int,
    arguments: tuple[int, ...] = (),
    arch: int | None = None,
) -> int:
    """What the program answers; arguments that are not given are zero."""
    six = [*arguments, *([0] * (6 - len(arguments)))]
    arch = ARCHITECTURES[machine] if arch is None else arch
    data = struct.pack("<IIQ6Q", number, arch, 0, *six)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = position = 0
    while True:
        operation, if_true, if_false, operand = instructions[position]
        position += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, operand)[0]
            case 0x54:
                accumulator &= operand
            case 0x05:
                position += operand
            case 0x15:
                position += if_true if accumulator == operand else if_false
            case 0x35:
                position += if_true if accumulator >= operand else if_false
            case 0x45:
                position += if_true if accumulator & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")
