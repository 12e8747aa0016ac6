"""Describe- and AlterUserScramCredentials answer as Kafka 3.9, and keep credentials in its bytes."""

from __future__ import annotations

import hashlib

import pytest

from klog.metadata import paths
from klog.metadata.configs import config_change_notifications, read_config, write_config
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.scram_configs import ScramConfigs
from klog.security.authentication.scram_credentials import (
    ScramCredentials,
    credential_of_password,
    parse_credential,
)
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

ALTER, DESCRIBE = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
SHA_256, SHA_512 = 1, 2
Results = dict[str, tuple[ErrorCode, str | None]]
DONE = (ErrorCode.NONE, None)


def upsertion(
    user: str, mechanism: int = SHA_256, iterations: int = 4096, password: str = "pencil"
) -> object:
    name = "sha256" if mechanism == SHA_256 else "sha512"
    salted = hashlib.pbkdf2_hmac(name, b"pencil", b"salt", max(1, iterations))
    return part_of(
        ALTER,
        0,
        "ScramCredentialUpsertion",
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deletion(user: str, mechanism: int = SHA_256) -> object:
    return part_of(ALTER, 0, "ScramCredentialDeletion", name=user, mechanism=mechanism)


def alter(cluster: AdminCluster, *changes: object) -> Results:
    upsertions = tuple(each for each in changes if hasattr(each, "salt"))
    deletions = tuple(each for each in changes if not hasattr(each, "salt"))
    answer = cluster.ask(ALTER, 0, upsertions=upsertions, deletions=deletions)
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


def describe(cluster: AdminCluster, *names: str, everybody: bool = False) -> dict[str, object]:
    users = None if everybody else tuple(part_of(DESCRIBE, 0, "UserName", name=name) for name in names)
    answer = cluster.ask(DESCRIBE, 0, users=users)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return {
        each.user: {info.mechanism: info.iterations for info in each.credential_infos}
        if each.error_code == ErrorCode.NONE
        else (each.error_code, each.error_message)
        for each in answer.results
    }


def test_a_credential_is_stored_as_kafka_stores_it(cluster: AdminCluster) -> None:
    assert alter(cluster, upsertion("ca rol", iterations=8192)) == {"ca rol": DONE}
    stored = read_config(cluster.store, "users/ca%20rol")
    assert stored.keys() == {"SCRAM-SHA-256"}
    assert parse_credential(stored["SCRAM-SHA-256"]) == credential_of_password(
        "SCRAM-SHA-256", "pencil", b"salt", 8192
    )


def test_both_mechanisms_and_quotas_of_a_user_are_kept_together(cluster: AdminCluster) -> None:
    write_config(cluster.store, "users/alice", {"producer_byte_rate": "1024"})
    alter(cluster, upsertion("alice"), upsertion("alice", SHA_512))
    assert read_config(cluster.store, "users/alice").keys() == {
        "producer_byte_rate",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    }
    assert alter(cluster, deletion("alice"), deletion("alice", SHA_512)) == {"alice": DONE}
    assert read_config(cluster.store, "users/alice") == {"producer_byte_rate": "1024"}


def test_a_broker_that_follows_the_notes_knows_the_user(cluster: AdminCluster) -> None:
    known = ScramCredentials()
    configs = ScramConfigs(cluster.store, known)
    config_change_notifications(cluster.store, configs.on_change, cluster.clock).follow()
    alter(cluster, upsertion("alice"))
    assert known.find("SCRAM-SHA-256", "alice") is not None
    alter(cluster, deletion("alice"))
    assert known.find("SCRAM-SHA-256", "alice") is None
    alter(cluster, upsertion("bob"))
    again = ScramCredentials()
    again.user_changed("gone", {"SCRAM-SHA-256": credential_of_password("SCRAM-SHA-256", "x", b"y").text()})
    ScramConfigs(cluster.store, again).load()
    assert again.find("SCRAM-SHA-256", "bob") is not None
    assert again.find("SCRAM-SHA-256", "gone") is None


def test_a_user_named_as_the_default_is_not_the_default(cluster: AdminCluster) -> None:
    alter(cluster, upsertion("<default>"))
    assert cluster.store.children(paths.config("users")) == ["%3Cdefault%3E"]


@pytest.mark.parametrize(
    ("changes", "results"),
    [
        ([upsertion("")], {"": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")}),
        ([upsertion("a", 3)], {"a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")}),
        ([deletion("a", 0)], {"a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")}),
        ([upsertion("a", SHA_256, 4095)], {"a": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")}),
        ([upsertion("a", SHA_256, -1)], {"a": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")}),
        ([upsertion("a", SHA_256, 16385)], {"a": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")}),
        (
            [upsertion("a"), deletion("a")],
            {
                "a": (
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            },
        ),
        (
            [deletion("a")],
            {
                "a": (
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
            },
        ),
    ],
)
def test_a_user_is_refused_with_all_its_changes_and_others_are_not(
    cluster: AdminCluster, changes: list[object], results: Results
) -> None:
    assert alter(cluster, *changes, upsertion("good")) == {**results, "good": DONE}
    assert cluster.store.children(paths.config("users")) == ["good"]


def test_only_the_controller_changes_credentials(cluster: AdminCluster) -> None:
    cluster.core.resign()
    answers = alter(cluster, upsertion("a"), deletion("b"))
    assert {error for error, _ in answers.values()} == {ErrorCode.NOT_CONTROLLER}
    assert answers.keys() == {"a", "b"}


def test_users_are_described_with_mechanisms_and_iterations(cluster: AdminCluster) -> None:
    write_config(cluster.store, "users/quota", {"producer_byte_rate": "1"})
    alter(cluster, upsertion("b", SHA_512, 8192), upsertion("a"), upsertion("a", SHA_512))
    assert describe(cluster, everybody=True) == {"a": {SHA_256: 4096, SHA_512: 4096}, "b": {SHA_512: 8192}}
    assert list(describe(cluster)) == ["a", "b"]
    missing = "Attempt to describe a user credential that does not exist: quota"
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: a"
    assert describe(cluster, "quota", "", "b", "a", "a") == {
        "quota": (ErrorCode.RESOURCE_NOT_FOUND, missing),
        "": (ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"),
        "b": {SHA_512: 8192},
        "a": (ErrorCode.DUPLICATE_RESOURCE, twice),
    }
