"""Runs a command as if on a machine that offers less: `python confine.py [options] -- command …`

--no-namespaces  unshare, mount, pivot_root, setns and clone with a namespace flag answer EPERM,
                 as they do in a default container.
--no-landlock    Landlock answers ENOSYS, as on an older kernel.
--no-seccomp     so does seccomp: nothing can be isolated then.
--user UID       the command runs as that user, in a mount namespace where the interpreter's folder
                 can be reached by everybody (it may live below a home folder that is closed).
"""

import argparse
import errno
import os
import struct
import sys
from pathlib import Path

from rlm.worker.sandbox import kernel, privileges, seccomp

NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
FORBIDDEN = {
    "namespaces": ("unshare", "mount", "pivot_root", "umount2", "mount_setattr"),
    "landlock": ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
    "seccomp": ("seccomp",),
}
ANSWERS = {"namespaces": errno.EPERM, "landlock": errno.ENOSYS, "seccomp": errno.ENOSYS}
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def program(what: list[str]) -> bytes:
    """A filter that allows everything but the named parts of the kernel."""
    code = [(LOAD, 0, 0, 0)]
    for part in what:
        for name in FORBIDDEN[part]:
            number = kernel.number(name)
            assert number is not None
            code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | ANSWERS[part])]
    if "namespaces" in what:
        clone, clone3 = kernel.number("clone"), kernel.number("clone3")
        assert clone is not None
        assert clone3 is not None
        code += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
        code += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, 16), (ANY_BIT, 0, 1, NAMESPACE_FLAGS)]
        code += [(RETURN, 0, 0, REFUSE | errno.EPERM)]
    code += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *each) for each in code)


def open_the_way(to: Path) -> None:
    """In a mount namespace of our own, make a folder reachable below folders that are closed."""
    own_mounts, recursive_private, bind = 0x00020000, 0x44000, 0x1000
    kernel.call("unshare", own_mounts)
    kernel.call("mount", None, b"/", None, recursive_private, None)
    closed = next((each for each in reversed(to.parents) if not each.stat().st_mode & 0o001), None)
    if closed is None:
        return
    descriptor = os.open(to, os.O_PATH)
    kernel.call("mount", b"tmpfs", bytes(closed), b"tmpfs", 0, b"mode=755")
    to.mkdir(parents=True)
    # By descriptor: the path now leads into the empty file system.
    source = f"/proc/self/fd/{descriptor}".encode()
    kernel.call("mount", source, bytes(to), None, bind, None)


def main() -> None:
    parser = argparse.ArgumentParser()
    for each in FORBIDDEN:
        parser.add_argument(f"--no-{each}", dest="without", action="append_const", const=each)
    parser.add_argument("--user", type=int)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    if chosen.user is not None:
        open_the_way(Path(sys.base_prefix))
        privileges.become(chosen.user, chosen.user)
    if chosen.without:
        privileges.forbid_new_privileges()
        seccomp.install(program(chosen.without))
    os.execvp(chosen.command[0], chosen.command)


if __name__ == "__main__":
    main()
