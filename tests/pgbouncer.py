"""A real PgBouncer in transaction mode: each transaction goes to another of its few lines, as the worst case has it."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.server import free_port

START_LIMIT = 10.0
"""Seconds that it may take to listen."""
LINES = 3
"""Connections to PostgreSQL, for a database and user."""
CONFIGURATION = """\
[databases]
* = {target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {lines}
server_round_robin = 1
max_client_conn = 200
"""


def find_pgbouncer() -> str | None:
    """The program; Debian puts it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def pgbouncer(server_url: str) -> Iterator[str]:
    """The URL of the same server, by way of PgBouncer; skips the test where there is none."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("pgbouncer is not installed; on Debian and Ubuntu: apt-get install pgbouncer")
    parts = urlsplit(server_url)
    if parts.hostname is None:
        pytest.skip("pgbouncer is tried with a server that listens on TCP")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="a2a-pgbouncer-") as folder:
        configuration = Path(folder) / "pgbouncer.ini"
        configuration.write_text(CONFIGURATION.format(target=_target(server_url), port=port, lines=LINES))
        command = [program, "-q", str(configuration)]
        if os.geteuid() == 0:
            # It refuses to run as root; the user it becomes must be able to read what it is told.
            user = pwd.getpwnam("nobody")
            for path in (Path(folder), configuration):
                os.chown(path, user.pw_uid, user.pw_gid)
            command[1:1] = ["-u", user.pw_name]
        with (Path(folder) / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                _wait_until_it_listens(process, port, Path(log.name))
                yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
            finally:
                process.terminate()


def _target(url: str) -> str:
    parts = urlsplit(url)
    found = {
        "host": parts.hostname,
        "port": str(parts.port or 5432),
        "user": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
    }
    return " ".join("{}='{}'".format(name, value.replace("'", "''")) for name, value in found.items() if value)


def _wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"pgbouncer did not start: {log.read_text()}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
