"""`klog top` on every kind of cluster: what was written and read between two looks."""

from __future__ import annotations

import json
import os
import pty
import sys

import pytest

from klog.commands.cluster.top_view import KEYS
from tests.commands.clusters import KINDS
from tests.commands.running import Run
from tests.commands.screens import on_screen

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


def test_keys_filter_sort_open_and_go_back(klog: Run, topic: str, cluster: str) -> None:
    for name in (topic, f"{topic}-other"):
        assert klog("produce", name, "x").code == 0
    steps = [
        ("q quit", b"/OTHER\n"),
        ("topics, with 'OTHER'", b"s"),
        ("topics, sorted by TOPIC, with 'OTHER'", b"\n"),
        ("PARTITION  LEADER", b""),
        (f"topic {topic}-other, Esc: back", b"\x1b"),
        ("topics, sorted by TOPIC, with 'OTHER'", b"b"),
        ("ADDRESS", b"\n"),
        ("broker ", b"q"),
    ]
    screen = on_screen("top", "--interval", 600, "--bootstrap-server", cluster, steps=steps, columns=120)
    assert screen.code == 0, screen.text
    assert screen.is_restored
    assert KEYS in screen.lines
    filtered = screen.text.split("with 'OTHER'")[0].rpartition("TOPIC ")[2]
    assert f"> {topic}-other " in filtered
    assert f"{topic} " not in filtered


JOB = """
set -m
{python} -c 'from klog.commands.main import main; main()' top --interval 600 --bootstrap-server {cluster}
printf 'STOPPED with '; stty -a | grep -o -- '-\\?icanon' ; fg
printf 'ENDED with '; stty -a | grep -o -- '-\\?icanon'
"""


def test_ctrl_z_gives_the_terminal_back_and_fg_shows_the_screen_again(cluster: str) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execvp("bash", ["bash", "-c", JOB.format(python=sys.executable, cluster=cluster)])
    seen = b""

    def until(text: bytes) -> bytes:
        nonlocal seen
        while text not in seen:
            seen += os.read(terminal, 65536)
        before, _, seen = seen.partition(text)
        return before

    until(b"q quit")
    os.write(terminal, b"\x1a")
    until(b"STOPPED with icanon")
    until(b"q quit")  # nobody has pressed a key, and the next look is far
    os.write(terminal, b"b")
    until(b"ADDRESS")
    until(b"q quit")
    os.write(terminal, b"q")
    until(b"ENDED with icanon")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
