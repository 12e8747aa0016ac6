"""Variables in a properties file are replaced as in Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.config.keys import ConfigError
from klog.formats.errors import UsageError
from klog.server.configs.config_providers import with_variables_replaced
from klog.server.startup.config_reading import read_config
from tests.peers.kafka import KafkaPeer

KAFKAS = "org.apache.kafka.common.config.provider."
FILES, DIRECTORIES, ENVIRONMENT = (
    f"{KAFKAS}{kind}ConfigProvider" for kind in ("File", "Directory", "EnvVar")
)


def provided(kind: str, text: str, **parameters: str) -> str:
    """`text` with variables replaced by a provider named `p`."""
    named = {f"config.providers.p.param.{name.replace('_', '.')}": each for name, each in parameters.items()}
    texts = {"config.providers": "p", "config.providers.p.class": kind, "super.users": text}
    return with_variables_replaced(texts | named)["super.users"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "a.properties").write_text("id = 7\nname=al\\u00eece é\nempty=\n", "utf-8")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "token").write_text("s3cret\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("${p:FILE:id}", "7"),
        ("<${p:FILE:id}-${p:FILE:name}>", "<7-alîce é>"),
        ("${p:FILE:empty}", ""),
        ("${p:FILE:other}", "${p:FILE:other}"),
        ("${q:FILE:id} ${p:FILE:id}", "${q:FILE:id} 7"),
        ("${p:id}", "${p:id}"),
        ("${p} $p {p:FILE:id}", "${p} $p {p:FILE:id}"),
    ],
)
def test_properties_of_a_file(secrets, text, meant) -> None:
    file = str(secrets / "a.properties")
    assert provided(FILES, text.replace("FILE", file)) == meant.replace("FILE", file)


@pytest.mark.parametrize("key", ["none", "../a.properties", "."])
def test_files_of_a_directory(secrets, key) -> None:
    where = secrets / "directory"
    assert provided(DIRECTORIES, f"${{p:{where}:token}}") == "s3cret\n"
    assert provided(DIRECTORIES, f"${{p:{where}:{key}}}") == f"${{p:{where}:{key}}}"


def test_variables_of_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("KLOG_TEST_A", "1")
    assert provided(ENVIRONMENT, "${p:KLOG_TEST_A}${p:KLOG_TEST_NONE}") == "1${p:KLOG_TEST_NONE}"
    assert provided(ENVIRONMENT, "${p:KLOG_TEST_A}", allowlist_pattern="OTHER.*") == "${p:KLOG_TEST_A}"
    for text, parameters in (("${p:x:KLOG_TEST_A}", {}), ("${p:KLOG_TEST_A}", {"allowlist_pattern": "("})):
        with pytest.raises(ConfigError, match=r"config\.providers\.p"):
            provided(ENVIRONMENT, text, **parameters)


def test_only_allowed_paths_are_read(secrets) -> None:
    file, directory = secrets / "a.properties", secrets / "directory"
    variable = f"${{p:{file}:id}}"
    assert provided(FILES, variable, allowed_paths=f"{directory},{secrets}") == "7"
    for other in (directory, secrets / "a.propertie", f"{directory}/../directory"):
        Path(secrets / "a.propertie").touch()
        assert provided(FILES, variable, allowed_paths=str(other)) == variable
    sneaking = f"${{p:{directory}/../a.properties:id}}"
    assert provided(FILES, sneaking, allowed_paths=str(directory)) == sneaking
    for bad in ("here", str(secrets / "none")):
        with pytest.raises(ConfigError, match=r"allowed\.paths"):
            provided(FILES, variable, allowed_paths=bad)


def test_a_file_that_cannot_be_read_is_named(secrets) -> None:
    (secrets / "latin").write_bytes(b"id=\xe9")
    for file in (secrets / "none", secrets / "directory", secrets / "latin"):
        with pytest.raises(ConfigError, match=str(file)):
            provided(FILES, f"${{p:{file}:id}}")


def test_an_unsupported_provider_is_an_error_that_lists_the_supported_ones() -> None:
    with pytest.raises(
        UsageError, match=r"org\.example\.Vault for configuration config\.providers\.p\.class"
    ):
        provided("org.example.Vault", "")


def test_without_providers_nothing_is_replaced() -> None:
    texts = {"super.users": "${env:HOME}", "config.providers": "env"}
    assert with_variables_replaced(texts) == texts


def test_a_properties_file_may_have_variables(secrets) -> None:
    (secrets / "server.properties").write_text(
        f"config.providers=file\nconfig.providers.file.class={FILES}\n"
        f"broker.id=${{file:{secrets}/a.properties:id}}\n"
    )
    config = read_config(str(secrets / "server.properties"), ["a.b=c"])
    assert config.number("broker.id") == 7
    assert config.unknown() == {"a.b": None}


@pytest.mark.kafka
def test_kafka_replaces_the_same_variables(kafka3: KafkaPeer, secrets) -> None:
    file, where = secrets / "a.properties", secrets / "directory"
    (secrets / "number").write_text("9")
    kinds = (FILES, f"${{p:{file}:%s}}"), (DIRECTORIES, f"${{p:{secrets}:%s}}"), (ENVIRONMENT, "${p:%s}")
    cases = [
        {"config.providers": "p", "config.providers.p.class": kind, "broker.id": form % key}
        for kind, form in kinds
        for key in ("id", "name", "none", "number", "HOME")
    ]
    cases += [
        {**cases[0], "broker.id": f"${{p:{where}:id}}"},
        {**cases[0], "broker.id": f"${{p:{secrets}/none:id}}"},
        {**cases[0], "broker.id": "${p:id}"},
        {**cases[0], "config.providers": "q"},
        {**cases[0], "config.providers": "q,p"},
        {**cases[0], "config.providers.p.class": "org.example.Vault"},
        {**cases[0], "config.providers.p.param.allowed.paths": str(where)},
        {**cases[0], "config.providers.p.param.allowed.paths": str(secrets)},
        {**cases[0], "config.providers.p.param.allowed.paths": "here"},
    ]
    asked = "\n".join(
        "\t".join(f"{name}={text}" for name, text in {"zookeeper.connect": "x", **case}.items())
        for case in cases
    )
    theirs = kafka3.java("ConfigCheck", stdin=asked.encode()).stdout.decode().splitlines()

    def ours(case: dict[str, str]) -> bool:
        try:
            read_config(None, [f"{name}={text}" for name, text in case.items()])
        except ConfigError:
            return False
        return True

    assert [ours(case) for case in cases] == [said == "ok" for said in theirs]
    assert {said == "ok" for said in theirs} == {True, False}
