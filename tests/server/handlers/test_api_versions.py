"""ApiVersions is answered whatever version is asked, and names must look like names."""

from __future__ import annotations

import pytest

from klog.protocol.api_versions import (
    UNKNOWN_FEATURES_EPOCH,
    ClientSoftware,
    decode_api_versions_response,
    encode_api_versions_request,
    encode_api_versions_response,
)
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.server.handlers.cluster.api_versions import ApiVersionsHandler
from tests.server.handlers.parts import FakeRequest

LIBRDKAFKA = ClientSoftware("librdkafka", "2.8.0")


def answer_to(version: int, software=LIBRDKAFKA, body=None, epoch=UNKNOWN_FEATURES_EPOCH):
    raw = encode_api_versions_request(version, software) if body is None else body
    request = FakeRequest(ApiKey.API_VERSIONS, version, memoryview(raw))
    ApiVersionsHandler(lambda: epoch).handle(request)
    return request.answer


def ask(version: int, software=LIBRDKAFKA, body=None):
    return decode_api_versions_response(version, answer_to(version, software, body))


@pytest.mark.parametrize("version", range(5))
def test_every_served_version_is_told_all_apis(version: int) -> None:
    response = ask(version)
    assert response.error_code == ErrorCode.NONE
    assert {key: tuple(found) for key, found in response.apis.items()} == {
        key: (api.min_version, api.max_version) for key, api in SERVED.items()
    }


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_version_of_the_future_is_told_the_range_of_api_versions(version: int) -> None:
    response = ask(version, body=b"whatever it may be")
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {key: tuple(found) for key, found in response.apis.items()} == {ApiKey.API_VERSIONS: (0, 4)}


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "x.y-z9", "0"])
def test_good_names(name: str) -> None:
    assert ask(3, ClientSoftware(name, "1")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("bad", ["", "-a", "a-", ".", "a b", "a/b", "ä", "a\n"])
def test_bad_names_and_versions_are_an_invalid_request(bad: str) -> None:
    for software in (ClientSoftware(bad, "1"), ClientSoftware("a", bad)):
        response = ask(4, software)
        assert (response.error_code, response.apis) == (ErrorCode.INVALID_REQUEST, {})


def test_the_present_epoch_of_features_is_told() -> None:
    for epoch in (0, 7):
        assert answer_to(4, epoch=epoch) == encode_api_versions_response(4, epoch)


def test_before_version_3_there_are_no_names() -> None:
    assert ask(2, ClientSoftware("", "")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("body", [b"\x09abc", b"\x02a\x021", b"\x02a\x021\x01\x07\x09z"])
def test_a_request_that_ends_too_early_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        ask(3, body=body)


def test_tags_that_nobody_knows_are_passed_over() -> None:
    for tags in (b"\x01\x07\x01z", b"\x02\x07\x00\x05\x00"):
        assert ask(4, body=b"\x02a\x021" + tags).error_code == ErrorCode.NONE


def test_the_requests_of_kafka_4_s_groups_are_announced_only_where_they_are_accepted() -> None:
    hidden = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
    without = decode_api_versions_response(0, encode_api_versions_response(0, -1, frozenset(hidden)))
    everything = decode_api_versions_response(0, encode_api_versions_response(0))
    assert everything.apis.keys() - without.apis.keys() == hidden
    request = FakeRequest(ApiKey.API_VERSIONS, 0, memoryview(b""))
    ApiVersionsHandler(lambda: -1, hidden).handle(request)
    assert decode_api_versions_response(0, request.answer) == without
