"""AlterConfigs changes the configs of a running broker, completely or not at all."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.metadata import cluster
from klog.metadata.configs import change_config, read_config
from klog.metadata.values import Endpoint
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.server.network.certificates import holder_of
from klog.server.startup.broker import Broker
from tests.server.handlers.parts import part_of
from tests.server.network.servers import TLS_FILES
from tests.server.test_broker import config, make_topic
from tests.waiting import eventually

API, VERSION = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
BROKER, SET, DELETE = 4, 0, 1
INNER = "PLAINTEXT://127.0.0.1:0"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(config(tmp_path / "a"))
    yield running
    running.stop()


def alter(broker: Broker, changes: dict[str, str | None], *, name: str = "7") -> tuple[ErrorCode, str | None]:
    """Sets configs of the broker (None removes one). Returns the error code and message."""
    operations = tuple(
        part_of(
            API,
            VERSION,
            "AlterableConfig",
            name=key,
            config_operation=DELETE if text is None else SET,
            value=text,
        )
        for key, text in changes.items()
    )
    resource = part_of(
        API, VERSION, "AlterConfigsResource", resource_type=BROKER, resource_name=name, configs=operations
    )
    entity = build(request_class(API, VERSION), resources=(resource,), validate_only=False)
    with Channel("127.0.0.1", broker.network.port("PLAINTEXT"), client_id="test", timeout_ms=60_000) as to:
        (answer,) = to.send(entity).responses
    return ErrorCode(answer.error_code), answer.error_message


def refused(broker: Broker, changes: dict[str, str | None], *, name: str = "7") -> str:
    """The message of a broker that refuses a change and does not change."""
    before = broker.live.broker()
    error, why = alter(broker, changes, name=name)
    assert error == ErrorCode.INVALID_REQUEST
    assert broker.live.broker() is before
    assert read_config(broker.store, f"brokers/{name or '<default>'}") == {}
    assert why is not None
    return why


def test_threads_and_limits_follow_their_configs(broker: Broker) -> None:
    changes = {"num.io.threads": "5", "num.network.threads": "2", "max.connections.per.ip": "3"}
    assert alter(broker, changes, name="") == (ErrorCode.NONE, None)
    eventually(lambda: broker.network.thread_counts == (2, 5))
    # The limits follow the threads. One connection is left, the controller's.
    eventually(lambda: broker.live.broker().number("max.connections.per.ip") == 3)
    eventually(lambda: broker.network.counts.total == 1)
    clients = [socket.create_connection(("127.0.0.1", broker.network.port("PLAINTEXT"))) for _ in range(4)]
    eventually(lambda: broker.network.counts.total == 3)
    for client in clients:
        client.close()
    eventually(lambda: broker.network.counts.total == 1)
    assert alter(broker, {"num.io.threads": None, "num.network.threads": None}, name="")[0] == ErrorCode.NONE
    eventually(lambda: broker.network.thread_counts == (1, os.cpu_count() or 1))


def test_a_listener_has_as_many_network_threads_as_its_own_config_says(broker: Broker) -> None:
    own = "listener.name.plaintext.num.network.threads"
    assert alter(broker, {own: "4"}) == (ErrorCode.NONE, None)
    eventually(lambda: broker.network.thread_counts[0] == 4)
    assert alter(broker, {"num.network.threads": "2"}, name="") == (ErrorCode.NONE, None)
    eventually(lambda: broker.live.broker().number("num.network.threads") == 2)
    assert broker.network.thread_counts[0] == 4
    assert alter(broker, {own: None}) == (ErrorCode.NONE, None)
    eventually(lambda: broker.network.thread_counts[0] == 2)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("num.io.threads", "17", "not be greater than double the current value 8"),
        ("num.network.threads", "7", "not be greater than double the current value 3"),
        ("log.cleaner.threads", "3", "greater than double the current value 1"),
        ("background.threads", "4", "at least half the current value 10"),
        ("num.recovery.threads.per.data.dir", "0", "at least 1"),
        ("max.connections", "0", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("listener.name.plaintext.max.connections", "0", "Invalid max.connections 0"),
        ("max.connections.per.ip", "0", "max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "here", "host:limit"),
    ],
)
def test_invalid_changes_are_refused_before_they_are_written(
    broker: Broker, name: str, value: str, why: str
) -> None:
    assert why in refused(broker, {name: value}, name="")


def test_the_cleaner_and_the_logs_follow_their_configs(broker: Broker) -> None:
    make_topic(broker, "t")
    changes = {"log.cleaner.threads": "2", "log.segment.bytes": "2000"}
    changes["num.recovery.threads.per.data.dir"] = "2"
    before = {each for each in threading.enumerate() if each.name.startswith("log-cleaner-")}
    assert alter(broker, changes, name="")[0] == ErrorCode.NONE

    def cleaners() -> int:
        new = set(threading.enumerate()) - before
        return sum(each.name.startswith("log-cleaner-") for each in new)

    eventually(lambda: cleaners() == 2)
    (log,) = broker.logs.logs()
    eventually(lambda: log.config.segment_bytes == 2000)
    eventually(lambda: broker.logs.settings.recovery_threads_per_directory == 2)


def test_dynamic_configs_apply_after_a_restart(tmp_path: Path, broker: Broker) -> None:
    changes = {
        "num.recovery.threads.per.data.dir": "2",
        "listeners": f"{INNER},OUTER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
    }
    assert alter(broker, changes)[0] == ErrorCode.NONE
    broker.stop()
    again = Broker(config(tmp_path / "a"))
    try:
        assert again.logs.settings.recovery_threads_per_directory == 2
        assert again.network.port("OUTER")
    finally:
        again.stop()


def known_endpoints(broker: Broker) -> tuple[Endpoint, ...]:
    """The endpoints of the broker in its metadata cache, after the first UpdateMetadata."""
    found = broker.cache.snapshot.brokers.get(7)
    return () if found is None else found.endpoints


def test_a_listener_is_added_and_removed_with_its_registration(broker: Broker) -> None:
    changes = {
        "listeners": f"{INNER},OUTER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
    }
    assert alter(broker, changes) == (ErrorCode.NONE, None)

    def registered() -> list[str]:
        return [each.listener for each in cluster.live_brokers(broker.store)[7].endpoints]

    def known() -> set[str]:
        return {each.listener for each in known_endpoints(broker)}

    eventually(lambda: registered() == ["PLAINTEXT", "OUTER"])
    eventually(lambda: known() == {"PLAINTEXT", "OUTER"})
    with Channel("127.0.0.1", broker.network.port("OUTER"), client_id="test", timeout_ms=60_000) as outer:
        assert outer.connected
    assert alter(broker, {"listeners": INNER}) == (ErrorCode.NONE, None)
    eventually(lambda: registered() == ["PLAINTEXT"])
    eventually(lambda: known() == {"PLAINTEXT"})


def test_another_advertised_address_is_registered(broker: Broker) -> None:
    port = broker.network.port("PLAINTEXT")
    assert alter(broker, {"advertised.listeners": f"PLAINTEXT://localhost:{port}"})[0] == ErrorCode.NONE
    eventually(lambda: [each.host for each in known_endpoints(broker)] == ["localhost"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"listeners": "OUTER://127.0.0.1:0"}, "no protocol for OUTER"),
        ({"listeners": f"{INNER},SSL://127.0.0.1:0"}, "ssl.keystore.location"),
        ({"listeners": "PLAINTEXT://127.0.0.2:0"}, "address of inter-broker listener PLAINTEXT"),
        (
            {"advertised.listeners": "PLAINTEXT://localhost:1,SSL://localhost:2"},
            "SSL: only listeners can be advertised",
        ),
        (
            {
                "listeners": "OUTER://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
            },
            "listener between brokers must be an advertised one: OUTER",
        ),
    ],
)
def test_invalid_listeners_are_refused(broker: Broker, changes: dict[str, str | None], why: str) -> None:
    assert why in refused(broker, changes)


def test_an_address_in_use_undoes_the_whole_change(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        changes = {
            "listeners": f"{INNER},OUTER://127.0.0.1:{taken.getsockname()[1]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
            "num.io.threads": "5",
            "log.segment.bytes": "2000",
        }
        before = broker.live.broker()
        # This fails only when it is tried, so that the error is in the log.
        assert alter(broker, changes)[0] == ErrorCode.NONE
        eventually(lambda: "stay as they are: cannot listen" in caplog.text)
        assert broker.live.broker() is before
        assert broker.network.thread_counts[1] != 5
        assert [each.listener for each in broker.registration().endpoints] == ["PLAINTEXT"]
    assert alter(broker, {"num.io.threads": "6"})[0] == ErrorCode.NONE
    eventually(lambda: broker.network.thread_counts[1] == 6)
    assert broker.network.port("OUTER")


def test_the_broker_starts_although_configs_in_the_tree_are_invalid(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    change_config(broker.store, "brokers/7", {"listeners": "OUTER://127.0.0.1:0"})
    broker.stop()
    again = Broker(config(tmp_path / "a"))
    assert again.network.port("PLAINTEXT")
    again.stop()
    assert "The configs of brokers/7 stay as they are" in caplog.text


def test_a_password_that_kafka_has_encrypted_stays_in_the_tree_and_other_configs_apply(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    password = {
        "listener.name.ssl.ssl.key.password": "keyLength:128,initializationVector:x,encryptedPassword:y"
    }
    change_config(broker.store, "brokers/7", {**password, "num.io.threads": "3"})
    broker.stop()
    again = Broker(config(tmp_path / "a"))
    try:
        assert again.live.broker().number("num.io.threads") == 3
        assert f"secret in {next(iter(password))} of brokers/7 cannot be read" in caplog.text
        assert alter(again, {"num.io.threads": "4"}) == (ErrorCode.NONE, None)
        assert read_config(again.store, "brokers/7") == {**password, "num.io.threads": "4"}
        assert alter(again, dict.fromkeys(password)) == (ErrorCode.NONE, None)
        assert read_config(again.store, "brokers/7") == {"num.io.threads": "4"}
    finally:
        again.stop()


# TLS.


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Broker]:
    """A broker with a listener SSL beside the plain one; its key store is `keystore.pem`."""
    keystore = tmp_path / "keystore.pem"
    shutil.copy(TLS_FILES / "first.pem", keystore)
    properties = config(tmp_path / "a", listeners=f"{INNER},SSL://127.0.0.1:0").static
    ours = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
    running = Broker(config(tmp_path / "a", **{**properties, **ours}))
    yield running
    running.stop()


def shown(broker: Broker) -> ssl.SSLSocket:
    """A connection to the TLS listener."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", broker.network.port("SSL"))))


