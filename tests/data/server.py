"""A PostgreSQL server of Debian's packages on a temporary folder, for one test module."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
OWNER = "postgres"
PASSWORD = "s3cret/word"
"""Of the role `reader`; in a URL its slash is %2F."""

SETUP = """
create role reader login password 's3cret/word';
create schema hidden;
create sequence numbers;
create table t (id integer, text text);
insert into t values (1, 'a'), (2, 'b'), (3, 'c');
create table kinds
  (n numeric, at timestamptz, b bytea, j jsonb, a int[], f float8, "odd "" name" int);
insert into kinds values (1.10, '2025-01-02 03:04:05+00', '\\x00ff', '{"a": 1}', '{1,2}', 'NaN', 1);
create table hidden.secret (x text);
insert into hidden.secret values ('the-secret-that-was-not-given');
grant select, insert, update, delete on all tables in schema public to reader;
grant usage on sequence numbers to reader;
grant usage on schema hidden to reader;
grant select on hidden.secret to reader;
analyze;
"""


@contextmanager
def postgres() -> Generator[tuple[str, str], None, None]:
    """Start a server; yield the URLs of a role that may write, and of the owner."""
    folder = Path(tempfile.mkdtemp(prefix="rlm-pg-"))
    as_owner: list[str] = []
    if os.geteuid() == 0:  # The server refuses to be root.
        user = pwd.getpwnam(OWNER)
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_owner = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs, data = PROGRAMS[-1], folder / "data"

    def run(*command: str) -> None:
        subprocess.run(
            [*as_owner, *command], check=True, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    run(f"{programs}/initdb", "-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "-N")
    settings = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    run(f"{programs}/pg_ctl", "-D", str(data), "-w", "-l", f"{folder}/log", "-o", settings, "start")
    owner = f"postgresql://{OWNER}@127.0.0.1:{port}/postgres"
    try:
        run("psql", "-q", "-v", "ON_ERROR_STOP=1", owner, "-c", SETUP)
        yield f"postgresql://reader:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{port}/postgres", owner
    finally:
        run(f"{programs}/pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
