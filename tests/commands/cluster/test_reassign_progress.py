"""What people see of copies that run: how much is left, and why one stands still."""

from __future__ import annotations

from dataclasses import replace

from klog.admin.reassign.progress import Copy, CopyKey
from klog.commands.cluster.reassigning.progress_view import summary, table_rows
from klog.formats.names import TopicPartition

RUNS = Copy(CopyKey(TopicPartition("t", 0), 1, None), 1024, 4096, 7, rate_bytes_per_s=1024.0)
STANDS = replace(RUNS, rate_bytes_per_s=0.0)
WAITS = replace(STANDS, is_throttled=True)


def test_a_copy_that_a_throttle_holds_says_so_instead_of_the_time_left() -> None:
    assert [row["left"] for row in table_rows([RUNS, STANDS, WAITS])] == [
        "3 s",
        None,
        "waits for the throttle",
    ]


def test_all_copies_wait_only_if_none_runs() -> None:
    ends = [summary(copies).rpartition(", ")[2] for copies in ([RUNS, WAITS], [WAITS, STANDS], [STANDS])]
    assert ends == ["6 s left", "waits for the throttle", "time left unknown"]


def test_a_lag_that_no_copy_has_is_no_column() -> None:
    unknown = replace(RUNS, offset_lag=None)
    assert [row.get("lag", "no column") for row in table_rows([unknown])] == ["no column"]
    assert [row["lag"] for row in table_rows([unknown, RUNS])] == [None, 7]
