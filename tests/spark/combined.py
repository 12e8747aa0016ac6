"""All corpora as one log directory: what one job of Spark, slow to start, can export at once."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klog.formats import names
from tests import corpora
from tests.export.expected import log_starts


@dataclass(frozen=True)
class Combined:
    """A log directory with a copy of every partition, its topic named after corpus and log directory."""

    path: Path
    origins: dict[str, corpora.PartitionDirectory]
    """By the topic's name here."""

    def by_log_dir(self, rows: list[dict[str, Any]]) -> dict[corpora.LogDirectory, list[dict[str, Any]]]:
        """The rows of an export with all columns, as if each log directory had been exported by itself."""
        found: dict[corpora.LogDirectory, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            origin = self.origins[f"{row['topic']}-{row['partition']}"]
            topic = names.parse_directory(origin.name).partition.topic
            file = str(origin.path / Path(row["file"]).name)
            found[origin.log_dir].append({**row, "topic": topic, "file": file})
        return found


def combine(path: Path) -> Combined:
    """Make one at `path`."""
    origins: dict[str, corpora.PartitionDirectory] = {}
    starts = []
    for log_dir in corpora.log_dirs():
        log_starts_here = log_starts(log_dir)
        for partition in log_dir.partitions():
            name = names.parse_directory(partition.name)
            if name.state is not names.DirectoryState.CURRENT:
                continue
            topic = f"{log_dir.corpus.name}.{log_dir.name}.{name.partition.topic}"
            copied = f"{topic}-{name.partition.partition}"
            shutil.copytree(partition.path, path / copied)
            origins[copied] = partition
            if (start := log_starts_here.get(name.partition)) is not None:
                starts.append(f"{topic} {name.partition.partition} {start}\n")
    (path / "log-start-offset-checkpoint").write_text(f"0\n{len(starts)}\n{''.join(starts)}")
    return Combined(path, origins)
