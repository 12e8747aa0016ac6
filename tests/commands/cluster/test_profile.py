"""`klog profile` keeps connection settings under names and never prints a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.running import Run, runner


@pytest.fixture
def klog(capfd, monkeypatch, tmp_path) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KLOG_PASSWORD", "pen;cil")
    return runner(capfd, monkeypatch)


def rows(klog: Run, *command: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in klog(*command, "-o", "jsonl").out.splitlines()]


def add(klog: Run, name: str, *options: object) -> None:
    added = klog("profile", "add", name, "--bootstrap-server", "127.0.0.1:1", *options)
    assert added.code == 0, added.err
    assert "pen;cil" not in added.err


def test_profiles_are_listed_with_the_current_one(klog: Run) -> None:
    add(klog, "test")
    add(klog, "prod", "--tls", "--use")
    assert [
        (row["profile"], row["current"], row["securityProtocol"]) for row in rows(klog, "profile", "list")
    ] == [
        ("prod", True, "SSL"),
        ("test", False, "PLAINTEXT"),
    ]


def test_a_shown_profile_hides_its_password(klog: Run) -> None:
    add(klog, "prod", "--sasl", "PLAIN", "--user", 'm"e')
    found = {row["name"]: row["value"] for row in rows(klog, "profile", "show")}
    assert found["sasl.jaas.config"].endswith(' required username="m\\"e" password=[hidden];')
    assert found["security.protocol"] == "SASL_PLAINTEXT"


def test_the_properties_of_a_file_are_taken_over(klog: Run, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nclient.id=me\n")
    assert klog("profile", "add", "p", "--command-config", path, "-X", "client.id=you").code == 0
    assert {row["name"]: row["value"] for row in rows(klog, "profile", "show", "p")} == {
        "bootstrap.servers": "a:1",
        "client.id": "you",
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "--bootstrap-server host:port"),
        (("-b", "a:1", "--sasl", "GSSAPI", "--user", "x"), "--sasl GSSAPI is not supported"),
        (("-b", "a:1", "--sasl", "PLAIN"), "--user USER"),
        (("-b", "a:1", "--user", "x"), "the mechanism is missing"),
        (("-b", "a:1", "--ca", "missing.pem"), "missing.pem"),
        (("-b", "a b",), "no broker address"),
        (("-b", "a:1", "--sasl", "OAUTHBEARER", "--user", "x"), "token.endpoint.url"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_not_kept(klog: Run, options: tuple[str, ...], problem: str) -> None:
    refused = klog("profile", "add", "p", *options)
    assert refused.code == 2
    assert problem in refused.err
    assert rows(klog, "profile", "list") == []


def test_a_profile_is_not_replaced_unless_asked(klog: Run) -> None:
    add(klog, "p")
    refused = klog("profile", "add", "p", "--bootstrap-server", "b:2")
    assert (refused.code, "--replace" in refused.err) == (2, True)
    assert klog("profile", "add", "p", "--bootstrap-server", "b:2", "--replace").code == 0
    assert rows(klog, "profile", "list")[0]["bootstrapServers"] == "b:2"


@pytest.mark.parametrize("command", ["use", "remove", "show"])
def test_an_unknown_profile_is_one_line(klog: Run, command: str) -> None:
    refused = klog("profile", command, "nope")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_a_command_names_a_profile_that_does_not_exist(klog: Run) -> None:
    refused = klog("topics", "list", "--profile", "nope")
    assert (refused.code, "there is no profile nope" in refused.err) == (2, True)


def test_a_removed_profile_is_gone(klog: Run) -> None:
    add(klog, "p")
    assert klog("profile", "remove", "p", "--yes").code == 0
    assert rows(klog, "profile", "list") == []


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True)])
def test_a_file_with_a_token_that_others_can_read_is_warned_of(
    klog: Run, tmp_path: Path, mode: int, warned: bool
) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c\n")
    token.chmod(mode)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file:{token}",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    words = [word for pair in settings.items() for word in ("-X", "=".join(pair))]
    done = klog("topics", "list", "-b", "127.0.0.1:1", "--timeout-ms", 100, *words)
    assert done.code == 1
    assert (f"{token} holds secrets, and other users can read it (chmod 600" in done.err) == warned


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True)])
def test_files_with_secrets_that_others_can_read_are_warned_of(
    klog: Run, tmp_path: Path, mode: int, warned: bool
) -> None:
    properties, password = tmp_path / "client.properties", tmp_path / "password"
    properties.write_text("bootstrap.servers=a:1\nssl.key.password=a\n")
    password.write_text("pencil\n")
    for path in (properties, password):
        path.chmod(mode)
    login = ("--sasl", "PLAIN", "--user", "me", "--password-file", password)
    added = klog("profile", "add", "p", "--command-config", properties, *login)
    assert added.code == 0, added.err
    for path in (properties, password):
        assert (f"{path} holds secrets, and other users can read it (chmod 600" in added.err) == warned
