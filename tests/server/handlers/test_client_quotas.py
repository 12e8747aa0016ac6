"""DescribeClientQuotas and AlterClientQuotas answer as Kafka 3.9 (the texts were seen there)."""

from __future__ import annotations

import pytest

from klog.metadata import paths, znodes
from klog.metadata.configs import config_change_notifications, read_config, write_config
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.quota_configs import QuotaConfigs
from klog.security.quotas.usage import QuotaWindows
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
Parts = dict[str, str | None]


def alter(
    cluster: AdminCluster, entity: Parts, *, validate_only: bool = False, **ops: float | None
) -> tuple[ErrorCode, str | None]:
    """Sets quotas, or removes those that are None; the answer for the entity."""
    entry = part_of(
        ALTER,
        1,
        "EntryData",
        entity=tuple(
            part_of(ALTER, 1, "EntityData", entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ),
        ops=tuple(
            part_of(ALTER, 1, "OpData", key=key, value=value or 0.0, remove=value is None)
            for key, value in ops.items()
        ),
    )
    (answer,) = cluster.ask(ALTER, 1, entries=(entry,), validate_only=validate_only).entries
    assert {each.entity_type: each.entity_name for each in answer.entity} == entity
    return answer.error_code, answer.error_message


def describe(cluster: AdminCluster, *components: tuple[str, int, str | None], strict: bool = False):
    parts = tuple(
        part_of(DESCRIBE, 1, "ComponentData", entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    )
    return cluster.ask(DESCRIBE, 1, components=parts, strict=strict)


def found(cluster: AdminCluster, *components: tuple[str, int, str | None], strict: bool = False) -> list:
    """The entities that are found, as texts, and their quotas."""
    answer = describe(cluster, *components, strict=strict)
    assert answer.error_code == ErrorCode.NONE
    return sorted(
        (
            "/".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in entry.entity),
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    )


OK = (ErrorCode.NONE, None)
IP_ALONE = (
    "Invalid entity filter component combination, IP filter component should not be used with user or"
    " clientId filter component."
)


# -- changes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ({"user": "alice"}, "users/alice"),
        ({"user": None}, "users/<default>"),
        ({"user": "CN=a,O=b"}, "users/CN%3Da%2CO%3Db"),
        ({"user": "<default>"}, "users/%3Cdefault%3E"),
        ({"client-id": "c/1"}, "clients/c%2F1"),
        ({"client-id": None, "user": "alice"}, "users/alice/clients/<default>"),
    ],
)
def test_quotas_are_written_where_kafka_writes_them(cluster: AdminCluster, entity: Parts, path: str) -> None:
    assert alter(cluster, entity, producer_byte_rate=1024, request_percentage=12.5) == OK
    node = cluster.store.get(paths.config(path))
    assert node.data == b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"12.5"}}'


def test_a_change_is_announced_to_all_brokers(cluster: AdminCluster) -> None:
    seen: list[str] = []
    config_change_notifications(cluster.store, seen.append, cluster.clock).follow()
    alter(cluster, {"user": "alice", "client-id": "c/1"}, producer_byte_rate=1)
    assert seen == ["users/alice/clients/c%2F1"]


def test_numbers_are_written_as_kafka_writes_them(cluster: AdminCluster) -> None:
    alter(
        cluster, {"user": "a"}, consumer_byte_rate=1e15, controller_mutation_rate=1e7, request_percentage=10
    )
    assert read_config(cluster.store, "users/a") == {
        "consumer_byte_rate": "1000000000000000",
        "controller_mutation_rate": "1.0E7",
        "request_percentage": "10.0",
    }


def test_a_change_leaves_what_else_the_config_holds(cluster: AdminCluster) -> None:
    write_config(cluster.store, "users/alice", {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "5"})
    alter(cluster, {"user": "alice"}, producer_byte_rate=None, consumer_byte_rate=7)
    assert read_config(cluster.store, "users/alice") == {"SCRAM-SHA-256": "salt=x", "consumer_byte_rate": "7"}


def test_the_last_quota_that_goes_takes_the_nodes_above_it(cluster: AdminCluster) -> None:
    for entity in ({"user": "alice", "client-id": "c"}, {"user": "alice", "client-id": "d"}):
        alter(cluster, entity, producer_byte_rate=1)
    assert cluster.store.get(paths.config("users/alice")).data is None
    alter(cluster, {"user": "alice", "client-id": "c"}, producer_byte_rate=None)
    assert cluster.store.children(paths.config("users/alice/clients")) == ["d"]
    alter(cluster, {"user": "alice", "client-id": "d"}, producer_byte_rate=None)
    assert cluster.store.children(paths.config("users")) == []


