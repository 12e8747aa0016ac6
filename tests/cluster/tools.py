"""Kafka's command line tools for clusters, run against brokers of any kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.cluster.tree import Partition
from tests.peers.tool_server import Ended, ToolServer
from tests.waiting import eventually

_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"
_LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
NOTHING_LISTED: Final = "No partition reassignments found."

Replicas = Mapping[Partition, Sequence[int]]


class ClusterTools:
    """Runs tools on the cluster at `bootstrap`; `work` is for the files that they read.

    A plan gives the replicas of partitions. `directories` has for some of them the log directory of each
    replica, `any` for one that is not to move.
    """

    def __init__(self, server: ToolServer, bootstrap: str, work: Path) -> None:
        self._server = server
        self._bootstrap = bootstrap
        self._file = work / "plan.json"

    def run(self, tool: str, *words: object) -> Ended:
        return self._server.run(tool, "--bootstrap-server", self._bootstrap, *words)

    def reassign(
        self,
        action: str,
        plan: Replicas,
        *words: object,
        directories: Mapping[Partition, Sequence[str]] | None = None,
    ) -> str:
        """What `kafka-reassign-partitions` prints for `--execute`, `--verify` or `--cancel`."""
        partitions: list[dict[str, Any]] = []
        for (topic, number), replicas in plan.items():
            partitions.append({"topic": topic, "partition": number, "replicas": list(replicas)})
            if directories is not None and (topic, number) in directories:
                partitions[-1]["log_dirs"] = list(directories[topic, number])
        self._file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        ended = self.run(_REASSIGN, f"--{action}", "--reassignment-json-file", self._file, *words)
        assert ended.status == 0, ended
        return ended.out

    def listed(self) -> str:
        """What `kafka-reassign-partitions --list` prints, which is an error while there is no controller."""
        return self.run(_REASSIGN, "--list").out.strip()

    def wait_until_complete(
        self,
        plan: Replicas,
        timeout_s: float = 120,
        directories: Mapping[Partition, Sequence[str]] | None = None,
    ) -> None:
        """Waits until `--verify` says that all has moved. It removes the throttles then."""
        found = ""

        def is_complete() -> bool:
            nonlocal found
            found = self.reassign("verify", plan, directories=directories)
            moved = found.count("completed successfully.")
            return found.count("is completed.") == len(plan) and moved == moving

        moving = sum(each != "any" for row in (directories or {}).values() for each in row)
        eventually(is_complete, timeout_s, lambda: f"not complete:\n{found}")

    def elect(self, kind: str, partitions: Iterable[Partition]) -> Ended:
        """`kafka-leader-election` of a kind, `preferred` or `unclean`."""
        wanted = [{"topic": topic, "partition": number} for topic, number in partitions]
        self._file.write_text(json.dumps({"partitions": wanted}))
        return self.run(_ELECT, "--election-type", kind, "--path-to-json-file", self._file)

    def log_dirs(self) -> dict[int, list[dict[str, Any]]]:
        """The log directories of each broker, as `kafka-log-dirs --describe` lists them."""
        ended = self.run(_LOG_DIRS, "--describe")
        assert ended.status == 0, ended
        (line,) = [each for each in ended.out.splitlines() if each.startswith("{")]
        return {each["broker"]: each["logDirs"] for each in json.loads(line)["brokers"]}
