"""`--verify` notices whatever is wrong with an output."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash

from klog.export.verify_export import Finding
from klog.export.writers import Format
from tests import corpora
from tests.export.export_support import data_files, export

LOG = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path


def findings(output: Path, **how) -> list[str]:
    report = export(LOG, output, resume=True, verify=True, **how)
    assert report.findings is not None
    assert report.clean == (not report.findings)
    return [str(finding) for finding in report.findings]


@pytest.fixture(params=[Format.PARQUET, Format.ORC, Format.JSONL])
def wanted(request) -> Format:
    return request.param


def test_a_correct_output_has_no_findings(wanted, tmp_path) -> None:
    export(LOG, tmp_path / "out", format=wanted)
    assert findings(tmp_path / "out", format=wanted) == []


def test_a_changed_byte_is_found(wanted, tmp_path) -> None:
    export(LOG, tmp_path / "out", format=wanted)
    path = data_files(tmp_path / "out")[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    name = path.relative_to(tmp_path / "out")
    assert findings(tmp_path / "out", format=wanted) == [f"{name}: its checksum is wrong"]


def forge(output: Path, change) -> None:
    """Replace the first file's rows, and make the state agree."""
    path = data_files(output)[0]
    with path.open("rb") as file:
        table = change(pq.ParquetFile(file).read())
    pq.write_table(table, path)
    state = output / "_klog/manifest.json"
    manifest = json.loads(state.read_text())
    for split in manifest["splits"]:
        for file in split["files"]:
            if file["name"] == path.relative_to(output).as_posix():
                file["checksum"] = xxhash.xxh3_128(path.read_bytes()).hexdigest()
                file["sizeBytes"] = path.stat().st_size
    state.write_text(json.dumps(manifest))


def test_a_missing_record_is_found_by_its_offset(tmp_path) -> None:
    export(LOG, tmp_path / "out")
    forge(tmp_path / "out", lambda table: table.slice(1))
    assert findings(tmp_path / "out") == [
        "split 0 (t-gzip-0): 139 records are in the output, 140 in the segment",
        "split 0 (t-gzip-0): 1 offsets missing: 0",
    ]


def test_a_record_that_comes_twice_is_found_by_its_offset(tmp_path) -> None:
    import pyarrow as pa

    export(LOG, tmp_path / "out")
    forge(tmp_path / "out", lambda table: pa.concat_tables([table.slice(0, 139), table.slice(3, 1)]))
    assert findings(tmp_path / "out") == [
        "split 0 (t-gzip-0): 1 offsets missing: 139",
        "split 0 (t-gzip-0): 1 offsets too many: 3",
    ]


def test_a_file_that_no_split_has_made_is_found(tmp_path) -> None:
    export(LOG, tmp_path / "out")
    first = data_files(tmp_path / "out")[0]
    name = first.name.replace("-00000.parquet", "-00099.parquet")
    (first.parent / name).write_bytes(first.read_bytes())
    from klog.export.job_state import load
    from klog.export.open_output import open_output
    from klog.export.plan_json import result_from_json
    from klog.export.verify_export import verify_names

    output = open_output(str(tmp_path / "out"))
    results = map(result_from_json, load(output)["splits"])
    assert verify_names(results, output) == (
        Finding(f"topic=t-gzip/partition=0/{name}", "belongs to no split"),
    )


def test_without_an_offset_column_records_are_counted(tmp_path) -> None:
    export(LOG, tmp_path / "out", columns=("value",))
    assert findings(tmp_path / "out", columns=("value",)) == []
