"""The network: reaching the host, its neighbours or the world by any kind of socket."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import any_of, arrived, claims, leaks

__all__ = ["ATTACKS"]

_GROUP = "network"

_REACHING = {
    "connect over TCP": """
print(socket.create_connection(('127.0.0.1', target['tcp_port']), 2).recv(100))
""",
    "connect over TCP with asyncio": """
import asyncio
reader, _ = await asyncio.open_connection('127.0.0.1', target['tcp_port'])
print(await reader.read(100))
""",
    "send a datagram over UDP": """
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.sendto(b'x', ('127.0.0.1', target['udp_port']))
""",
    "ask a name server over DNS": r"""
question = struct.pack('>6H', 1, 256, 1, 0, 0, 0) + b'\7example\3org\0' + bytes([0, 1, 0, 1])
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.sendto(question, ('127.0.0.1', target['udp_port']))
""",
    "connect to a unix socket by its path": """
line = socket.socket(socket.AF_UNIX)
line.connect(target['socket_path'])
print(line.recv(100))
""",
    "connect to an abstract unix socket": r"""
line = socket.socket(socket.AF_UNIX)
line.connect('\0' + target['abstract_name'])
print(line.recv(100))
""",
}

_FAMILIES = {
    "open a packet socket": "socket.socket(17, socket.SOCK_RAW, 0x300)",
    "open a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "talk to the kernel over netlink": "socket.socket(16, socket.SOCK_RAW, 0)",
    "talk to the machine's host over vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "use the kernel's ciphers (AF_ALG)": "socket.socket(38, socket.SOCK_SEQPACKET)",
}

ATTACKS = (
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=f"import socket\n{code}",
            judge=any_of(leaks, arrived),
            shares=True,
        )
        for name, code in _REACHING.items()
    ),
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=f"import socket\n{code}\ngot('it is open')",
            judge=claims,
            shares=True,
        )
        for name, code in _FAMILIES.items()
    ),
)
