"""Whether a place is a repository, if the object store there refuses to say."""

from __future__ import annotations

import pytest

from klog.backup import reading
from klog.backup.reading import is_repository
from klog.backup.retrying import RetryPolicy
from klog.commands.servers.read_only import opening_of
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.moment_options import MomentOptions
from klog.formats.errors import StorageError
from klog.replicas.files import Entry

PLACE = "s3://backups/cluster"


class BusyStore:
    """Refuses some calls, and then has the file that makes a repository."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    def entry_of(self, path: str) -> Entry:
        assert path == f"{PLACE}/klog-backup.json"
        if self.left:
            self.left -= 1
            raise StorageError("SlowDown", file=path) from OSError("SlowDown")
        return Entry("klog-backup.json", path, is_directory=False, size_bytes=1)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> BusyStore:
    found = BusyStore(2)
    monkeypatch.setattr(reading, "entry_of", found.entry_of)
    return found


@pytest.mark.usefixtures("store")
def test_it_is_asked_again_as_the_policy_says() -> None:
    assert is_repository(PLACE, policy=RetryPolicy(pause=lambda _seconds: None))


@pytest.mark.usefixtures("store")
def test_what_cannot_be_known_is_an_error() -> None:
    with pytest.raises(StorageError, match="SlowDown"):
        is_repository(PLACE)


@pytest.mark.usefixtures("store")
def test_or_no_repository_for_who_reads_the_files_there() -> None:
    assert not is_repository(PLACE, must_know=False)


def test_serve_read_only_asks_again(store: BusyStore) -> None:
    opening_of([PLACE], MomentOptions(), KeyOptions(), None, ())
    assert store.left == 0
