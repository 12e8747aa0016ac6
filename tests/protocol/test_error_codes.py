"""The error codes are those of Kafka."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from klog.protocol.error_codes import ErrorCode, error_code


def test_names_numbers_and_retriability_are_those_of_the_protocol():
    expected = {(code.name.upper(), int(code), code.retriable) for code in KioErrorCode}
    assert {(code.name, int(code), code.retriable) for code in ErrorCode} == expected


def test_an_unknown_number_is_an_unknown_server_error():
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_code(30000) is ErrorCode.UNKNOWN_SERVER_ERROR
