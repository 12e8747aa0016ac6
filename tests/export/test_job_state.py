"""A job's state: they say what was done, and let a job go on only where it is the same job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from klog.export import job_state
from klog.export.layout import PartitionBy
from klog.export.open_output import open_output
from klog.export.options import Edge, Isolation
from klog.export.planner import plan
from klog.export.writers import Format
from klog.formats.errors import StorageError, UsageError
from tests import corpora
from tests.export.export_support import data_files, export, job_of, tree

LOG = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path


@pytest.fixture
def log(tmp_path) -> Path:
    """A copy that a test may change."""
    copy = tmp_path / "logs" / LOG.name
    shutil.copytree(LOG, copy)
    return copy


def begun(source: Path, output: Path) -> None:
    """The state of a job that has done its first split."""
    from klog.export.split_export import export_split

    job = job_of(source, output)
    progress = job_state.begin(job, lambda: plan(job.options))
    export_split(progress.pending[0], job)


def test_the_manifest_lists_every_split_with_its_offsets_rows_bytes_and_checksums(tmp_path) -> None:
    export(LOG, tmp_path / "out")
    state = json.loads((tmp_path / "out/_klog/manifest.json").read_text())
    files = [file for split in state["splits"] for file in split["files"]]
    assert [path.relative_to(tmp_path / "out").as_posix() for path in data_files(tmp_path / "out")] == sorted(
        file["name"] for file in files
    )
    for file in files:
        assert file["sizeBytes"] == (tmp_path / "out" / file["name"]).stat().st_size
        assert file["rows"] == file["lastOffset"] - file["firstOffset"] + 1
        assert len(file["checksum"]) == 32
    assert state["rows"] == sum(file["rows"] for file in files) == 420
    assert state["options"]["options"]["paths"] == [str(LOG)]
    assert [partition["topic"] for partition in state["plan"]["partitions"]] == ["t-gzip"]


def test_only_the_manifest_is_left_of_the_job_state(tmp_path) -> None:
    export(LOG, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out/_klog").iterdir()] == ["manifest.json"]


def test_a_second_export_writes_the_same_files_byte_for_byte(tmp_path) -> None:
    export(LOG, tmp_path / "one")
    export(LOG, tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_an_output_that_holds_an_export_is_refused_without_resume(tmp_path) -> None:
    export(LOG, tmp_path / "done")
    with pytest.raises(UsageError, match="holds a complete export"):
        export(LOG, tmp_path / "done")
    begun(LOG, tmp_path / "begun")
    with pytest.raises(UsageError, match=r"holds an unfinished export \(--resume goes on"):
        export(LOG, tmp_path / "begun")


@pytest.mark.parametrize("resume", [False, True])
def test_an_output_that_holds_something_else_is_refused_and_left_alone(resume, tmp_path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(UsageError, match=r"holds something else \(cat.jpg\)"):
        export(LOG, tmp_path / "photos", resume=resume)
    assert tree(tmp_path / "photos") == {"cat.jpg": b"meow"}
    assert list((tmp_path / "photos").iterdir()) == [tmp_path / "photos" / "cat.jpg"]


def test_resuming_a_complete_export_changes_nothing(tmp_path) -> None:
    export(LOG, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}
    report = export(LOG, tmp_path / "out", resume=True)
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()
    } == before
    assert (report.rows, report.exported_bytes) == (420, 0)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"format": Format.ORC}, "format was 'parquet', is 'orc'"),
        ({"compression": "none"}, "compression was 'zstd', is 'none'"),
        ({"columns": ("value",)}, "columns was None"),
        ({"partition_by": (PartitionBy.DAY,)}, "partitionBy was"),
        ({"read": {"include_headers": True}}, "options.includeHeaders was False, is True"),
        ({"read": {"isolation": Isolation.READ_COMMITTED}}, "options.isolation was 'read_uncommitted'"),
        ({"read": {"starting": Edge(-2, offsets={"t-gzip": {0: 3}})}}, "options.starting.offsets.t-gzip.0"),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_resuming_with_other_options_is_refused_and_they_are_named(complete, how, named, tmp_path) -> None:
    (export if complete else begun)(LOG, tmp_path / "out")
    before = tree(tmp_path / "out")
    with pytest.raises(UsageError, match="holds an export with other options") as caught:
        export(LOG, tmp_path / "out", resume=True, **how)
    assert named in str(caught.value)
    assert tree(tmp_path / "out") == before


def test_resuming_after_a_segment_was_rewritten_is_refused_and_it_is_named(log, tmp_path) -> None:
    begun(log, tmp_path / "out")
    last = log / "00000000000000000400.log"
    data = bytearray(last.read_bytes())
    data[-3] ^= 1
    last.write_bytes(data)
    with pytest.raises(UsageError, match=r"00000000000000000400\.log: has changed since"):
        export(log, tmp_path / "out", resume=True)


def test_resuming_after_a_segment_was_removed_is_refused(log, tmp_path) -> None:
    begun(log, tmp_path / "out")
    (log / "00000000000000000400.log").unlink()
    with pytest.raises(UsageError, match="has changed since"):
        export(log, tmp_path / "out", resume=True)


def test_a_log_that_has_grown_is_exported_as_it_was_planned(log, tmp_path) -> None:
    export(log, tmp_path / "before")
    begun(log, tmp_path / "out")
    with (log / "00000000000000000400.log").open("ab") as file:
        file.write(b"\0" * 100)
    export(log, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "before")


def test_a_split_whose_file_has_vanished_is_done_again(tmp_path) -> None:
    export(LOG, tmp_path / "whole")
    begun(LOG, tmp_path / "out")
    data_files(tmp_path / "out")[0].unlink()
    export(LOG, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_resume_starts_an_export_where_there_is_none(tmp_path) -> None:
    assert export(LOG, tmp_path / "out", resume=True).rows == 420


def test_two_exports_into_one_output_do_not_run_at_once(tmp_path) -> None:
    with (
        open_output(str(tmp_path / "out")).locked(),
        pytest.raises(UsageError, match="another export is writing"),
    ):
        export(LOG, tmp_path / "out")
    assert export(LOG, tmp_path / "out").rows == 420


def test_an_invalid_job_state_is_refused(tmp_path) -> None:
    (tmp_path / "out/_klog").mkdir(parents=True)
    (tmp_path / "out/_klog/job.json").write_text("not JSON")
    with pytest.raises(StorageError, match="is no state of an export"):
        export(LOG, tmp_path / "out", resume=True)
    (tmp_path / "out/_klog/job.json").write_text('{"version": 99}')
    with pytest.raises(UsageError, match="another version of klog"):
        export(LOG, tmp_path / "out", resume=True)


def test_a_plan_that_fails_leaves_no_output(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        export(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_inside_of_what_is_exported_is_refused(log) -> None:
    for place in (log.parent, log, log / "tables"):
        with pytest.raises(UsageError, match="is inside an input path"):
            export(log.parent, place)
    assert not (log / "tables").exists()