def certificate(connection: ssl.SSLSocket) -> str:
    return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")


def first_certificate(file: str) -> str:
    text = (TLS_FILES / file).read_text()
    return text[text.index("-----BEGIN CERTIFICATE") :]


def test_a_new_key_store_is_used_for_new_connections_and_old_ones_continue(secure: Broker) -> None:
    with shown(secure) as old:
        assert certificate(old) == first_certificate("first.pem")
        location = {"listener.name.ssl.ssl.keystore.location": str(TLS_FILES / "renewed.pem")}
        assert alter(secure, location) == (ErrorCode.NONE, None)

        def presented() -> str:
            with shown(secure) as new:
                return certificate(new)

        eventually(lambda: presented() == first_certificate("renewed.pem"))
        # ApiVersions v0 on the old connection.
        old.sendall(bytes.fromhex("0000000a 0012 0000 00000005 ffff"))
        assert old.recv(8)[4:] == bytes.fromhex("00000005")


def test_a_file_that_was_replaced_is_read_when_its_config_is_set_again(
    tmp_path: Path, secure: Broker
) -> None:
    keystore = str(tmp_path / "keystore.pem")
    location = {"listener.name.ssl.ssl.keystore.location": keystore}
    assert alter(secure, location)[0] == ErrorCode.NONE
    shutil.copy(TLS_FILES / "renewed.pem", keystore)
    assert alter(secure, location)[0] == ErrorCode.NONE

    def presented() -> str:
        with shown(secure) as new:
            return certificate(new)

    eventually(lambda: presented() == first_certificate("renewed.pem"))


