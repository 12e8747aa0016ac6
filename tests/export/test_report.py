"""The final report says what was done and all that was not, to people and to programs."""

from __future__ import annotations

import json

from klog.commands.offline.exporting.report_text import report_text
from klog.export.job_state import Progress
from klog.export.jobs import SplitResult
from klog.export.options import ReadOptions
from klog.export.outputs import WrittenFile
from klog.export.report import make_report, report_json
from klog.export.split_export import ExportJob
from klog.export.verify_export import Finding
from klog.formats.errors import KlogError
from klog.replicas.splits import Divergence, LostRange, PartitionPlan, Plan, Split

JOB = ExportJob(ReadOptions(("logs",)), "out")
SPLITS = tuple(Split(number, "t", 0, "f", 0, 0, 1000 * (number + 1), 0, 9) for number in range(3))
PARTITION = PartitionPlan("t", 0, 0, 30, 0, 30, None, None, ("logs/t-0",))


def result(split: Split, *lost: LostRange, rows_with_error: int = 0, rejected: int = 0) -> SplitResult:
    file = WrittenFile(f"{split.number}.parquet", 10, 0, 9, 500, "ab")
    rejects = WrittenFile("r.jsonl", rejected, 0, 9, 50, "cd") if rejected else None
    return SplitResult(split, (file,), rejects, lost, rows_with_error)


def report_of(
    plan: Plan, *results: SplitResult, before: int = 0, findings: tuple[Finding, ...] | None = None
):
    done = {one.split.number: one for one in results}
    start = Progress(JOB, plan, {}, {number: done[number] for number in range(before)})
    return make_report(Progress(JOB, plan, {}, done, complete=True), start, 2.0, findings)


def test_a_clean_report_is_two_lines() -> None:
    report = report_of(Plan(SPLITS, (PARTITION,)), *map(result, SPLITS))
    assert report.clean
    assert report_text(report) == (
        "30 records of 1 partition in 3 files, 1.46 KiB\n5.86 KiB of segments in 2.0 s, 2.93 KiB/s"
    )


def test_rate_and_time_are_of_this_run_and_the_rest_of_the_whole_job() -> None:
    report = report_of(Plan(SPLITS, (PARTITION,)), *map(result, SPLITS), before=2)
    found = report_json(report)
    assert (found["records"], found["bytesRead"], found["bytesWritten"]) == (30, 6000, 1500)
    assert (found["splits"], found["splitsOfEarlierRuns"], found["bytesPerSecond"]) == (3, 2, 1500)
    assert "2 of 3 splits were done before" in report_text(report)


def test_everything_lost_rejected_or_wrong_is_reported_and_makes_the_report_unclean() -> None:
    plan = Plan(SPLITS, (PARTITION,))
    lost = LostRange("t", 0, "f", 100, 200, 7, 9, "batch fails its checksum")
    unclean = {
        "lost: f at byte 100, offsets 7 to 8: batch fails its checksum": report_of(
            plan, result(SPLITS[0], lost)
        ),
        "3 records do not fit their schema: their column _error says why": report_of(
            plan, result(SPLITS[0], rows_with_error=3)
        ),
        "4 records do not fit their schema: they are in _rejects": report_of(
            plan, result(SPLITS[0], rejected=4)
        ),
        "problem: index: is broken (mend it)": report_of(
            Plan(SPLITS, (PARTITION,), problems=(KlogError("is broken", file="index", cure="mend it"),)),
            result(SPLITS[0]),
        ),
        "WRONG: a.parquet: belongs to no split": report_of(
            plan, result(SPLITS[0]), findings=(Finding("a.parquet", "belongs to no split"),)
        ),
    }
    for line, report in unclean.items():
        assert line in report_text(report).splitlines()
        assert not report.clean
        assert not report_json(report)["clean"]


def test_what_came_from_another_replica_is_reported_and_nothing_is_missing() -> None:
    damage = LostRange("t", 0, "f", 100, 200, 7, 9, "batch fails its checksum")
    repaired = SplitResult(SPLITS[0], result(SPLITS[0]).files, None, (), repaired=(damage,))
    report = report_of(Plan(SPLITS, (PARTITION,)), repaired)
    line = "read from another replica: f at byte 100, offsets 7 to 8: batch fails its checksum"
    assert line in report_text(report).splitlines()
    assert [one["file"] for one in report_json(report)["mended"]] == ["f"]
    assert report.clean


def test_a_loss_without_position_or_offsets_is_reported_too() -> None:
    lost = LostRange("t", 0, "f", None, None, None, None, "cannot be opened")
    report = report_of(Plan((), (PARTITION,), lost=(lost,)))
    assert "lost: f: cannot be opened" in report_text(report).splitlines()


def test_differences_between_replicas_and_skipped_files_are_reported_and_are_no_loss() -> None:
    plan = Plan(
        SPLITS,
        (PARTITION,),
        divergences=(Divergence("t", 0, 95, 112, "a/t-0", "b/t-0", "leader epoch 7 is above 4"),),
        skipped=(("a/t-1.0123-delete", "scheduled for deletion"),),
    )
    report = report_of(plan, result(SPLITS[0]))
    lines = report_text(report).splitlines()
    assert (
        "replicas differ: t-0 offsets 95 to 111: a/t-0 was taken, b/t-0 not (leader epoch 7 is above 4)"
        in lines
    )
    assert "skipped: a/t-1.0123-delete: scheduled for deletion" in lines
    assert report.clean


def test_the_json_report_is_json_in_camel_case() -> None:
    lost = LostRange("t", 0, "f", 100, 200, 7, 9, "batch fails its checksum")
    found = json.loads(
        json.dumps(report_json(report_of(Plan(SPLITS, (PARTITION,)), result(SPLITS[0], lost))))
    )
    assert found["lost"] == [
        {
            "topic": "t",
            "partition": 0,
            "file": "f",
            "startBytes": 100,
            "endBytes": 200,
            "firstOffset": 7,
            "endOffset": 9,
            "reason": "batch fails its checksum",
        }
    ]
    assert found["partitions"][0]["logEndOffset"] == 30
