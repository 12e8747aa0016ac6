"""Decides what Kafka does about the damage that `verify` found in the batches of a partition.

The plan of a recovery is the authority: it says where Kafka cuts, which segments and files it deletes, and
which bad batches it keeps because their checksum holds. So `verify` names `klog recover` as the repair
exactly where `klog recover` changes something.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from klog.formats.names import FileKind
from klog.storage.repair.problem import OFFLINE, RECOVER, Problem, note
from klog.storage.repair.recovery_plan import (
    EMPTIES,
    REFUSES,
    Cut,
    Finding,
    RecoveryPlan,
    SetAside,
    SplitOff,
    Step,
    Trim,
    Write,
)

_CUTS: Final = "cuts the log here after an unclean stop; after a clean one readers stop here"
_UNFIT: Final = "does not fit the log as recovery leaves it"
_STALE: Final = "is a producer snapshot that recovery does not keep"
_CUTS_TAIL: Final = "cuts the log here after an unclean stop; may refuse to start after a clean one"


def judged(damage: Iterable[Problem], others: Iterable[Problem], plan: RecoveryPlan) -> list[Problem]:
    """All problems of a partition, with what the recovery of `plan` does about each.

    `damage` are the problems of batches, `others` those of other files. What only the plan knows is added.
    """
    outcome = _Finding(plan)
    problems = [outcome.of_batch(problem) for problem in damage]
    problems += [outcome.of_file(problem) for problem in others]
    return [*problems, *outcome.unsaid(problems)]


class _Finding:
    """What a plan does to each file of its partition."""

    def __init__(self, plan: RecoveryPlan) -> None:
        self._plan = plan
        self._changed = {name for step in plan.steps for name in _names(step)}
        self._rewritten = {step.name: step for step in plan.steps if isinstance(step, Write)}
        self._cuts = {step.name: step.valid_bytes for step in plan.steps if isinstance(step, Cut | Trim)}
        made = {step.name for step in plan.steps if isinstance(step, SplitOff)}
        self._aside = {
            step.name: step for step in plan.steps if isinstance(step, SetAside) and step.name not in made
        }
        self._found = {(finding.name, finding.position_bytes): finding for finding in plan.findings}

    def of_batch(self, problem: Problem) -> Problem:
        """A problem of a batch, with what becomes of the batch."""
        name = os.path.basename(problem.file)
        if problem.kafka == OFFLINE:
            return problem
        if name in self._aside:
            kafka = f"deletes the segment after an unclean stop: {self._aside[name].why}"
            return replace(problem, kafka=kafka, cure=RECOVER)
        cut = self._cuts.get(name)
        if cut is None or problem.position is None or problem.position < cut:
            return problem
        finding = self._found.get((name, cut))
        if finding is not None and finding.kafka.startswith(REFUSES):
            return replace(problem, kafka=finding.kafka, cure=RECOVER)
        if finding is not None and finding.kafka == EMPTIES:
            return replace(problem, kafka=f"{EMPTIES} after an unclean stop", cure=RECOVER)
        if problem.position > cut:
            kafka = f"cuts the log before it, at byte {cut}, after an unclean stop"
            return replace(problem, kafka=kafka, cure=RECOVER)
        is_tail = problem.what.startswith(("zero bytes", "size field"))
        return replace(problem, kafka=_CUTS_TAIL if is_tail else _CUTS, cure=RECOVER)

    def of_file(self, problem: Problem) -> Problem:
        """A problem of another file; recovery is named as its repair only if it changes the file."""
        if problem.cure != RECOVER or os.path.basename(problem.file) in self._changed:
            return problem
        return replace(problem, cure="")

    def unsaid(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """What recovery finds or removes and no problem says."""
        said = {(os.path.basename(problem.file), problem.position) for problem in problems}
        files = {name for name, _ in said}
        for finding in self._plan.findings:
            if not _is_said(finding, said, files):
                cure = RECOVER if finding.name in self._changed or not finding.name else ""
                path = os.path.join(self._plan.path, finding.name) if finding.name else self._plan.path
                yield Problem(path, finding.what, finding.kafka, cure, position=finding.position_bytes)
                files.add(finding.name)
        for name, step in self._aside.items():
            if name in files or _log_of(name) in self._aside:
                continue
            path = os.path.join(self._plan.path, name)
            if name.endswith(f".{FileKind.LOG}"):
                what = "is a segment after the place where the log is cut"
                yield Problem(path, what, "deletes it after an unclean stop", RECOVER)
            else:
                what = _STALE if name.endswith(f".{FileKind.PRODUCER_SNAPSHOT}") else step.why
                yield note(path, what, "deletes it after an unclean stop", RECOVER)
        for name in self._rewritten:
            path = os.path.join(self._plan.path, name)
            if name not in files and _log_of(name) not in self._cuts and os.path.exists(path):
                yield note(path, _UNFIT, "writes it again after an unclean stop", RECOVER)


def _log_of(name: str) -> str | None:
    """The segment with which a file goes or changes; a problem is said of that. None for a segment itself."""
    log = f"{name.partition('.')[0]}.{FileKind.LOG}"
    return log if name != log else None


def _is_said(finding: Finding, said: set[tuple[str, int | None]], files: set[str]) -> bool:
    if finding.position_bytes is None and not finding.name.endswith(f".{FileKind.LOG}"):
        return finding.name in files
    return (finding.name, finding.position_bytes) in said


def _names(step: Step) -> tuple[str, ...]:
    names = (getattr(step, name, None) for name in ("name", "source", "target"))
    return tuple(name for name in names if name is not None)
