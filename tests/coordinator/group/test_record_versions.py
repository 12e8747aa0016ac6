"""The versions of the values in `__consumer_offsets` follow `inter.broker.protocol.version`."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.record_versions import NEWEST, RecordVersions, record_versions


@pytest.mark.parametrize(
    ("protocol_version", "offset", "group"),
    [
        ("0.8.2.0", 1, 0),
        ("0.10.0", 1, 0),
        ("0.10.1-IV0", 1, 1),
        ("0.10.1", 1, 1),
        ("1.1", 1, 1),
        ("2.0-IV1", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.1-IV1", 3, 2),
        ("2.1", 3, 2),
        ("2.2.1", 3, 2),
        ("2.3-IV0", 3, 3),
        ("2.8", 3, 3),
        ("3.9-IV0", 3, 3),
    ],
)
def test_the_version_of_a_value_is_that_of_the_protocol(protocol_version, offset, group) -> None:
    assert record_versions(protocol_version) == RecordVersions(offset, group)


def test_static_members_need_a_protocol_that_keeps_their_instance_ids() -> None:
    assert not record_versions("2.2").has_static_members
    assert record_versions("2.3").has_static_members
    assert NEWEST.has_static_members
