"""Shows all partitions of a snapshot by `kafka-metadata-shell`; arguments are the file and the last topic.

The shell takes commands before it has read the snapshot to its end, and then knows only a part or nothing. So
it is asked for the last topic until it knows that one, and then for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import IO

from tests.peers import KafkaPeer
from tests.peers.kafka import KAFKA_4, STOCK_TOOL_FLAGS, java_environment
from tests.peers.maven import require_program
from tests.peers.metadata_shell import metadata_shell_jars

_TOPICS = "/image/topics/byName"
_ASK_EVERY_S = 0.02
_UNKNOWN = "No such file or directory"


def show(snapshot: str, last_topic: str) -> int:
    """Prints everything below the topics' names. Returns how many lines it printed."""
    classpath = os.pathsep.join((*map(str, metadata_shell_jars()), KafkaPeer(KAFKA_4).classpath))
    java = (require_program("java"), *STOCK_TOOL_FLAGS, "-cp", classpath)
    process = subprocess.Popen(
        [*java, "org.apache.kafka.shell.MetadataShell", "--snapshot", snapshot],
        env=java_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    while not _knows(process.stdin, process.stdout, last_topic):
        time.sleep(_ASK_EVERY_S)
    shown, _ = process.communicate(f"tree {_TOPICS}\nexit\n")
    return shown.count("\n")


def _knows(questions: IO[str], answers: IO[str], topic: str) -> bool:
    questions.write(f"cat {_TOPICS}/{topic}/name\n")
    questions.flush()
    for line in answers:
        if _UNKNOWN in line:
            return False
        if line.rstrip().endswith(topic):
            return True
    raise SystemExit("kafka-metadata-shell ended before it knew the snapshot")


if __name__ == "__main__":
    print(show(*sys.argv[1:]))
