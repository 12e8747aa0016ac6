"""What Kafka versions wrote, backed up and restored: the same segments, and files that a broker trusts."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.run import TargetOptions, run_restore
from tests import corpora
from tests.backup.repositories import Backups, log_files, restored
from tests.commands.running import runner
from tests.corpora import LogDirectory

NAMES = [path.name for path in sorted(corpora.FIXTURES.iterdir()) if (path / "manifest.json").exists()]
INTACT = [
    each for name in NAMES if not corpora.Corpus(name).is_corrupt for each in corpora.Corpus(name).log_dirs()
]


@pytest.mark.parametrize("log_directory", INTACT, ids=str)
def test_a_restored_log_has_the_segments_that_were_backed_up(
    log_directory: LogDirectory,
    backups: Backups,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backups.run(log_directory.path)
    repository, request = backups.repository, RestoreRequest()
    selected = select(repository, request)
    plan = plan_of(repository, request, selected)
    path = tmp_path / "restored"

    run_restore(repository, plan, selected.manifest, TargetOptions(str(path), "WnrRcUjsTR6xk3yBsWKJjQ", (7,)))

    for partition, state in backups.states().items():
        found, kept = log_files(path / str(partition)), restored(repository, state)
        added = sum(len(each.cut.added) for each in plan.partitions if each.target == partition)
        assert list(found) == list(kept) or not kept
        for name, data in kept.items():
            assert found[name][: len(data)] == data
            assert len(found[name]) == len(data) or added or partition.topic.startswith("__")
    verified = runner(capfd, monkeypatch)("verify", path)
    assert verified.code == 0, verified.out
