"""The README's broker block runs as it is written, pasted into one shell, also if the broker starts late."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.corpora import REPOSITORY
from tests.metadata.proxy import Proxy
from tests.peers.broker import free_port
from tests.waiting import eventually

_BLOCKS = re.compile(r"```sh\n(.*?)```", re.DOTALL)

# `klog` with a broker on a port of its own. With LATE the broker runs, but clients reach it only when a
# command has said that it waits: a broker that is started then may take longer than a command waits.
_KLOG = """#!/bin/bash
if [ "$1" = serve ]; then
    exec {klog} "$@" -o listeners=PLAINTEXT://127.0.0.1:{broker_port} \\
        -o advertised.listeners=PLAINTEXT://127.0.0.1:{port} 2> broker.log
fi
[ -z "$LATE" ] || until (: < /dev/tcp/127.0.0.1/{broker_port}) 2> /dev/null; do sleep 0.05; done
exec {klog} "$@"
"""


def broker_block() -> str:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in _BLOCKS.findall(readme) if "klog serve &" in block]
    return block


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
def test_the_broker_block_works_pasted_as_it_is(tmp_path: Path, late: bool) -> None:
    port = free_port()
    broker_port = free_port() if late else port
    installed = shutil.which("klog", path=str(Path(sys.executable).parent))
    wrapper = tmp_path / "bin" / "klog"
    wrapper.parent.mkdir()
    wrapper.write_text(_KLOG.format(klog=installed, port=port, broker_port=broker_port))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    env = {
        **os.environ,
        "PATH": os.pathsep.join((str(wrapper.parent), os.environ["PATH"])),
        "KLOG_BOOTSTRAP_SERVER": f"127.0.0.1:{port}",
        "LATE": "yes" if late else "",
        "LC_ALL": "C.UTF-8",
    }
    (tmp_path / "stderr").touch()
    script = f"exec 2> stderr\ntrap 'kill %1; wait' EXIT\n{broker_block()}"
    with (tmp_path / "stdout").open("wb") as out, ExitStack() as stack:
        script_run = subprocess.Popen(["/bin/bash", "-c", script], cwd=tmp_path, env=env, stdout=out)
        if late:
            said_in = tmp_path / "stderr"
            eventually(lambda: "waiting up to" in said_in.read_text() or script_run.poll() is not None)
            stack.callback(Proxy(broker_port, port).close)
        returned = script_run.wait()
    said = (tmp_path / "stderr").read_text() + (tmp_path / "broker.log").read_text()
    assert returned == 0, said
    lines = (tmp_path / "stdout").read_text().splitlines()
    assert len(lines) == 5, said
    places = [re.fullmatch(r"orders-([012])@(\d+) (user\d)=bought", line) for line in lines]
    assert all(places), lines
    assert {place[3] for place in places if place} == {f"user{number}" for number in range(1, 6)}
    assert len({place[1] for place in places if place}) > 1, "the topic has several partitions"
    assert ("waiting up to 4 s" in said) or not late


def test_every_shell_block_of_the_readme_is_run_here_or_by_ci() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    ci = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    marked = re.findall(r"<!-- ([\w-]+) -->\n```sh\n", readme)
    assert {"first-command", "test-command"} <= set(marked)
    assert all(f"readme_command {name}" in ci for name in marked)
    assert len(_BLOCKS.findall(readme)) == len(marked) + 1
