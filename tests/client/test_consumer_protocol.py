"""What members tell each other, also by clients that write less than their version has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

partitions = st.lists(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 99)), unique=True, max_size=8
)


def sorted_tuple(found: list[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(found))


@given(st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=9), partitions, st.integers(-1, 99))
def test_a_subscription_is_read_as_it_was_written(topics, data, owned, generation) -> None:
    wanted = Subscription(tuple(topics), data, sorted_tuple(owned), generation)
    assert decode_subscription(encode_subscription(wanted)) == wanted


@given(partitions)
def test_an_assignment_is_read_as_it_was_written(found) -> None:
    assert sorted(decode_assignment(encode_assignment(sorted(found)))) == sorted(found)


def test_a_member_that_was_left_out_has_nothing() -> None:
    assert decode_assignment(b"") == ()


def test_fields_of_the_version_may_be_missing() -> None:
    whole = encode_subscription(Subscription(("t",), b"u"))
    without_owned = whole[: -4 - 4]
    assert decode_subscription(without_owned) == Subscription(("t",), b"u")
    assert decode_subscription(whole[: 2 + 4 + 3]) == Subscription(("t",))


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_read(data) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except FormatError:
            continue


def test_what_ends_too_early_is_refused() -> None:
    with pytest.raises(FormatError, match="ends too early"):
        decode_subscription(encode_subscription(Subscription(("topic",)))[:8])


@pytest.mark.parametrize(("raw", "rack_id"), [(b"\0\1r", "r"), (b"\xff\xff", None), (b"", None)])
def test_version_3_has_the_rack(raw: bytes, rack_id: str | None) -> None:
    known = encode_subscription(Subscription(("t",), generation=4))
    assert decode_subscription(b"\0\3" + known[2:] + raw) == Subscription(
        ("t",), generation=4, rack_id=rack_id
    )
