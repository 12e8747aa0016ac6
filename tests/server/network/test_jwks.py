"""The keys of a provider of tokens are read again, sooner after a failure, and never by a login."""

from __future__ import annotations

import threading

import pytest

from klog.formats.errors import FormatError
from klog.security.authentication.signed_tokens import KeySet
from klog.server.network.jwks import RefreshedKeys, read_keys
from tests.waiting import eventually


class Provider:
    """Gives a new key for each read, once it is open."""

    def __init__(self, failures: int = 0) -> None:
        self.reads = 0
        self.failures = failures

    def read(self, url: str) -> KeySet:
        self.reads += 1
        if self.reads <= self.failures:
            raise OSError("the provider is away")
        return KeySet(({"kid": self.reads},))


def keys_of(provider: Provider, refresh_ms: int = 3_600_000) -> RefreshedKeys:
    return RefreshedKeys("http://keys", refresh_ms, 1, 20, provider.read)


def test_keys_are_read_at_once_and_again() -> None:
    provider = Provider()
    keys = keys_of(provider, refresh_ms=1)
    keys.await_first()
    assert keys().keys
    eventually(lambda: provider.reads >= 3)
    keys.stop()


def test_a_provider_that_is_away_is_asked_again_soon_and_complained_about_once(caplog) -> None:
    provider = Provider(failures=4)
    keys = keys_of(provider)
    eventually(lambda: bool(keys().keys))
    keys.stop()
    assert (provider.reads, caplog.text.count("cannot be read")) == (5, 1)


def test_a_read_that_fails_after_the_stop_is_not_complained_about(caplog) -> None:
    asked, may_fail = threading.Event(), threading.Event()

    def read(url: str) -> KeySet:
        asked.set()
        may_fail.wait()
        raise OSError("the provider was stopped, too")

    keys = RefreshedKeys("http://keys", 3_600_000, 1, 20, read)
    asked.wait()
    keys.stop()
    may_fail.set()
    eventually(lambda: "klog-jwks" not in {thread.name for thread in threading.enumerate()})
    assert caplog.text == ""


def test_a_key_that_is_not_there_has_the_keys_read_once_in_a_minute() -> None:
    provider = Provider()
    keys = keys_of(provider)
    keys.await_first()
    for _ in range(5):
        keys.expedite()
    eventually(lambda: provider.reads == 2)
    keys.expedite()
    keys.stop()
    eventually(lambda: "klog-jwks" not in {thread.name for thread in threading.enumerate()})
    assert provider.reads == 2


def test_a_file_of_keys(tmp_path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"keys": [{"kid": "a"}]}')
    assert read_keys(path.as_uri()) == KeySet(({"kid": "a"},))
    path.write_text("<html>")
    with pytest.raises(FormatError):
        read_keys(path.as_uri())
