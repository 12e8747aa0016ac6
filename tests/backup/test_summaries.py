"""Summaries of backups: they spare reading manifests, and change nothing of what is known."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from klog.backup import names
from klog.backup.catalogue import Summariser, read_catalogue
from klog.backup.prune import GRACE_MS, Rules, plan_prune, prune
from klog.backup.restoring.selection import manifests_around
from klog.backup.store import Store
from klog.backup.verify import VerifyOptions, verify
from klog.commands.offline.backing.rows import backup_rows, topic_rows
from klog.export.outputs import LocalOutput
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica, write_segment

RUNS = 14
SUMMARISED = 4
DAY_MS = 86_400_000
OLD_ENOUGH = 2 * GRACE_MS


class ReadsOutput(LocalOutput):
    """A store that notes what is opened."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open(self, name: str) -> Any:
        self.opened.append(name)
        return super().open(name)


@pytest.fixture
def reads(backups: Backups) -> list[str]:
    """The names of the objects that are read."""
    output = ReadsOutput(str(backups.place))
    backups.store = Store(output)
    return output.opened


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@dataclass(frozen=True)
class Made:
    """A repository, what `orders` had in each of its backups by id, and its clock."""

    place: Path
    contents: dict[str, dict[str, bytes]]
    now_ms: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Backups, some a day apart, of topics that grow, roll, lose segments, come and go."""
    logs = tmp_path_factory.mktemp("logs")
    backups = Backups(tmp_path_factory.mktemp("made") / "repository")
    contents = {}
    for number in range(RUNS):
        write_segment(logs / "orders-0", [batch(5 * number, 5)], 5 * number - 5 * number % 15)
        if number % 5 == 4:
            min((logs / "orders-0").glob("*.log")).unlink()
        if number % 4 == 0:
            replica(logs / f"topic{number}-0", [batch(0, 5)])
        if number % 4 == 2:
            shutil.rmtree(logs / f"topic{number - 2}-0")
        backups.now_ms += DAY_MS if number % 2 else 1000
        contents[backups.run(logs).manifest.id] = log_files(logs / "orders-0")
    return Made(Path(backups.place), contents, backups.now_ms)


@pytest.fixture
def history(backups: Backups, made: Made) -> dict[str, dict[str, bytes]]:
    """A copy of the backups: what `orders` had, by id."""
    shutil.copytree(made.place, backups.place)
    backups.now_ms = made.now_ms
    return made.contents


def summarise(backups: Backups) -> list[str]:
    """Write all summaries that are due."""
    summariser = Summariser(backups.repository, SUMMARISED, settled_ms=0)
    return list(iter(summariser.after_run, None))


def shown(backups: Backups) -> tuple[list[Any], list[Any]]:
    """What `list` and `show` show."""
    repository = backups.repository
    catalogue = read_catalogue(repository)
    assert not catalogue.problems
    topics = topic_rows(repository, catalogue, lambda _error: None, text=False)
    return list(backup_rows(catalogue, text=False)), list(topics)


def planned(backups: Backups, rules: Rules) -> dict[str, Any]:
    """What a prune removes, without summaries."""
    plan = plan_prune(backups.repository, rules, backups.now_ms + OLD_ENOUGH)
    objects = {name for name in plan.objects if not name.startswith("summaries/")}
    return {"removed": plan.removed, "kept": plan.kept, "objects": objects}


RULES = (Rules(last=1), Rules(last=5), Rules(daily=3), Rules(daily=4, weekly=2), Rules(before_ms=0))


@pytest.mark.parametrize("seed", range(3))
def test_commands_show_and_remove_the_same_with_summaries_and_without(
    backups: Backups, history, seed: int
) -> None:
    store = backups.repository.store
    for identifier in random.Random(seed).sample(sorted(history), 3 * seed):
        if seed < 2 or identifier != max(history):
            store.remove(names.manifest(identifier))  # as an earlier prune did
    plain = shown(backups), [planned(backups, rules) for rules in RULES]

    assert len(summarise(backups)) == (RUNS - 3 * seed) // SUMMARISED

    assert (shown(backups), [planned(backups, rules) for rules in RULES]) == plain


@pytest.mark.parametrize("rules", RULES)
def test_backups_that_were_removed_after_they_were_summarised_are_not_shown(
    backups: Backups, history, rules: Rules
) -> None:
    summarise(backups)
    repository = backups.repository

    prune(repository, plan_prune(repository, rules, backups.now_ms + OLD_ENOUGH), lambda _name: None)

    with_summaries = shown(backups), planned(backups, Rules(last=1))
    kept = backups.repository.ids()
    assert not verify(backups.repository, kept, VerifyOptions()).findings
    assert {each: backups.segments("orders", 0, each) for each in kept} == {
        each: history[each] for each in kept
    }
    shutil.rmtree(Path(backups.place) / "summaries", ignore_errors=True)
    assert (shown(backups), planned(backups, Rules(last=1))) == with_summaries


def manifests_in(reads: list[str]) -> int:
    return len([name for name in reads if name.startswith("manifests/")])


def test_few_manifests_are_read(backups: Backups, history, reads: list[str]) -> None:
    waiting = RUNS % SUMMARISED
    assert len(summarise(backups)) == RUNS // SUMMARISED

    def read_by(work: Callable[[], object]) -> int:
        reads.clear()
        work()
        return manifests_in(reads)

    repository = backups.repository
    assert read_by(lambda: read_catalogue(repository)) == waiting
    last = Rules(last=RUNS)
    assert read_by(lambda: plan_prune(repository, last, backups.now_ms)) == 2 * waiting + RUNS // SUMMARISED
    sizes_only = VerifyOptions(share=0)
    assert (
        read_by(lambda: verify(repository, sorted(history), sizes_only)) == 2 * waiting + RUNS // SUMMARISED
    )
    assert read_by(lambda: verify(repository, sorted(history), VerifyOptions())) == RUNS


def test_sizes_are_compared_of_what_only_summarised_backups_need(backups: Backups, history) -> None:
    summarise(backups)
    first = min(history)
    repository = backups.repository
    only_first = set(planned(backups, Rules(last=RUNS - 1))["objects"])
    assert only_first
    for name in only_first:
        repository.store.remove(name)

    found = verify(repository, sorted(history), VerifyOptions(share=0))

    assert {finding.what.file for finding in found.findings} == {
        repository.store.path_of(name) for name in only_first
    }
    assert {finding.backup for finding in found.findings} == {first}
    assert found.backups == RUNS


def test_a_moment_is_found_by_the_manifests_around_it(backups: Backups, history, reads: list[str]) -> None:
    ids = sorted(history)
    repository = backups.repository
    for before, last in pairwise(ids):
        moment_ms = names.time_of_id(last)
        listed = [each.id for each in manifests_around(repository, moment_ms)]
        assert listed[:2] == [before, last]
    reads.clear()

    manifests_around(repository, names.time_of_id(ids[7]))

    assert manifests_in(reads) <= 4


def test_a_damaged_summary_is_named_and_nothing_is_missing(klog: Run, backups: Backups, history) -> None:
    plain = shown(backups)
    first = summarise(backups)[0]
    path = Path(backups.place) / first
    path.write_bytes(path.read_bytes()[:-20])

    listed = klog("backup", "list", backups.place, "--json")

    assert listed.code == 1
    assert first in listed.err
    assert "remove it: klog reads the manifests instead" in listed.err
    assert listed.out.count('"id"') == RUNS
    repository = backups.repository
    [finding] = verify(repository, repository.ids(), VerifyOptions()).findings
    assert first in str(finding.what)
    path.unlink()
    assert shown(backups) == plain


def test_a_damaged_manifest_is_named_and_the_others_are_shown(klog: Run, backups: Backups, history) -> None:
    damaged = sorted(history)[3]
    path = Path(backups.place) / names.manifest(damaged)
    path.write_text("{")
    for command in ("list", "show"):
        done = klog("backup", command, backups.place, "--json")
        assert done.code == 1
        assert f"{damaged}.json" in done.err
        assert done.out.count('"size"') == (RUNS - 1 if command == "list" else len(shown(backups)[1]))

    assert len(summarise(backups)) == 3
    catalogue = read_catalogue(backups.repository)
    assert len(catalogue.backups) == RUNS - 1
    assert set(catalogue.damaged) == {damaged}


def test_a_prune_removes_a_damaged_manifest_that_no_rule_keeps(backups: Backups, history) -> None:
    damaged = sorted(history)[0]
    (Path(backups.place) / names.manifest(damaged)).write_text("{")

    plan = plan_prune(backups.repository, Rules(last=RUNS - 1), backups.now_ms + OLD_ENOUGH)

    assert plan.removed == (damaged,)


def test_the_repository_is_listed_only_when_a_summary_may_be_due(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    summariser = Summariser(backups.repository, SUMMARISED, settled_ms=0)

    def run() -> str | None:
        backups.run(logs)
        return summariser.after_run()

    written = [run() for _ in range(9)]

    assert [each is not None for each in written] == [*[False] * 3, True, *[False] * 3, True, False]


def test_backups_that_have_just_ended_wait(backups: Backups, history) -> None:
    newest = max(history)
    settled = [each for each in history if names.time_of_id(each) <= names.time_of_id(newest) - 5 * DAY_MS]
    summariser = Summariser(backups.repository, len(settled), settled_ms=5 * DAY_MS)
    name = summariser.after_run()
    assert name is not None
    assert names.ids_of_summary(name) == (min(history), max(settled))
    assert summariser.after_run() is None


def test_an_encrypted_repository_has_them_too(tmp_path: Path, logs: Path) -> None:
    from klog.backup.keys import UserKey

    backups = Backups(tmp_path / "r", key=UserKey(b"a phrase that is long enough"))
    replica(logs / "orders-0", [batch(0, 5)])
    for _ in range(SUMMARISED):
        backups.run(logs)
    plain = shown(backups)
    [name] = summarise(backups)
    assert (tmp_path / "r" / f"{name}.enc").exists()
    assert shown(backups) == plain
