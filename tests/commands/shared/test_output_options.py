"""Rows as a table, JSON, JSON Lines and CSV, and what is shown again and again."""

from __future__ import annotations

import csv
import io
import json

import pytest

from klog.commands.shared.output import OutputFormat, OutputOptions, WatchOptions
from klog.formats.errors import KlogError
from tests.commands.running import Run

ROWS = (
    {"topic": "a,b", "logEndOffset": 12, "isr": [1, 2], "leader": None, "isInternal": True},
    {"topic": 'q"x', "logEndOffset": 7, "isr": [], "leader": 3, "isInternal": False},
)


def shown(capsys: pytest.CaptureFixture[str], options: OutputOptions) -> str:
    options.show(ROWS, columns=("topic", "logEndOffset", "isr"))
    return capsys.readouterr().out


def test_a_table_has_the_columns_that_the_command_chose(capsys) -> None:
    assert shown(capsys, OutputOptions()).splitlines() == [
        "TOPIC  LOG-END-OFFSET  ISR",
        "a,b                12  1,2",
        'q"x                 7  -',
    ]


def test_json_is_one_list_with_all_fields(capsys) -> None:
    assert json.loads(shown(capsys, OutputOptions(OutputFormat.JSON))) == list(ROWS)


@pytest.mark.parametrize("options", [OutputOptions(OutputFormat.JSONL), OutputOptions(as_json=True)])
def test_json_lines_have_an_object_a_row(capsys, options: OutputOptions) -> None:
    assert [json.loads(line) for line in shown(capsys, options).splitlines()] == list(ROWS)


def test_csv_is_read_back_by_other_programs(capsys) -> None:
    names, first, second = csv.reader(io.StringIO(shown(capsys, OutputOptions(OutputFormat.CSV))))
    assert names == list(ROWS[0])
    assert first == ["a,b", "12", "[1, 2]", "", "true"]
    assert second == ['q"x', "7", "[]", "3", "false"]


def test_nothing_is_an_empty_list_in_json_and_no_line_elsewhere(capsys) -> None:
    printed = []
    for form in OutputFormat:
        OutputOptions(form).show(())
        printed.append(capsys.readouterr().out)
    assert printed == ["", "[]\n", "", ""]


class StoppedError(Exception):
    """What ends a watch in these tests, in place of Ctrl-C."""


def test_a_watch_goes_on_after_an_error(capsys) -> None:
    pauses: list[float] = []
    calls: list[int] = []

    def show() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KlogError("no broker listens")

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        WatchOptions(watch_s=0.5).run(show, sleep_s=sleep)
    assert (len(calls), pauses) == (3, [0.5, 0.5, 0.5])
    assert "no broker listens" in capsys.readouterr().err


def test_without_watch_an_error_is_raised() -> None:
    def show() -> None:
        raise KlogError("no broker listens")

    with pytest.raises(KlogError, match="no broker"):
        WatchOptions().run(show)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("topics", "describe"),
        ("configs", "describe", "--entity-type", "topics", "--all"),
        ("groups", "list"),
        ("transactions", "list"),
        ("cluster",),
        ("brokers",),
        ("brokers", "api-versions"),
        ("offsets",),
        ("log-dirs",),
    ],
)
def test_listings_have_the_same_rows_in_each_form(klog: Run, topic: str, words: tuple[str, ...]) -> None:
    def out(*options: str) -> str:
        outcome = klog(*words, *options)
        assert outcome.code == 0, outcome.err
        return outcome.out

    lines = [json.loads(line) for line in out("-o", "jsonl").splitlines()]
    assert [list(row) for row in json.loads(out("--output", "json"))] == [list(row) for row in lines]
    assert [list(json.loads(line)) for line in out("--json").splitlines()] == [list(row) for row in lines]
    table = list(csv.reader(io.StringIO(out("-o", "csv"))))
    assert all(len(row) == len(table[0]) for row in table)
    assert (len(table) > 1) == bool(lines)


def test_rows_of_csv_are_partitions(klog: Run, topic: str) -> None:
    (row,) = csv.DictReader(io.StringIO(klog("topics", "describe", topic, "-o", "csv").out))
    assert (row["topic"], row["partition"]) == (topic, "0")
