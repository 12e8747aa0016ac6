"""ApiVersions: every version is answered, also unknown ones."""

from __future__ import annotations

import pytest
from kio.serial import entity_reader

from klog.protocol.api_versions import (
    ClientSoftware,
    decode_api_versions_request,
    decode_api_versions_response,
    encode_api_versions_request,
    encode_api_versions_response,
)
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.protocol.messages import request_class, response_class

ANNOUNCED = {key: (api.min_version, api.max_version) for key, api in SERVED.items()}


@pytest.mark.parametrize("version", range(5))
def test_the_answer_holds_every_served_api_with_its_range(version):
    raw = encode_api_versions_response(version)
    parsed, size = entity_reader(response_class(ApiKey.API_VERSIONS, version))(raw, 0)
    assert size == len(raw)
    assert {api.api_key: (api.min_version, api.max_version) for api in parsed.api_keys} == ANNOUNCED
    assert decode_api_versions_response(version, raw) == (ErrorCode.NONE, ANNOUNCED)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_gets_the_known_ones_in_a_version_0_body(version):
    raw = encode_api_versions_response(version)
    assert raw == b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    assert decode_api_versions_response(version, raw) == (ErrorCode.UNSUPPORTED_VERSION, {18: (0, 4)})


@pytest.mark.parametrize("version", range(5))
def test_a_request_names_the_client_since_version_3(version):
    software = ClientSoftware("klog", "0.1")
    raw = encode_api_versions_request(version, software)
    assert decode_api_versions_request(version, raw) == (software if version >= 3 else ClientSoftware())
    assert entity_reader(request_class(ApiKey.API_VERSIONS, version))(raw, 0)[1] == len(raw)


@pytest.mark.parametrize("version", [0, 3])
def test_a_truncated_response_is_malformed(version):
    raw = encode_api_versions_response(version)
    for size in range(len(raw) - 8):
        with pytest.raises(MalformedMessageError):
            decode_api_versions_response(version, raw[:size])


@pytest.mark.parametrize(
    ("version", "tags"), [(0, b""), (1, b""), (2, b""), (3, b"\1\1\x08"), (4, b"\1\1\x08")]
)
def test_the_response_has_the_epoch_of_finalized_features_since_version_3(version, tags):
    known, unknown = encode_api_versions_response(version, 3), encode_api_versions_response(version)
    told = tags + bytes(7) + b"\3" if tags else b""
    assert known == (unknown[:-1] + told if tags else unknown)
    parsed, size = entity_reader(response_class(ApiKey.API_VERSIONS, version))(known, 0)
    assert size == len(known)
    assert not tags or (parsed.finalized_features_epoch, parsed.finalized_features) == (3, ())


def test_the_response_to_an_unknown_version_has_no_features():
    assert encode_api_versions_response(5, 3) == encode_api_versions_response(5)


def test_produce_is_announced_from_version_0():
    assert ANNOUNCED[ApiKey.PRODUCE] == (0, 11)


def test_groups_and_transactions_are_announced_and_quorums_are_not():
    assert ANNOUNCED[ApiKey.OFFSET_COMMIT] == (0, 9)
    assert ANNOUNCED[ApiKey.JOIN_GROUP] == (0, 9)
    assert ApiKey.DESCRIBE_QUORUM not in ANNOUNCED


def test_transactions_are_announced_as_by_kafka_3_9():
    # Clients that see newer versions do not add partitions to a transaction (KIP-890 part 2).
    assert {each: ANNOUNCED[each] for each in TRANSACTIONAL} == TRANSACTIONAL


TRANSACTIONAL = {
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 4),
    ApiKey.WRITE_TXN_MARKERS: (0, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 4),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.FIND_COORDINATOR: (0, 6),
}
