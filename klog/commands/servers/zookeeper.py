"""`klog zookeeper`: runs a ZooKeeper server from PySpark's jars."""

from __future__ import annotations

import sys
from pathlib import Path

from klog.commands.shared.option_sets import optional


def zookeeper(
    data_dir: Path = optional(
        Path("klog-zookeeper"), "Where the server keeps its data.", "--data-dir", "-d", metavar="DIRECTORY"
    ),
    port: int = optional(2181, "The port to serve.", "--port", "-p", least=1, most=65535),
    host: str = optional("127.0.0.1", "The address to bind. There is no access control."),
) -> None:
    """Run one ZooKeeper server until it is interrupted, from the jars that pip brings with PySpark.

    Several brokers form a cluster around it: klog serve -o zookeeper.connect=127.0.0.1:2181. It is one server
    without a replica. For a cluster that must outlive the loss of a machine, run an ensemble of your own.

    It needs Java and PySpark (pip install pyspark). Its configuration is written to zoo.cfg in the data
    directory at each start.

    Examples:

    klog zookeeper
    klog zookeeper --data-dir /var/lib/zookeeper --port 2182
    """
    from klog.server.startup.zookeeper_runner import ZooKeeperLaunch, find_jars, find_java, prepare, run

    jars = find_jars()
    command = prepare(ZooKeeperLaunch(str(data_dir), port, host), jars, find_java())
    print(  # noqa: T201
        f"ZooKeeper {jars.version} at {host}:{port}, data in {data_dir}; Ctrl-C stops it",
        file=sys.stderr,
        flush=True,
    )
    run(command)