def test_a_user_with_clients_keeps_its_node_without_a_config(cluster: AdminCluster) -> None:
    alter(cluster, {"user": "alice"}, producer_byte_rate=1)
    alter(cluster, {"user": "alice", "client-id": "c"}, producer_byte_rate=1)
    alter(cluster, {"user": "alice"}, producer_byte_rate=None)
    assert znodes.decode_config("users/alice", cluster.store.get(paths.config("users/alice")).data) == {}
    alter(cluster, {"user": "alice", "client-id": "c"}, producer_byte_rate=None)
    assert cluster.store.children(paths.config("users")) == []


def test_what_is_not_there_may_be_removed(cluster: AdminCluster) -> None:
    assert alter(cluster, {"user": "alice"}, producer_byte_rate=None) == OK
    assert cluster.store.children(paths.config("users")) == []


def test_a_change_that_is_only_checked_changes_nothing(cluster: AdminCluster) -> None:
    assert alter(cluster, {"user": "alice"}, validate_only=True, producer_byte_rate=1) == OK
    assert cluster.store.children(paths.config("users")) == []


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ({"user": "u"}, {"nope": 1}, "Invalid configuration key nope"),
        (
            {"user": "u"},
            {"connection_creation_rate": 1},
            "Invalid configuration key connection_creation_rate",
        ),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, "Configuration producer_byte_rate must be a LONG value"),
        ({"user": "u"}, {"producer_byte_rate": -1}, "Configuration producer_byte_rate must be a LONG value"),
        ({"user": "u"}, {"request_percentage": float("nan")}, "must be a DOUBLE value"),
        ({"user": "u"}, {"producer_byte_rate": float("inf")}, "must be a LONG value"),
        ({"ip": None}, {"connection_creation_rate": 2.0**31}, "must be a INT value"),
        ({"ip": None}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        ({"ip": "no such host."}, {}, "no such host. is not a valid IP or resolvable host."),
        ({"ip": "::1", "user": "u"}, {}, "IP entity should not be used with user/client ID entity."),
        ({}, {}, "Invalid empty client quota entity"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"foo": "x"}, {}, "Unhandled client quota entity type: foo"),
    ],
)
def test_invalid_changes_are_refused(cluster: AdminCluster, entity: Parts, ops: dict, message: str) -> None:
    code, text = alter(cluster, entity, **ops)
    assert code == ErrorCode.INVALID_REQUEST
    assert text is not None
    assert text.endswith(message)


def test_a_byte_rate_may_be_0(cluster: AdminCluster) -> None:
    assert alter(cluster, {"user": "u"}, producer_byte_rate=0) == OK


# -- descriptions --------------------------------------------------------------------------------------------


@pytest.fixture
def described(cluster: AdminCluster) -> AdminCluster:
    """A cluster with quotas of each kind, and a user that has credentials only."""
    entities: tuple[Parts, ...] = (
        {"user": "u1"},
        {"user": None},
        {"client-id": "c1"},
        {"client-id": None},
        {"user": "u1", "client-id": "c1"},
        {"user": "u2", "client-id": None},
    )
    for number, entity in enumerate(entities, 1):
        assert alter(cluster, entity, producer_byte_rate=number) == OK
    assert alter(cluster, {"ip": "127.0.0.1"}, connection_creation_rate=7) == OK
    write_config(cluster.store, "users/secret", {"SCRAM-SHA-256": "salt=x"})
    return cluster


def names(entities: list) -> list[str]:
    return [name for name, _ in entities]


def test_without_a_filter_everything_is_described(described: AdminCluster) -> None:
    assert found(described) == [
        ("client-id=<default>", {"producer_byte_rate": 4.0}),
        ("client-id=c1", {"producer_byte_rate": 3.0}),
        ("ip=127.0.0.1", {"connection_creation_rate": 7.0}),
        ("user=<default>", {"producer_byte_rate": 2.0}),
        ("user=u1", {"producer_byte_rate": 1.0}),
        ("user=u1/client-id=c1", {"producer_byte_rate": 5.0}),
        ("user=u2/client-id=<default>", {"producer_byte_rate": 6.0}),
    ]
    assert found(described, strict=True) == []


