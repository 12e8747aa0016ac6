"""The commands of docs/cluster.md start a cluster that survives the stop of a broker, as the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from klog.config.broker import KEYS_BY_NAME
from tests.corpora import REPOSITORY
from tests.docs.console import console_examples
from tests.peers.broker import free_port

PAGE = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
# The page's ports; the test has others.
PORTS = ("2181", "9092", "9093", "9094")
# A broker is waited for before the next command in the foreground, as a reader would.
AWAIT = "until grep -q -e ' serves ' -e 'data in' {log}; do kill -0 $! || exit 1; sleep 0.05; done\n"
# A broker serves before the others know it.
AWAIT_ALL = (
    'until [ "$(klog brokers --json | wc -l)" = {count} ]; do kill -0 $! || exit 1; sleep 0.05; done\n'
)


def script(examples: list[tuple[str, str]], directory: Path) -> str:
    """The commands, each with its output in a file: `0.out`, `1.out` ..."""
    lines = [f"cd {directory}\ntrap 'kill -9 $(jobs -p) 2>/dev/null; wait' EXIT\n"]
    started: list[str] = []
    for number, (command, _) in enumerate(examples):
        in_background = command.endswith(" &")
        if in_background:
            started.append(f"{number}.out")
            lines.append(f"{command[:-2]} > {number}.out 2>&1 &\n")
            continue
        if started:
            lines += [AWAIT.format(log=log) for log in started]
            lines.append(AWAIT_ALL.format(count=len(started) - 1))  # one of them is ZooKeeper
            started.clear()
        lines.append(f"{command} > {number}.out 2>&1 || exit 1\n")
    return "".join(lines + [AWAIT.format(log=log) for log in started])


def test_the_commands_start_a_cluster_and_print_what_is_shown(tmp_path: Path) -> None:
    ports = {known: str(free_port()) for known in PORTS}

    def at_free_ports(text: str) -> str:
        return re.sub("|".join(PORTS), lambda found: ports[found[0]], text)

    examples = [
        (
            at_free_ports(command).replace("klog zookeeper", f"klog zookeeper --port {ports['2181']}"),
            at_free_ports(shown),
        )
        for command, shown in console_examples(PAGE)
    ]
    done = subprocess.run(
        ["/bin/bash", "-c", script(examples, tmp_path)],
        env={
            **os.environ,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "KLOG_BOOTSTRAP_SERVER": f"127.0.0.1:{ports['9092']}",
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    outputs = [tmp_path / f"{number}.out" for number in range(len(examples))]
    printed = [each.read_text() if each.exists() else "not run" for each in outputs]
    assert done.returncode == 0, (done.stderr, printed)
    for (command, shown), output in zip(examples, printed, strict=True):
        assert is_like(output, shown), (command, output)


def is_like(output: str, shown: str) -> bool:
    """Whether the shown lines are there. Times, ids, versions and the choice of leaders differ."""
    found = set(map(_comparable, output.splitlines()))
    return found.issuperset(map(_comparable, shown.splitlines()))


def _comparable(line: str) -> str:
    line = re.sub(r"^\d\d:\d\d:\d\d\.\d+ ", "TIME ", line)
    line = re.sub(r"(cluster|id) [\w-]{22}\b", r"\1 ID", line)
    line = re.sub(r"ZooKeeper [\d.]+", "ZooKeeper VERSION", line)
    # Any replica may lead, and each is in sync.
    line = re.sub(r"^( +\d) +[123]( +0  )(?:[123],){2}[123] +(?:[123],){2}[123]( +-)$", r"\1\2\3", line)
    line = re.sub(r"\(partition .*\)", "(PLACES)", line)
    return " ".join(line.split())


def test_every_config_of_the_page_is_kafkas_and_has_the_default_that_is_shown() -> None:
    table = PAGE[PAGE.index("## What the configs do") : PAGE.index("A broker that does not fit")]
    defaults = {}
    for row in table.splitlines():
        if row.startswith("| `"):
            _, names, values, *_ = row.split("|")
            found = re.findall(r"`([a-z.]+)`", names)
            shown = [each.strip() for each in values.split(",")]
            defaults.update(zip(found, shown * len(found) if len(shown) == 1 else shown, strict=False))
    assert len(defaults) > 20
    only_dynamic = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
    assert defaults.keys() - KEYS_BY_NAME.keys() == only_dynamic
    for name, shown in defaults.items():
        if name in only_dynamic:
            continue
        default = KEYS_BY_NAME[name].default
        if shown.isdigit() or shown in ("true", "false"):
            assert str(default).lower() == shown, name
