"""Exports with decoded keys and values: typed columns, the same in every split, and no bad record dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klog.commands.offline.exporting.report_text import report_text
from klog.export import job_state
from klog.export.decoders.decoding import Encoding, RequestedDecoding
from klog.export.deserialise import BadRecords
from klog.export.planner import plan
from klog.export.split_export import export_split
from klog.formats.errors import UsageError
from klog.kernel.batch_builder import RecordData, build_batch
from tests import corpora
from tests.export.expected import log_rows
from tests.export.export_support import data_files, export, file_rows, job_of, table_rows, tree
from tests.export.logs import Log

JSON = RequestedDecoding(Encoding.JSON)
ROWS = 60
BAD = (7, 41)


def value_of(offset: int) -> bytes | None:
    if offset in BAD:
        return b"{ not JSON"
    if offset == 20:
        return None
    # A field that only the last segment has must be a column of all files.
    late = {"late": True} if offset >= 50 else {}
    return json.dumps({"id": offset, "name": f"n{offset}", **late}).encode()


@pytest.fixture
def log(tmp_path) -> Path:
    """Three segments of two batches each."""
    made = Log(tmp_path / "logs" / "orders-0")
    for first in range(0, ROWS, 10):
        if first and first % 20 == 0:
            made.roll()
        offsets = range(first, first + 10)
        made.append(
            bytes(build_batch([RecordData(at, 1000 + at, b"k%d" % at, value_of(at)) for at in offsets]))
        )
    return made.write()


def test_a_schema_is_inferred_once_and_all_files_have_it(log, tmp_path) -> None:
    export(log, tmp_path / "out", key=RequestedDecoding(Encoding.STRING), value=JSON)
    schemas = set()
    for path in data_files(tmp_path / "out"):
        with path.open("rb") as file:
            schemas.add(str(pq.ParquetFile(file).schema_arrow))
    assert len(schemas) == 1
    row = next(row for row in table_rows(tmp_path / "out") if row["offset"] == 59)
    assert row["key"] == "k59"
    assert row["value"] == {"id": 59, "late": True, "name": "n59"}


def test_bad_records_stay_with_the_reason_and_their_bytes(log, tmp_path) -> None:
    report = export(log, tmp_path / "out", value=JSON, verify=True)
    rows = table_rows(tmp_path / "out")
    assert [row["offset"] for row in rows] == list(range(ROWS))
    assert {row["offset"] for row in rows if row["_error"] is not None} == set(BAD)
    assert {row["_error"]["value"] for row in rows if row["_error"]} == {b"{ not JSON"}
    assert next(row for row in rows if row["offset"] == 20)["value"] is None
    assert (report.rows_with_error, report.rejected, report.clean, report.findings) == (2, 0, False, ())
    assert "2 records do not fit their schema: their column _error says why" in report_text(report)


def test_bad_records_are_rejected_on_request(log, tmp_path) -> None:
    report = export(log, tmp_path / "out", value=JSON, bad_records=BadRecords.REJECT, verify=True)
    rows = table_rows(tmp_path / "out")
    assert [row["offset"] for row in rows] == [at for at in range(ROWS) if at not in BAD]
    assert "_error" not in rows[0]
    rejects = sorted((tmp_path / "out/_rejects").rglob("*.jsonl"))
    rejected = [row for path in rejects for row in file_rows(path)]
    assert {row["offset"]: row["value"] for row in rejected} == dict.fromkeys(BAD, b"{ not JSON")
    assert all(row["_error"] for row in rejected)
    assert (report.rejected, report.rows_with_error, report.clean, report.findings) == (2, 0, False, ())


def test_errors_are_kept_where_only_some_columns_are_wanted(log, tmp_path) -> None:
    export(log, tmp_path / "out", value=JSON, columns=("value",))
    rows = file_rows(data_files(tmp_path / "out")[0])
    assert list(rows[0]) == ["value", "_error"]


@pytest.mark.parametrize("complete", [False, True])
def test_a_resumed_job_decodes_as_it_did_before(complete, log, tmp_path) -> None:
    """What is inferred is in the state: samples of a log that has grown might say something else."""
    export(log, tmp_path / "whole", value=JSON)
    if complete:
        export(log, tmp_path / "out", value=JSON)
        data_files(tmp_path / "out")[0].unlink()
    else:
        job = job_of(log, tmp_path / "out", value=JSON)
        progress = job_state.begin(job, lambda: plan(job.options))
        export_split(progress.pending[0], progress.job)
    with (log / f"{40:020d}.log").open("ab") as file:
        file.write(bytes(build_batch([RecordData(60, 1060, None, b'{"newer": 1}')])))
    export(log, tmp_path / "out", value=JSON, resume=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_resuming_with_another_decoding_is_refused(log, tmp_path) -> None:
    export(log, tmp_path / "out", value=JSON)
    with pytest.raises(UsageError, match=r"value.encoding was 'json', is 'string'"):
        export(log, tmp_path / "out", value=RequestedDecoding(Encoding.STRING), resume=True)


def test_an_invalid_decoding_request_leaves_no_output(log, tmp_path) -> None:
    with pytest.raises(UsageError, match="avro takes a schema"):
        export(log, tmp_path / "out", value=RequestedDecoding(Encoding.AVRO))
    assert not (tmp_path / "out").exists()


def test_decoded_columns_are_written_in_every_format(log, tmp_path) -> None:
    from klog.export.writers import Format

    export(log, tmp_path / "orc", value=JSON, format=Format.ORC)
    assert [row["value"] for row in table_rows(tmp_path / "orc")][59] == {
        "id": 59,
        "late": True,
        "name": "n59",
    }
    export(log, tmp_path / "jsonl", value=JSON, format=Format.JSONL, compression="none")
    texts = [path.read_text("utf-8") for path in data_files(tmp_path / "jsonl")]
    lines = [json.loads(line) for line in "".join(texts).splitlines()]
    assert lines[59]["value"] == {"id": 59, "late": True, "name": "n59"}


def test_readers_see_one_table(log, tmp_path) -> None:
    export(log, tmp_path / "out", value=JSON)
    table = pq.read_table(tmp_path / "out")
    assert table.num_rows == ROWS
    assert pa.types.is_struct(table.schema.field("value").type)


def test_internal_topics_are_separate_tables_on_request(tmp_path) -> None:
    logs = corpora.corpora("k39-groups")[0].log_dir()
    report = export(logs.path, tmp_path / "out", internal_tables=True, verify=True)
    assert report.findings == ()
    assert all("topic=__consumer_offsets" not in str(path) for path in data_files(tmp_path / "out"))
    tables = sorted((tmp_path / "out/__consumer_offsets").glob("*.parquet"))
    rows = [row for path in tables for row in file_rows(path)]
    places = {(row["recordPartition"], row["recordOffset"]) for row in rows}
    expected = [row for row in log_rows(logs) if row["topic"] == "__consumer_offsets"]
    assert places == {(row["partition"], row["offset"]) for row in expected}
    assert len(rows) == len(expected)
    commits = [row for row in rows if row["topic"] is not None]
    assert commits
    assert all(row["group"] is not None for row in commits)
