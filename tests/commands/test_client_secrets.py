"""Passwords and keys of client properties are in nothing that a command shows, and not in its process title.

All that modules log is logged, down to DEBUG.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import klog.testing
from klog.admin.settings import settings_of

SECRET = "hunter2-S3CR3T"
RUN = """
import logging
logging.basicConfig(level=logging.DEBUG)
set_level = logging.Logger.setLevel
logging.Logger.setLevel = lambda self, level: set_level(self, logging.DEBUG)
from klog.commands.main import main
main()
"""
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
KEY = f"-----BEGIN PRIVATE KEY----- {SECRET} -----END PRIVATE KEY-----"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
TLS = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}

PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "login": LOGIN,
    "scram": {**LOGIN, "sasl.mechanism": "SCRAM-SHA-512"},
    "token": {
        **LOGIN,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'OAuth required clientId="u" clientSecret="{SECRET}";',
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    },
    "no such mechanism": {**LOGIN, "sasl.mechanism": "DIGEST-MD5"},
    "no user": {**LOGIN, "sasl.jaas.config": f'Login required password="{SECRET}";'},
    "not closed": {**LOGIN, "sasl.jaas.config": f'Login required user"u" password={SECRET}"'},
    "key that is none": {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.key": KEY},
    "password of a key": {
        **TLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "-----BEGIN ENCRYPTED PRIVATE KEY----- AA== -----END ENCRYPTED PRIVATE KEY-----",
        "ssl.key.password": SECRET,
    },
    "password of a store": {
        **TLS,
        "ssl.keystore.location": "/no/such/store",
        "ssl.keystore.password": SECRET,
    },
    "password of a trust store": {
        **TLS,
        "ssl.truststore.location": __file__,
        "ssl.truststore.password": SECRET,
    },
    "other name": {**LOGIN, "security.protocol": "SASL", "ssl.key.password": SECRET},
}


def written(properties: Mapping[str, str], folder: Path) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)
    return path


def started(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def shown(*arguments: object, **environment: str) -> str:
    """Everything that a command writes."""
    with started(*arguments, **environment) as process:
        out, err = process.communicate(timeout=120)
    return out + err


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with klog.testing.broker() as one:
        yield one.bootstrap_servers


@pytest.mark.parametrize("name", PROPERTIES)
def test_no_error_or_log_line_has_a_secret(name: str, broker: str, tmp_path: Path) -> None:
    file = written(PROPERTIES[name], tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as dead:
        port = dead.getsockname()[1]
    for server in (broker, f"127.0.0.1:{port}"):
        said = shown(
            *("topics", "list", "--command-config", file, "--bootstrap-server", server, "--timeout-ms", 500)
        )
        assert "klog:" in said
        assert SECRET not in said


@pytest.mark.parametrize(
    "line",
    [f"sasl.jaas.config=\\u12{SECRET}", f"ssl.key.password {SECRET}\\", f"=\\uZZZZ{SECRET}"],
)
def test_no_error_about_a_file_of_properties_shows_its_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\n")
    said = shown("topics", "list", "--command-config", file, "--bootstrap-server", "127.0.0.1:1")
    assert "klog:" in said
    assert SECRET not in said


def test_tables_and_files_of_profiles_show_no_secret(tmp_path: Path) -> None:
    everything = {
        **LOGIN,
        "ssl.key.password": SECRET,
        "ssl.keystore.key": KEY,
        "ssl.truststore.password": SECRET,
    }
    file = written(everything, tmp_path)
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    server = ("--bootstrap-server", "127.0.0.1:1")
    assert SECRET not in shown("profile", "add", "p", "--command-config", file, *server, **home)
    for form in ("table", "json", "csv"):
        said = shown("profile", "show", "p", "-o", form, **home)
        assert "sasl.jaas.config" in said
        assert SECRET not in said
        assert SECRET not in shown("profile", "list", "-o", form, **home)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert len(kept) == 2
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}


@contextmanager
def silent() -> Iterator[tuple[int, threading.Event]]:
    """The port of a server that never answers, and whether somebody has connected."""
    held: list[socket.socket] = []
    connected = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return
                connected.set()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1], connected
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for each in held:
                each.close()


def test_the_title_of_the_process_has_no_secret(tmp_path: Path) -> None:
    file = written(LOGIN, tmp_path)
    with silent() as (port, connected):
        command = ("topics", "list", "--command-config", file, "--bootstrap-server", f"127.0.0.1:{port}")
        with started(*command, "--timeout-ms", 60_000) as process:
            assert connected.wait(60)
            status = Path(f"/proc/{process.pid}")
            assert SECRET not in (status / "cmdline").read_text()
            assert SECRET not in (status / "comm").read_text()
            process.kill()


@pytest.mark.parametrize("name", ["login", "scram", "token"])
def test_the_values_of_a_login_do_not_show_its_secret(name: str) -> None:
    assert SECRET not in repr(settings_of(PROPERTIES[name], bootstrap="127.0.0.1:1"))
