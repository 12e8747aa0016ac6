"""`klog serve`: messages and exit codes if it cannot start, as lines and as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import child
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

RUN = "from klog.commands.main import main; main()"


def serve(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`klog serve` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-c", RUN, "serve", *args],
        capture_output=True,
        check=False,
        text=True,
        cwd=cwd,
        env=os.environ,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (["-o", "num.partitions=x"], 2, "Invalid value x for configuration num.partitions"),
        (["-o", "broker.id=5", "-o", "node.id=6"], 2, "Invalid value 6 for configuration node.id"),
        (["-o", "authorizer.class.name=x.Y"], 2, "it has kafka.security.authorizer.AclAuthorizer only"),
        (["-o", "novalue"], 2, "an option is written key=value"),
        (["--config", "nosuch.properties"], 1, "nosuch.properties: cannot be opened"),
        (["--config", sys.executable], 1, f"{sys.executable} at byte 0: is no text: it has the byte "),
        (["--config", "README.md"], 2, "README.md: holds no config that a broker knows"),
        (["-o", "listeners=PLAINTEXT://192.0.2.1:1"], 1, "cannot listen at 192.0.2.1:1"),
    ],
)
def test_a_bad_start_is_one_line_and_in_json_one_object(
    tmp_path: Path, args: list[str], code: int, why: str
) -> None:
    (tmp_path / "README.md").write_text("# klog\n\nKafka's log, in Python: read and repair.\n")
    plain = serve(*args, cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (code, "")
    assert plain.stderr.splitlines()[-1].startswith("klog: ")
    assert why in plain.stderr
    objects = serve("--json-logs", *args, cwd=tmp_path)
    assert objects.returncode == code
    last = [json.loads(line) for line in objects.stderr.splitlines()][-1]
    assert last["level"] == "CRITICAL"
    assert why in last["message"]


def test_a_config_without_effect_is_a_warning(tmp_path: Path) -> None:
    asked = {
        "authorizer.class.name": "x.Y",
        "klog.allow.unenforced.configs": "authorizer.class.name",
        "log.retention.mss": "1",
    }
    with KlogBroker(tmp_path, asked) as klog:
        klog.start()
        klog.stop()
        texts = [line.rpartition("  ")[2] for line in klog.complaints]
    assert texts == [
        "unknown config log.retention.mss is ignored, did you mean log.retention.ms?",
        (
            "authorizer.class.name has no effect: it has kafka.security.authorizer.AclAuthorizer only, and"
            " without one every client could do everything"
        ),
    ]


def test_signals_that_come_while_the_process_ends_do_not_change_its_status(tmp_path: Path) -> None:
    said = tmp_path / "said"
    options = ["-o", f"log.dirs={tmp_path / 'logs'}", "-o", "listeners=PLAINTEXT://127.0.0.1:0"]
    with (
        said.open("w") as err,
        child([sys.executable, "-c", RUN, "serve", *options], stderr=err) as process,
    ):
        eventually(lambda: " serves " in said.read_text())
        process.terminate()
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.0005)
    assert process.returncode == 0
    assert "stopped cleanly" in said.read_text()
