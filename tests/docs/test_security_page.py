"""The ten commands of the page on security run as they are written, pasted into one shell."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

from tests.corpora import REPOSITORY
from tests.peers.broker import free_port

_TITLE = "## From nothing to SCRAM over TLS, in ten commands"
_ADDRESS = "localhost:9093"
_COMMAND = re.compile(r"^(openssl|\(umask|klog) ", re.MULTILINE)
_BROKER_STOPS = "trap 'kill %1; wait' EXIT"

# What alice may do then. Each line says the exit code of an attempt to write a record.
_AS_ALICE = """
cat > alice <<END
bootstrap.servers=localhost:9093
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=certificate.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=ScramLoginModule required username=alice password=wonder;
END
sed s/wonder/guess/ alice > guess
sed s/SASL_SSL/PLAINTEXT/ alice > plaintext
klog topics create others > /dev/null
echo record | klog produce orders --command-config alice; echo "alice: $?"
echo record | klog produce orders --command-config guess; echo "guess: $?"
echo record | klog produce orders --command-config plaintext; echo "plaintext: $?"
echo record | klog produce others --command-config alice; echo "others: $?"
"""


def ten_commands() -> str:
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition(f"\n{_TITLE}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return str(block)


def test_there_are_ten_commands() -> None:
    assert len(_COMMAND.findall(ten_commands())) == 10


def test_the_ten_commands_secure_a_broker_that_alice_may_write_to(tmp_path: Path) -> None:
    script = f"set -e\n{_BROKER_STOPS}\n{ten_commands()}\nset +e\n{_AS_ALICE}"
    env = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", script.replace(_ADDRESS, f"localhost:{free_port()}")],
        input="wonder\n",  # what `klog users set-password alice` asks for
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=False,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.findall(r"^(\w+) +SCRAM-SHA-512 +4096$", done.stdout, re.MULTILINE) == ["admin", "alice"], said
    assert done.stdout.splitlines()[-4:] == ["alice: 0", "guess: 1", "plaintext: 1", "others: 1"], said
    for secret in ("key.pem", "keystore.pem", "admin.password", "server.properties"):
        assert stat.S_IMODE((tmp_path / secret).stat().st_mode) == 0o600, secret
