"""The definitions of checkpoint files, and the fast reader and writer that are derived from them, agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import checkpoint_files, checkpoints
from klog.formats.checkpoint_files import LeaderEpochFile, OffsetCheckpointFile
from klog.formats.errors import FormatError
from tests import strategies as own

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted(path for path in FIXTURES.rglob("*-checkpoint") if path.is_file())


def offsets(data: bytes) -> list[tuple[Any, ...]]:
    parsed = checkpoint_files.parse(OffsetCheckpointFile, data)
    return [((entry.topic, entry.partition), entry.offset) for entry in parsed.entries]


def epochs(data: bytes) -> list[tuple[Any, ...]]:
    return [(line.epoch, line.startOffset) for line in checkpoint_files.parse(LeaderEpochFile, data).entries]


@given(own.offset_checkpoints)
def test_offsets_that_are_written_are_read_by_the_definition(
    checkpoint: checkpoints.OffsetCheckpoint,
) -> None:
    data = checkpoints.build_offsets(checkpoint)
    assert offsets(data) == list(checkpoint.entries)
    assert (
        checkpoint_files.build(OffsetCheckpointFile, checkpoint_files.parse(OffsetCheckpointFile, data))
        == data
    )


@given(own.epoch_checkpoints)
def test_epochs_that_are_written_are_read_by_the_definition(checkpoint: checkpoints.EpochCheckpoint) -> None:
    data = checkpoints.build_epochs(checkpoint)
    assert epochs(data) == list(checkpoint.entries)
    assert checkpoint_files.build(LeaderEpochFile, checkpoint_files.parse(LeaderEpochFile, data)) == data


ODD_TEXTS = st.lists(
    st.sampled_from(
        ["0", "1", "2", "-1", "+7", "x", "topic", "99999999999", " ", "\t", "\n", "\r\n", "\r", "é"]
    ),
    max_size=14,
).map(lambda parts: "".join(parts).encode())


@given(ODD_TEXTS | st.binary(max_size=12).map(lambda tail: b"0\n1\n1 " + tail))
def test_both_accept_the_same_texts(data: bytes) -> None:
    def read(by: Any) -> list[tuple[Any, ...]] | None:
        try:
            return list(by(data))
        except FormatError:
            return None

    assert read(epochs) == read(lambda text: checkpoints.parse_epochs(text).entries)
    assert read(offsets) == read(lambda text: checkpoints.parse_offsets(text).entries)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_files_of_every_version_are_read_alike_and_built_again(path: Path) -> None:
    data = path.read_bytes()
    of_epochs = path.name == "leader-epoch-checkpoint"
    definition = LeaderEpochFile if of_epochs else OffsetCheckpointFile
    fast = checkpoints.parse_epochs(data) if of_epochs else checkpoints.parse_offsets(data)
    assert (epochs if of_epochs else offsets)(data) == list(fast.entries)
    assert checkpoint_files.build(definition, checkpoint_files.parse(definition, data)) == data


def test_the_corpora_have_all_five_files() -> None:
    assert {path.name for path in FILES} >= {
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    }


@pytest.mark.parametrize(
    ("data", "position", "complaint"),
    [
        (b"0\n2\n1 5\n", 8, "2 entries announced, but 1"),
        (b"0\n1\n1 5 6\n", 8, "left over"),
        (b"0\n1\n1 x\n", 6, "'x' is no int64"),
        (b"1\n0\n", 2, "expected 0"),
    ],
)
def test_a_wrong_file_is_refused_with_a_position(data: bytes, position: int, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint) as caught:
        checkpoint_files.parse(LeaderEpochFile, data)
    assert caught.value.position_bytes == position
