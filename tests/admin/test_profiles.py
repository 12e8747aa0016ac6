"""Profiles are kept in a file that only its user reads, and that keeps what people wrote into it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin.profiles import (
    Profiles,
    has_secrets,
    open_to_others,
    read_profiles,
    settings_path,
    visible_properties,
    write_profiles,
)
from klog.formats.errors import FormatError, UsageError

JAAS = 'x.LoginModule required username="me" password="pen\\"cil" clientSecret=s3cret;'


def test_the_file_is_where_the_desktop_keeps_settings() -> None:
    assert settings_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/klog/config.toml")
    assert settings_path({"HOME": "/h"}) == Path("/h/.config/klog/config.toml")


def test_the_first_profile_becomes_current() -> None:
    profiles = Profiles().with_profile("a", {"k": "1"}).with_profile("b", {})
    assert profiles.current == "a"
    assert profiles.using("b").current == "b"
    assert profiles.without("a") == Profiles({"b": {}}, None)
    assert profiles.without("b").current == "a"


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "ü"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a profile"):
        Profiles().with_profile(name, {})


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known: prod, test"):
        Profiles({"test": {}, "prod": {}}).named("tset")


texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
names = st.from_regex(r"[a-z][a-z.]{0,8}[a-z]", fullmatch=True)


@given(
    tables=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True), st.dictionaries(names, texts)
    )
)
def test_what_is_written_is_read_back(tmp_path_factory, tables: dict[str, dict[str, str]]) -> None:
    path = tmp_path_factory.mktemp("p") / "klog" / "config.toml"
    written = Profiles(tables, next(iter(tables), None))
    write_profiles(path, written)
    assert read_profiles(path) == written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_comments_and_other_settings_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '# mine\ncolour = "no"\n\n[profiles.a]  # the old one\n'
        'sasl.mechanism = "PLAIN"\nretries = 3\nssl = true\n'
    )
    profiles = read_profiles(path)
    assert profiles.by_name == {"a": {"sasl.mechanism": "PLAIN", "retries": "3", "ssl": "true"}}
    write_profiles(path, profiles.with_profile("b", {"bootstrap.servers": "x:1"}).using("b"))
    text = path.read_text()
    assert "# mine\n" in text
    assert 'colour = "no"' in text
    assert "# the old one" in text
    assert read_profiles(path).current == "b"
    write_profiles(path, read_profiles(path).without("a"))
    assert read_profiles(path).by_name == {"b": {"bootstrap.servers": "x:1"}}


@pytest.mark.parametrize("text", ["[profiles", "profiles = 3", "[profiles]\na = 1", "current = 3", b"\xff"])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError) as raised:
        read_profiles(path)
    assert str(path) in str(raised.value)


def test_secrets_are_never_shown() -> None:
    properties = {
        "bootstrap.servers": "a:1",
        "sasl.jaas.config": JAAS,
        "ssl.key.password": "pencil",
        "ssl.keystore.key": "pencil",
        "ssl.keystore.location": "k.pem",
    }
    shown = visible_properties(properties)
    assert "pen" not in str({**shown, "ssl.keystore.location": ""})
    assert "s3cret" not in str(shown)
    assert 'username="me"' in shown["sasl.jaas.config"]
    assert shown["ssl.keystore.location"] == "k.pem"
    assert has_secrets(properties)
    assert not has_secrets({"bootstrap.servers": "a:1"})


def test_files_that_others_can_read_are_found(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for path, mode in ((mine, 0o600), (shared, 0o640)):
        path.touch()
        path.chmod(mode)
    assert open_to_others([mine, shared, tmp_path / "missing"]) == [shared]
