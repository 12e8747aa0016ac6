"""The page about Iceberg and Delta tables runs as written: with a catalogue in SQLite, and with delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.export.options import EARLIEST, LATEST, Edge
from tests.corpora import FIXTURES, REPOSITORY
from tests.docs.guide import Example, examples, run
from tests.export.export_support import export, table_rows
from tests.export.logs import Log, batch

PAGE = (REPOSITORY / "docs" / "tables.md").read_text(encoding="utf-8")


def section(name: str) -> list[Example]:
    """The examples below a heading."""
    return examples(PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0])


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "module"), [("Iceberg", "pyiceberg"), ("Delta", "deltalake")])
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_the_page_runs_as_written(directory: Path, name: str, module: str) -> None:
    pytest.importorskip(module, reason=f"needs {module} (pip install klog[test])")
    names: dict[str, object] = {}
    wanted = section(name)
    for example in wanted:
        run(example, directory, names)
    assert [kind for kind, _, _ in wanted] == ["console", "python"]


@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_of_two_exports_has_all_rows_once(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="needs pyiceberg (pip install klog[test])")
    import pyarrow.parquet as pq
    from pyiceberg.catalog.sql import SqlCatalog

    log = Log(tmp_path / "logs" / "t-0").append(*(batch(n * 5, 5, at=n * 1_000) for n in range(20)))
    log.write()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("kafka")
    table = None
    for name, bounds in (
        ("first", {"ending": edge(LATEST, 60)}),
        ("second", {"starting": edge(EARLIEST, 60)}),
    ):
        export(tmp_path / "logs", tmp_path / name, partition_by=(), read=bounds)
        files = sorted(map(str, (tmp_path / name).glob("*.parquet")))
        table = table or catalog.create_table("kafka.records", schema=pq.read_schema(files[0]))
        table.add_files(files)
    assert table is not None
    wanted = [row for name in ("first", "second") for row in table_rows(tmp_path / name)]
    found = table.scan().to_arrow().sort_by("offset")
    assert found.column("offset").to_pylist() == list(range(100)) == [row["offset"] for row in wanted]
    assert found.column("value").to_pylist() == [row["value"] for row in wanted]
    # The least and the greatest key and offset of each file let Iceberg skip files.
    for condition, files in (
        ("offset >= 90", 1),
        ("offset < 10", 1),
        ("offset > 1000", 0),
        ("offset >= 0", 2),
    ):
        assert len(list(table.scan(row_filter=condition).plan_files())) == files


def edge(default: int, offset: int) -> Edge:
    return Edge(default, offsets={"t": {0: offset}})
