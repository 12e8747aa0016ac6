"""Records of internal topics are read fast as they are parsed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import consumer_offsets, share_group_state, transaction_state
from klog.formats.errors import FormatError
from klog.formats.keyed import Keyed
from tests import strategies as own

TOPICS = {
    "group": consumer_offsets.GroupRecord,
    "transaction": transaction_state.TransactionRecord,
    "share group": share_group_state.ShareGroupRecord,
}


def outcome(read: Any, *parts: Any) -> Any:
    try:
        return read(*parts)
    except FormatError as error:
        return type(error), error.what, error.position_bytes, error.cure


def records_of(keyed: Keyed) -> st.SearchStrategy[tuple[bytes | None, bytes | None]]:
    def with_key(key: Any) -> st.SearchStrategy[tuple[bytes | None, bytes | None]]:
        definition = keyed.choose(key)
        value = own.values_of(definition).map(definition.build)
        raw = st.just(keyed.key.build(key))
        return st.tuples(st.none() | raw | own.damaged(raw), st.none() | value | own.damaged(value))

    return own.values_of(keyed.key).flatmap(with_key)


@pytest.mark.parametrize("topic", ["group", "transaction", "share group"])
@given(data=st.data())
def test_a_record_is_read_or_refused_as_it_is_parsed(topic: str, data: st.DataObject) -> None:
    keyed = TOPICS[topic]
    key, value = data.draw(records_of(keyed))
    assert outcome(keyed.read, key, value) == outcome(keyed.parse, key, value)