def test_an_entity_is_found_by_a_part_whatever_else_it_has(described: AdminCluster) -> None:
    assert names(found(described, ("user", 0, "u1"))) == ["user=u1", "user=u1/client-id=c1"]
    assert names(found(described, ("user", 0, "u1"), strict=True)) == ["user=u1"]
    assert names(found(described, ("client-id", 1, None))) == [
        "client-id=<default>",
        "user=u2/client-id=<default>",
    ]
    assert names(found(described, ("user", 2, None), strict=True)) == ["user=<default>", "user=u1"]
    assert names(found(described, ("user", 2, None), ("client-id", 2, None))) == [
        "user=u1/client-id=c1",
        "user=u2/client-id=<default>",
    ]
    assert names(found(described, ("ip", 2, None))) == ["ip=127.0.0.1"]
    assert names(found(described, ("ip", 0, "10.0.0.1"))) == []


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        (
            [("user", 0, "a"), ("user", 2, None)],
            ErrorCode.INVALID_REQUEST,
            "Duplicate user filter component entity type",
        ),
        (
            [("ip", 2, None), ("user", 2, None)],
            ErrorCode.INVALID_REQUEST,
            IP_ALONE,
        ),
        ([("foo", 2, None)], ErrorCode.UNSUPPORTED_VERSION, "Custom entity type 'foo' not supported"),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type"),
    ],
)
def test_invalid_filters_are_refused(
    cluster: AdminCluster, components: list, code: ErrorCode, message: str
) -> None:
    answer = describe(cluster, *components)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, message, None)


# -- what a broker makes of them -----------------------------------------------------------------------------


def ip_limits() -> IpLimits:
    return IpLimits(QuotaWindows(), lambda name: name)


@pytest.fixture
def obeyed(cluster: AdminCluster) -> ClientQuotas:
    """The quotas of a broker that follows the tree."""
    quotas = ClientQuotas()
    configs = QuotaConfigs(cluster.store, quotas, ip_limits())
    configs.load()
    config_change_notifications(cluster.store, configs.on_change, cluster.clock).follow()
    return quotas


def limit(quotas: ClientQuotas, user: str, client_id: str) -> float | None:
    limits = quotas.of(user, client_id, 0)
    return None if limits is None or limits.produce is None else limits.produce.limit


def test_a_change_holds_at_once(cluster: AdminCluster, obeyed: ClientQuotas) -> None:
    alter(cluster, {"user": "a/b", "client-id": None}, producer_byte_rate=5)
    assert limit(obeyed, "a/b", "c") == 5
    alter(cluster, {"user": "a/b", "client-id": None}, producer_byte_rate=6)
    assert limit(obeyed, "a/b", "c") == 6
    alter(cluster, {"user": "a/b", "client-id": None}, producer_byte_rate=None)
    assert limit(obeyed, "a/b", "c") is None


def test_quotas_are_read_at_the_start(described: AdminCluster) -> None:
    quotas, ips = ClientQuotas(), ip_limits()
    QuotaConfigs(described.store, quotas, ips).load()
    assert limit(quotas, "u1", "c1") == 5
    assert limit(quotas, "u1", "other") == 1
    assert limit(quotas, "u2", "any") == 6
    assert [ips.charge("127.0.0.1", 0) for _ in range(71)] == [0] * 70 + [143]


def test_a_config_that_cannot_be_read_does_not_hide_the_others(
    described: AdminCluster, caplog: pytest.LogCaptureFixture
) -> None:
    described.store.set(paths.config("users/u1"), b"[")
    write_config(described.store, "clients/c1", {"producer_byte_rate": "many"})
    quotas = ClientQuotas()
    QuotaConfigs(described.store, quotas, ip_limits()).load()
    assert limit(quotas, "u2", "any") == 6
    assert ["/config/users/u1" in line or "clients/c1" in line for line in caplog.messages] == [True, True]


def test_quotas_of_addresses_are_followed(cluster: AdminCluster, caplog: pytest.LogCaptureFixture) -> None:
    def resolve(name: str) -> str:
        if name == "gone":
            raise OSError("no such host")
        return name

    limits = IpLimits(QuotaWindows(2, 1000), resolve)
    configs = QuotaConfigs(cluster.store, ClientQuotas(), limits)
    config_change_notifications(cluster.store, configs.on_change, cluster.clock).follow()
    alter(cluster, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    assert [limits.charge("127.0.0.1", 0) for _ in range(2)] == [0, 1000]
    alter(cluster, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    assert limits.charge("127.0.0.1", 0) == 0
    # Somebody else has set a quota for a name that is gone now.
    write_config(cluster.store, "ips/gone", {"connection_creation_rate": "1"})
    write_config(cluster.store, "ips/<default>", {"connection_creation_rate": "1"})
    configs.load()
    assert [limits.charge("10.0.0.1", 0) for _ in range(2)] == [0, 1000]
    assert ["gone" in line for line in caplog.messages] == [True]
    # In a new session, what is not in the tree any more does not hold.
    cluster.store.delete(paths.config("ips/<default>"))
    configs.load()
    assert limits.charge("10.0.0.1", 0) == 0
