"""A list that is empty says so to people, and is an empty list to programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.commands.clusters import KINDS, STARTERS
from tests.commands.running import Run, runner

LISTS = [
    "groups list",
    "profile list",
    "quotas list",
    "quotas list --user nobody",
    "reassign list",
    "topics list",
    "transactions find-hanging",
    "transactions list",
    "users list",
]
each = pytest.mark.parametrize("line", LISTS)


@pytest.fixture(scope="module", params=KINDS)
def empty_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster without anything in it."""
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as bootstrap:
        yield bootstrap


@pytest.fixture
def on_empty(
    empty_cluster: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", empty_cluster)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    return runner(capfd, monkeypatch)


@each
def test_people_are_told_that_there_is_nothing(on_empty: Run, line: str) -> None:
    done = on_empty(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (0, "", 1)
    assert any(word in done.err for word in ("there are no", "no user", "no reassignment", "no transaction"))


@each
def test_programs_get_an_empty_list_and_the_names_of_its_fields(on_empty: Run, line: str) -> None:
    listed = on_empty(*line.split(), "-o", "json")
    assert listed[:2] == (0, "[]\n")
    assert on_empty(*line.split(), "-o", "jsonl")[:2] == (0, "")
    code, header, _ = on_empty(*line.split(), "-o", "csv")
    assert (code, header.count("\n")) == (0, 1)
    assert "," in header