@pytest.mark.parametrize(
    ("key", "file", "why"),
    [
        ("keystore.location", "other_holder.pem", "DistinguishedName does not match"),
        ("keystore.location", "fewer_names.pem", "SubjectAltNames do not match"),
        ("keystore.location", "nowhere.pem", "No such file"),
        ("keystore.location", "key.pem", "no certificate"),
        ("keystore.location", "certificate.pem", "cannot be used"),
        ("truststore.location", "certificate.pem", "Cannot add SSL truststore"),
    ],
)
def test_a_store_that_cannot_replace_the_old_one_is_refused(
    secure: Broker, key: str, file: str, why: str
) -> None:
    assert why in refused(secure, {f"listener.name.ssl.ssl.{key}": str(TLS_FILES / file)})
    with shown(secure) as new:
        assert certificate(new) == first_certificate("first.pem")


def test_the_holder_of_a_certificate_is_its_subject_and_its_alternative_names() -> None:
    first, renewed, fewer, other = (
        holder_of((TLS_FILES / name).read_text())
        for name in ("first.pem", "renewed.pem", "fewer_names.pem", "other_holder.pem")
    )
    assert first.subject == renewed.subject == fewer.subject == ((bytes.fromhex("550403"), b"localhost"),)
    assert other.subject == ((bytes.fromhex("550403"), b"other"),)
    assert first.names == {b"\x82localhost", b"\x87\x7f\x00\x00\x01"}
    assert renewed.names == first.names | {b"\x82added.example"}
    assert fewer.names == {b"\x82localhost"}
