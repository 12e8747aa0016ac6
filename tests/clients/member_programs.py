"""Members of groups in other languages: Java's consumer of Kafka 2.8, 3.9 and 4.1, and franz-go.

One process for each client runs all its members. `tests/peers/java/GroupMembers.java` and
`tests/peers/go/group_members/main.go` state the lines of its stdin and stdout.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.clients.group_clients import SESSION_MS, Assignors, Member
from tests.peers.golang import go_program
from tests.peers.kafka import KAFKA_2, KAFKA_3, KAFKA_4, QUICK_FLAGS, KafkaPeer, java_environment

ASSIGNORS: Assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")
_JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_END_TIMEOUT_S = 120


def java_command(version: str) -> list[str]:
    """Raises PeerUnavailableError."""
    return KafkaPeer(version).command(
        "GroupMembers", jvm_flags=(*QUICK_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    )


COMMANDS: Mapping[str, Callable[[], list[str]]] = {
    "java 2.8": lambda: java_command(KAFKA_2),
    "java 3.9": lambda: java_command(KAFKA_3),
    "java 4.1": lambda: java_command(KAFKA_4),
    "franz-go": lambda: [str(go_program("group_members"))],
}
"""The command line of each client's program. They raise PeerUnavailableError."""


class MemberProgram:
    """A context manager around one process. Its stderr is that of the test run."""

    def __init__(self, kind: str, command: Sequence[str]) -> None:
        self.kind = kind
        self._members: dict[str, ProgramMember] = {}
        self._ids = itertools.count()
        self._writing = threading.Lock()
        self._process = subprocess.Popen(
            command, env=java_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def add(self, member: ProgramMember) -> str:
        """Gives the member an id, and from now on what the process says of it."""
        with self._writing:
            member_id = str(next(self._ids))
            self._members[member_id] = member
        return member_id

    def send(self, *fields: str) -> None:
        with self._writing:
            assert self._process.stdin is not None
            self._process.stdin.write("\t".join(fields) + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, member_id, *more = line.rstrip("\n").split("\t")
            self._members[member_id].told(what, *more)
        for member in list(self._members.values()):
            member.told("ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join(_END_TIMEOUT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()


class ProgramMember(Member):
    """A member that runs in a program."""

    def __init__(self, program: MemberProgram, servers: str, topic: str, group: str, **options: str) -> None:
        self._program = program
        self._done = threading.Event()
        self._end = ""
        self._id = program.add(self)
        super().__init__(servers, topic, group, **options)

    def _run(self, servers, topic, group, options) -> None:
        assignor = options.get("assignor", "range")
        java = self._program.kind.startswith("java")
        configs = {"bootstrap.servers": servers, "group.id": group}
        if options.get("protocol") == "consumer":
            # The broker has the assignors and the timeouts.
            configs["group.protocol"] = "consumer"
        else:
            configs |= {
                "session.timeout.ms": str(SESSION_MS),
                "heartbeat.interval.ms": "500",
                "partition.assignment.strategy": (
                    f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[assignor]}" if java else assignor
                ),
            }
        if java:
            configs |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        if "instance" in options:
            configs["group.instance.id"] = options["instance"]
        self._program.send("join", self._id, topic, *(f"{name}={configs[name]}" for name in configs))
        while not self._stop.is_set() and not self._done.is_set():
            self._stop.wait(0.05)
        if not self._done.is_set():
            self._program.send("close", self._id)
            self._done.wait()
        if self._end:
            raise AssertionError(f"{self._program.kind}: {self._end}")

    def told(self, what: str, more: str = "") -> None:
        """Takes a line of the program. It is called in another thread than `_run`."""
        if what == "read":
            self.read.append(more.encode())
        elif what == "assigned":
            self.assigned = {int(each) for each in more.split(",") if each}
        elif not self._done.is_set():
            self._end = "" if what == "closed" else f"{what} {more}"
            self._done.set()
