"""Tables of rows keep to the screen, and their columns stay in line."""

from __future__ import annotations

import io

import pytest

from klog.commands.shared.tables import show_table

ROWS = [
    {"topic": "orders", "partitions": 6, "recordsIn": "-", "size": "10.6 KiB"},
    {"topic": "customer-address-changes", "partitions": 12, "recordsIn": "-", "size": "142 B"},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    show_table(ROWS, stream=stream)
    return stream.getvalue().splitlines()


def test_a_table_that_fits_is_as_wide_as_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(80, monkeypatch) == [
        "TOPIC                     PARTITIONS  RECORDS-IN  SIZE",
        "orders                             6  -           10.6 KiB",
        "customer-address-changes          12  -           142 B",
    ]


def test_a_cell_that_sticks_out_takes_the_blanks_of_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(52, monkeypatch) == [
        "TOPIC               PARTITIONS  RECORDS-IN  SIZE",
        "orders                       6  -           10.6 KiB",
        "customer-address-changes    12  -           142 B",
    ]
