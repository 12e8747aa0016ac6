"""A key leads from one view of `klog top` to another, and a view says which rows are shown in which order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pytest

from klog.admin.groups import Group, PartitionLag
from klog.admin.health import ClusterState
from klog.admin.rates import Sample
from klog.admin.requests.cluster_description import BrokerNode, ClusterNodes
from klog.admin.topics import Partition, Topic
from klog.client.groups import CommittedOffset
from klog.commands.cluster.top_rows import Look, groups_beside, rows_of
from klog.commands.cluster.top_view import (
    KEYS,
    Page,
    View,
    arranged,
    footer,
    name_of,
    press,
    selected_row,
    window,
)
from klog.commands.shared.keyboard import keys_in
from klog.commands.shared.tables import Row
from klog.formats.names import TopicPartition

ROWS: list[Row] = [
    {"topic": "prices", "rate": 5.0, "size": 10},
    {"topic": "orders", "rate": None, "size": 30},
    {"topic": "old-orders", "rate": 7.0, "size": 20},
]


def pressed(*keys: str, view: View = View(), rows: Sequence[Row] = ROWS) -> View:
    return reduce(lambda now, key: press(now, key, arranged(now, rows)), keys, view)


def names(view: View) -> list[str]:
    return [name_of(row) for row in arranged(view, ROWS)]


def test_q_ends_it() -> None:
    assert pressed("q").is_over
    assert not pressed("x", "up", "enter").is_over


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ([], ["prices", "orders", "old-orders"]),
        (["r"], ["old-orders", "orders", "prices"]),
        (["s"], ["old-orders", "orders", "prices"]),
        (["s", "r"], ["prices", "orders", "old-orders"]),
        (["s", "s"], ["old-orders", "prices", "orders"]),
        (["s", "s", "r"], ["prices", "old-orders", "orders"]),
        (["s", "s", "s"], ["orders", "old-orders", "prices"]),
        (["s", "s", "s", "s"], ["prices", "orders", "old-orders"]),
    ],
    ids=str,
)
def test_s_takes_the_next_field_to_sort_by_and_r_reverses(keys: list[str], shown: list[str]) -> None:
    """Texts ascend, numbers descend, and what has no number comes last."""
    assert names(pressed(*keys)) == shown


def test_the_field_that_sorts_is_named_as_its_column() -> None:
    assert footer(View(sort="recordsInPerSec", is_reversed=True))[0] == (
        "topics, sorted by RECORDS-IN/S, reversed"
    )


def test_a_filter_is_typed_and_may_have_letters_that_are_keys() -> None:
    typing = pressed("/", *"qrORD")
    assert typing.is_typing
    assert footer(typing)[0] == "filter: qrORD_"
    kept = pressed(*["backspace"] * 5, *"ORD", "enter", view=typing)
    assert (names(kept), kept.is_typing) == (["orders", "old-orders"], False)
    assert footer(kept)[0] == "topics, with 'ORD' (Esc: all)"
    assert pressed("escape", view=kept) == View()
    assert pressed("escape", view=typing) == View()


def test_the_selected_row_is_known_by_its_name() -> None:
    view = pressed("down", "j")
    assert view.selected == "old-orders"
    assert selected_row(view, arranged(view, ROWS)) == 2
    sorted_by_name = pressed("s", view=view)
    assert selected_row(sorted_by_name, arranged(sorted_by_name, ROWS)) == 0
    assert pressed("down", view=view).selected == "old-orders"
    assert pressed("up", "k", "up", view=view).selected == "prices"
    assert selected_row(view, ROWS[:2]) == 0


def test_enter_opens_the_selected_row_and_escape_goes_back() -> None:
    listed = pressed("s", "down")
    opened = pressed("enter", view=listed)
    assert (opened.page, opened.name) == (Page.TOPIC, "orders")
    assert pressed("enter", view=opened) == opened
    assert footer(opened) == ["topic orders, Esc: back", KEYS]
    assert pressed("escape", view=opened) == pressed("backspace", view=opened) == listed
    assert pressed("escape") == View()
    assert pressed("enter", rows=[]) == View()


def test_brokers_and_groups_are_listed_and_opened() -> None:
    rows: list[Row] = [{"broker": 4}]
    opened = pressed("b", "enter", rows=rows)
    assert (opened.page, opened.name) == (Page.BROKER, "4")
    rows = [{"group": "billing"}]
    opened = pressed("enter", view=pressed("g", view=opened), rows=rows)
    assert (opened.page, opened.name) == (Page.GROUP, "billing")
    assert pressed("t", view=opened) == View()


@pytest.mark.parametrize(("selected", "shown"), [(0, "abc"), (2, "abc"), (3, "bcd"), (4, "cde")])
def test_the_selected_row_is_among_those_that_fit(selected: int, shown: str) -> None:
    rows: list[Row] = [{"name": each} for each in "abcde"]
    assert "".join(map(name_of, window(rows, selected, 3))) == shown
    assert window(rows, selected, 9) == rows


def test_a_terminal_sends_keys_as_bytes() -> None:
    assert keys_in(b"q\x1b[A\x1bOB\r\n\x7f\x08\x1b") == [
        *("q", "up", "down", "enter", "enter", "backspace", "backspace", "escape")
    ]
    assert keys_in("ä\x01\x1b[5~\x1b[1;5Cb".encode()) == ["ä", "b"]


def look() -> Look:
    parts = (Partition(0, 1, 0, (1, 2), (1,), ()), Partition(1, -1, 0, (2,), (2,), ()))
    a0, b0 = TopicPartition("a", 0), TopicPartition("b", 0)
    topics = tuple(Topic(name, None, is_internal=False, partitions=parts, settings=()) for name in "ab")
    state = ClusterState(ClusterNodes("id", 1, (BrokerNode(1, "h", 9092, None),)), topics)
    groups = tuple(
        Group(name, "Empty", "consumer", "", 1, "h:1", (), (PartitionLag(key, offset, 9, None),))
        for name, key, offset in (("g", a0, CommittedOffset(4, -1, "")), ("h", b0, None))
    )
    sample = Sample(0, state, {a0: 9}, {a0: 70}, groups)
    return Look(0, sample, (), ROWS, [{"group": "g"}, {"group": "h"}])


def test_a_topic_shows_its_partitions_and_who_reads_it() -> None:
    view = View(Page.TOPIC, "a")
    first, second = rows_of(view, look())
    assert first == {
        "partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "logEndOffset": 9, "size": 70
    }  # fmt: skip
    assert (second["leader"], second["logEndOffset"]) == (None, None)
    assert groups_beside(view, look()) == [{"group": "g"}]
    assert rows_of(View(Page.TOPIC, "gone"), look()) == []


def test_brokers_show_what_they_lead_and_what_is_not_in_sync() -> None:
    assert rows_of(View(Page.BROKERS), look()) == [
        {"broker": 1, "address": "h:9092", "leaders": 2, "replicas": 2, "notInSync": 0},
        {"broker": 2, "address": None, "leaders": 0, "replicas": 4, "notInSync": 2},
    ]
    of_two = rows_of(View(Page.BROKER, "2"), look())
    assert [(row["partition"], row["role"], row["inSync"]) for row in of_two] == [
        *(("a-0", "follower", "no"), ("a-1", "follower", "yes")),
        *(("b-0", "follower", "no"), ("b-1", "follower", "yes")),
    ]


def test_a_group_shows_its_lag_by_partition() -> None:
    lags = [rows_of(View(Page.GROUP, name), look()) for name in "gh"]
    assert lags == [
        [{"partition": "a-0", "committed": 4, "logEndOffset": 9, "lag": 5}],
        [{"partition": "b-0", "committed": None, "logEndOffset": 9, "lag": None}],
    ]
