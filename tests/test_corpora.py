"""The fixtures are whole: every corpus has the files its manifest lists, and Kafka's word about them."""

from __future__ import annotations

import pytest

from tests import corpora


@pytest.mark.parametrize("corpus", corpora.corpora(), ids=str)
def test_every_listed_file_is_there_with_its_size(corpus: corpora.Corpus) -> None:
    partitions = corpus.manifest["partitions"]
    assert partitions
    for partition, listed in partitions.items():
        for name, size_bytes in listed["files"].items():
            assert (corpus.path / partition / name).stat().st_size == size_bytes


@pytest.mark.parametrize("log_dir", corpora.log_dirs(), ids=str)
def test_every_partition_with_a_log_has_expected_batches_and_records(log_dir: corpora.LogDirectory) -> None:
    with_log = [partition for partition in log_dir.partitions() if partition.files(".log")]
    assert with_log
    for partition in with_log:
        in_logs = {path.name for path in partition.files(".log")}
        in_expected = {line["file"] for line in partition.expected_batches() if "file" in line}
        assert in_logs <= in_expected
        assert partition.expected_records() is not None


def test_a_prefix_that_names_no_corpus_is_an_error_rather_than_an_empty_test() -> None:
    with pytest.raises(AssertionError, match="no corpus"):
        corpora.corpora("no-such-corpus-")
