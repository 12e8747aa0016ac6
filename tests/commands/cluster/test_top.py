"""`klog top` on every kind of cluster: what was written and read between two looks."""

from __future__ import annotations

import json

import pytest

from tests.commands.clusters import KINDS
from tests.commands.running import Run

pytestmark = pytest.mark.parametrize("cluster", KINDS, indirect=True)


def test_each_look_is_one_object(klog: Run, topic: str) -> None:
    assert klog("produce", topic, "x", "y", "z").code == 0
    assert klog("consume", topic, "--group", f"of-{topic}", "--limit", 1).code == 0
    shown = klog("top", "--count", 2, "--interval", "0.1", "-o", "jsonl")
    assert shown.code == 0, shown.err
    first, second = map(json.loads, shown.out.splitlines())
    for look in (first, second):
        (found,) = (each for each in look["topics"] if each["topic"] == topic)
        assert found["size"] > 0
        (group,) = (each for each in look["groups"] if each["group"] == f"of-{topic}")
        assert group["lag"] == 2
    assert found["recordsInPerSec"] == found["recordsOutPerSec"] == group["lagGrowthPerSec"] == 0
    assert next(each for each in first["topics"] if each["topic"] == topic)["recordsInPerSec"] is None


def test_people_see_health_topics_and_groups(klog: Run, topic: str) -> None:
    assert klog("produce", topic, "x").code == 0
    shown = klog("top", "--count", 1)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith("healthy  ")
    assert lines[2].split() == ["TOPIC", "PARTITIONS", "RECORDS-IN/S", "BYTES-IN/S", "RECORDS-OUT/S", "SIZE"]
    assert any(line.startswith(f"{topic} ") for line in lines)
    assert not any(line.startswith("__consumer_offsets") for line in lines)


@pytest.mark.parametrize(
    "options", [("--interval", "0"), ("-o", "csv"), ("-o", "json"), ("--count", "0")], ids=str
)
def test_what_it_cannot_do_is_wrong_usage(klog: Run, options: tuple[str, str]) -> None:
    refused = klog("top", *options)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
