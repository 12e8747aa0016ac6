"""The parsers of the Java clients read every field of what klog writes, and no byte is left."""

from __future__ import annotations

import base64
import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.protocol.api_versions import encode_api_versions_response
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_codec import read_entity, write_entity
from klog.protocol.entity_fields import entity_fields
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import encode_fetch_response
from klog.protocol.messages import request_class, response_class
from klog.protocol.produce_request import encode_produce_request
from klog.protocol.produce_response import encode_produce_response
from tests.protocol import test_fetch, test_produce
from tests.protocol.entities import entities
from tests.protocol.test_entities import ENTITY_APIS

pytestmark = pytest.mark.kafka

# klog's names that differ from Kafka's in more than underscores.
NAMES = {"is_kraft_controller": "isKRaftController", "request_type": "type", "v0_host": "v0Host"}
MESSAGES_EACH = 15


def collected(strategy: st.SearchStrategy) -> list:
    """Some examples of a strategy."""
    found: list = []

    @settings(max_examples=MESSAGES_EACH, database=None, derandomize=True)
    @given(strategy)
    def collect(value):
        found.append(value)

    collect()
    return found


def read_by_java(kafka3, messages):
    """WireOracle's result for each (kind, key, version, bytes): (bytes written again, fields)."""
    lines = "\n".join(f"{kind} {int(key)} {version} {raw.hex()}" for kind, key, version, raw in messages)
    done = kafka3.java("WireOracle", stdin=(lines + "\n").encode())
    assert done.returncode == 0, done.stderr.decode()
    answers = [line.split("\t", 1) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(messages)
    for (kind, key, version, raw), (written, rest) in zip(messages, answers, strict=True):
        assert written != "error", f"{kind} {key} {version}: {rest}: {raw.hex()}"
    return [(bytes.fromhex(written), json.loads(rest)) for written, rest in answers]


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return NAMES.get(name, head + "".join(word.capitalize() for word in tail))


def as_json(entity: object) -> dict:
    """The fields of an entity in the form of Kafka's JSON."""
    return {
        camel(field.name): _value(getattr(entity, field.name))
        for field in entity_fields(type(entity))
        if field.tag is None
    }


def _value(value):
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if hasattr(type(value), "__flexible__"):
        return as_json(value)
    return value


def without_null_ids(values: dict) -> dict:
    """The values with the zero id in place of None, as in Kafka's JSON."""
    text = json.dumps(values).replace('"topicId": null', '"topicId": "AAAAAAAAAAAAAAAAAAAAAA"')
    return json.loads(text)


INTER_BROKER = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)


def test_every_field_of_the_requests_between_brokers_is_where_kafka_expects_it(kafka3):
    cases = []
    for key in INTER_BROKER:
        version = SERVED[key].max_version
        for kind, entity_type in (
            ("request", request_class(key, version)),
            ("response", response_class(key, version)),
        ):
            cases += [(kind, key, version, entity) for entity in collected(entities(entity_type))]
    messages = [(kind, key, version, write_entity(entity)) for kind, key, version, entity in cases]
    for (_, _, _, entity), (_, _, _, raw), (written, fields) in zip(
        cases, messages, read_by_java(kafka3, messages), strict=True
    ):
        assert written == raw
        expected = without_null_ids(as_json(entity))
        assert {name: fields[name] for name in expected} == expected


# Kafka 3.9 knows these in unfinished versions, or less of them.
OF_KAFKA_4 = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
)


def test_every_served_entity_is_read_and_written_again_the_same_by_java(kafka3):
    check_with_java(kafka3, [each for each in ENTITY_APIS if each[0] not in OF_KAFKA_4])


def test_every_served_entity_of_kafka_4_is_read_and_written_again_the_same_by_java(kafka4):
    check_with_java(kafka4, [each for each in ENTITY_APIS if each[0] in OF_KAFKA_4])


def check_with_java(peer, apis):
    messages = []
    for key, version in apis:
        for kind, entity_type in (
            ("request", request_class(key, version)),
            ("response", response_class(key, version)),
        ):
            messages += [
                (kind, key, version, write_entity(entity)) for entity in collected(entities(entity_type))
            ]
    for (kind, key, version, raw), (written, _) in zip(messages, read_by_java(peer, messages), strict=True):
        if written != raw:
            # Kafka stores some arrays as maps, which write duplicates once.
            entity_type = request_class(key, version) if kind == "request" else response_class(key, version)
            assert len(written) <= len(raw), (kind, key, version)
            assert write_entity(read_entity(entity_type, written)) == written


def test_produce_and_fetch_are_read_by_java(kafka3):
    messages = []
    for version in test_produce.VERSIONS:
        for request in collected(test_produce.REQUESTS):
            raw = b"".join(encode_produce_request(version, _distinct(request)))
            messages.append(("request", ApiKey.PRODUCE, version, raw))
        for response in collected(test_produce.RESPONSES):
            raw = encode_produce_response(version, _distinct(response._replace(node_endpoints=())))
            messages.append(("response", ApiKey.PRODUCE, version, raw))
    for version in test_fetch.VERSIONS:
        requests = collected(test_fetch.requests(version))
        messages += [
            ("request", ApiKey.FETCH, version, encode_fetch_request(version, each)) for each in requests
        ]
        for response in collected(test_fetch.responses(version)):
            raw = b"".join(encode_fetch_response(version, response._replace(node_endpoints=())))
            messages.append(("response", ApiKey.FETCH, version, raw))
    for (_, _, _, raw), (written, _) in zip(messages, read_by_java(kafka3, messages), strict=True):
        assert written == raw


def _distinct(message):
    """Without duplicate topics, because they are a map in Kafka's class."""
    return message._replace(topics=list(dict(message.topics).items()))


def test_the_announced_versions_are_read_by_java(kafka3):
    messages = [
        ("response", ApiKey.API_VERSIONS, version, encode_api_versions_response(version))
        for version in range(5)
    ]
    for (_, _, _, raw), (written, fields) in zip(messages, read_by_java(kafka3, messages), strict=True):
        assert written == raw
        ranges = {api["apiKey"]: (api["minVersion"], api["maxVersion"]) for api in fields["apiKeys"]}
        assert ranges == {key: (api.min_version, api.max_version) for key, api in SERVED.items()}
