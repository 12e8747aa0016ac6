"""Guards: every request that needs a right has one, in every version, and what is refused gets its error.

`tests/comparison/test_authorization.py` compares the same requests with Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from klog.metadata.cache import MetadataCache
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.protocol.apis import SERVED, ApiKey, api_name
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, encode_request, error_codes, request_class, response_class
from klog.server.handlers.access import Access
from klog.server.handlers.answers import entity_of, send_answer
from klog.server.handlers.dispatch import Route
from klog.server.handlers.guards.guarding import guard_routes
from tests.comparison import authorization_requests as requests
from tests.server.handlers.parts import FakeRequest, answer_of
from tests.server.handlers.test_access import Acls

# They check rights in their handlers, or need none.
IN_HANDLERS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
WITHOUT_RIGHTS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
# The handler finds what may be shown, and the guard leaves the rest out of the answer.
FILTERED = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
IDS = dict.fromkeys(requests.TOPICS, UUID(int=5))
AUTHORIZATION_ERRORS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

Handle = Callable[[FakeRequest], None]


def guarded(key: int, handle: Handle, *acls: Acl, controller: bool = True) -> Handle:
    """A handler behind the guard of an API."""
    access = Access(Acls(*acls))
    route = Route(handle)  # type: ignore[arg-type]
    routes = guard_routes({key: route}, access, MetadataCache(), lambda: controller, lambda: True)
    return routes[key].handle  # type: ignore[return-value]


def request_of(api: ApiKey, version: int) -> FakeRequest:
    return FakeRequest(int(api), version, memoryview(encode_request(requests.request_of(api, version, IDS))))


def test_every_served_request_has_a_guard_or_needs_none() -> None:
    def handle(_: FakeRequest) -> None: ...

    unguarded = {key for key in SERVED if guarded(key, handle) is handle}
    assert {api_name(key) for key in unguarded - IN_HANDLERS - WITHOUT_RIGHTS} == set()


GUARDED = [
    (api, version) for api in requests.VALUES if api not in IN_HANDLERS for version in requests.versions(api)
]


@pytest.mark.parametrize(("api", "version"), GUARDED, ids=lambda each: getattr(each, "title", each))
def test_without_rights_nothing_reaches_a_handler_but_what_is_wrong_anyway(api, version) -> None:
    seen: list[FakeRequest] = []
    request = request_of(api, version)
    guarded(api, seen.append)(request)
    if api in FILTERED:
        assert len(seen) == 1
        return
    if not seen:
        errors = error_codes(response_class(api, version), answer_of(request))
        errors |= {
            each.partition_error_code
            for topic in getattr(answer_of(request), "results_by_topic_v3_and_below", ())
            for each in topic.results_by_partition
        }
        # OffsetFetch 1 and DescribeLogDirs before version 3 have no place for the error.
        assert errors & AUTHORIZATION_ERRORS or api in (ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_LOG_DIRS)
        return
    wanted = entity_of(seen[0])
    named = repr(wanted)
    assert not any(name in named for name in (*requests.TOPICS, *requests.GROUPS, *requests.IDS)), named


@pytest.mark.parametrize("api", sorted(requests.VALUES), ids=lambda api: api.title)
def test_with_all_rights_a_handler_gets_the_request_as_it_came(api) -> None:
    version = requests.versions(api)[-1]
    if api in IN_HANDLERS:
        return
    kinds = [kind for kind in AclResourceType if kind is not AclResourceType.ANY]
    patterns = [ResourcePattern(kind, "*", PatternType.LITERAL) for kind in kinds]
    acls = [Acl(each, "User:*", "*", AclOperation.ALL, Permission.ALLOW) for each in patterns]
    seen: list[FakeRequest] = []
    request = request_of(api, version)
    guarded(api, seen.append, *acls)(request)
    assert entity_of(seen[0]) == requests.request_of(api, version, IDS)


@pytest.mark.parametrize("api", [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS])
def test_who_is_not_the_controller_says_so_to_everybody(api) -> None:
    seen: list[FakeRequest] = []
    guarded(api, seen.append, controller=False)(request_of(api, 1))
    assert len(seen) == 1


def test_what_is_refused_is_added_to_the_answer_about_the_rest() -> None:
    pattern = ResourcePattern(AclResourceType.TOPIC, requests.HERE, PatternType.LITERAL)
    acl = Acl(pattern, "User:*", "*", AclOperation.DELETE, Permission.ALLOW)

    def handle(request: FakeRequest) -> None:
        (topic,) = entity_of(request).topics  # type: ignore[arg-type]
        done = {"partition_index": 0, "low_watermark": 7, "error_code": ErrorCode.NONE}
        send_answer(request, topics=[{"name": topic.name, "partitions": [done]}])  # type: ignore[arg-type]

    request = request_of(ApiKey.DELETE_RECORDS, 2)
    guarded(ApiKey.DELETE_RECORDS, handle, acl)(request)
    answered = {topic.name: topic.partitions[0] for topic in answer_of(request).topics}
    assert {name: each.error_code for name, each in answered.items()} == {
        requests.HERE: ErrorCode.NONE,
        requests.GONE: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        requests.OTHER: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert {each.low_watermark for each in answered.values()} == {7, -1}


# -- groups of Kafka 4's protocol, which Kafka 3.9 does not check --------------------------------------------


def may_read(kind: AclResourceType, name: str) -> Acl:
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    return Acl(pattern, "User:*", "*", AclOperation.READ, Permission.ALLOW)


GROUP_G, TOPIC_T = may_read(AclResourceType.GROUP, "g"), may_read(AclResourceType.TOPIC, "t")


@pytest.mark.parametrize(
    ("acls", "topics", "error"),
    [
        ((), ("t",), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ((GROUP_G,), ("t",), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ((GROUP_G, TOPIC_T), ("t", "other"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ((GROUP_G, TOPIC_T), ("t",), None),
        ((GROUP_G,), None, None),
    ],
)
def test_members_subscribe_only_to_topics_that_they_may_see(acls, topics, error) -> None:
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    wanted = build(
        request_class(api, 1),
        group_id="g",
        member_id="m",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=timedelta(seconds=1),
        subscribed_topic_names=topics,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=None,
    )
    request, seen = FakeRequest(int(api), 1, memoryview(encode_request(wanted))), list[FakeRequest]()
    guarded(api, seen.append, *acls)(request)
    assert bool(seen) is (error is None)
    if error is not None:
        assert answer_of(request).error_code == error


@pytest.mark.parametrize("is_seen", [True, False])
def test_members_are_hidden_whose_topics_may_not_be_seen(is_seen) -> None:
    def handle(request: FakeRequest) -> None:
        assignment = {"topic_partitions": [{"topic_id": None, "topic_name": "t", "partitions": (0,)}]}
        member = {
            **dict.fromkeys(("member_id", "client_id", "client_host"), "m"),
            **dict.fromkeys(("instance_id", "rack_id", "subscribed_topic_regex")),
            "member_epoch": 1,
            "subscribed_topic_names": ("t",),
            "assignment": assignment,
            "target_assignment": {"topic_partitions": ()},
            "member_type": 1,
        }
        group = {
            **dict.fromkeys(("group_id", "group_state", "assignor_name"), "g"),
            **dict.fromkeys(("error_code", "group_epoch", "assignment_epoch", "authorized_operations"), 0),
            "error_message": None,
            "members": [member],
        }
        send_answer(request, groups=[group])  # type: ignore[arg-type]

    api = ApiKey.CONSUMER_GROUP_DESCRIBE
    wanted = build(request_class(api, 1), group_ids=("g",), include_authorized_operations=False)
    request = FakeRequest(int(api), 1, memoryview(encode_request(wanted)))
    guarded(api, handle, GROUP_G, *((TOPIC_T,) if is_seen else ()))(request)
    (group,) = answer_of(request).groups
    assert len(group.members) == is_seen
    assert group.error_code == (0 if is_seen else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
