"""The state of a job in its output: what it is to do, which splits are done, and in the end the manifest.

It is in `_klog` below the output, as JSON, and each file is written atomically:

- `job.json`: options, plan and a fingerprint of each segment; written before the first split.
- `splits/00000012.json`: the result of split 12. It is written after the split's files and commits the split.
- `manifest.json`: all of this in one file. It commits the job; the other files are then removed.

The content does not depend on when or how often the job ran. A job that was killed continues from its state,
with the plan that it had. The options must be the same, and so must the segments; a log that has only grown
since then counts as the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from klog.export.decoders.decoding import Encoding
from klog.export.jobs import Decodings, ExportJob, SplitResult
from klog.export.layout import is_data
from klog.export.open_output import open_output
from klog.export.options import ReadOptions
from klog.export.outputs import (
    JOB_STATE_DIRECTORY,
    LOCK,
    TEMPORARY,
    Output,
    read_whole,
    write_whole,
)
from klog.export.plan_json import (
    JsonObject,
    decodings_from_json,
    plan_from_json,
    result_from_json,
    to_json,
)
from klog.export.reader import OpenFile, read_split
from klog.formats.errors import StorageError, UsageError
from klog.replicas.concurrency import map_concurrently
from klog.replicas.fingerprints import changed
from klog.replicas.splits import Plan, Split

JOB: Final = f"{JOB_STATE_DIRECTORY}/job.json"
MANIFEST: Final = f"{JOB_STATE_DIRECTORY}/manifest.json"
_SPLITS: Final = f"{JOB_STATE_DIRECTORY}/splits"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The plan of a job and the splits that are done; `complete` means that the manifest is written."""

    job: ExportJob
    plan: Plan
    fingerprints: Mapping[str, str | None]
    done: Mapping[int, SplitResult] = field(default_factory=dict)
    complete: bool = False

    @property
    def pending(self) -> tuple[Split, ...]:
        """The splits that are not done, the longest first."""
        return tuple(split for split in self.plan.splits if split.number not in self.done)


def begin(job: ExportJob, make_plan: Callable[[], Plan], *, resume: bool = False) -> Progress:
    """Create the state of a job in an empty output, or with `resume` load that of an unfinished job.

    The caller holds the output's lock. Raises `UsageError` if the output holds anything else or a job with
    other options, or if segments have changed since they were planned; `StorageError` if reading or writing
    fails.
    """
    _require_apart(job)
    output = open_output(job.output)
    present = output.names()
    if MANIFEST in present or JOB in present:
        if not resume:
            what, how = (
                ("a complete export", "export into another directory")
                if MANIFEST in present
                else ("an unfinished export", "--resume goes on with it; or choose another directory")
            )
            raise UsageError(f"holds {what}", file=job.output, cure=how)
        return _resumed(job, output, MANIFEST in present)
    foreign = [name for name in present if name != LOCK and not name.startswith(f"{TEMPORARY}/")]
    if foreign:
        raise UsageError(
            f"holds something else ({foreign[0]})", file=job.output, cure="choose an empty or a new directory"
        )
    plan = make_plan()
    job = replace(job, decodings=_settled(job, plan))
    output.remove_directory(TEMPORARY)
    progress = Progress(job, plan, job.source.fingerprints(plan.splits))
    write_whole(output, JOB, _encoded(_job_json(progress)))
    return progress


def _require_apart(job: ExportJob) -> None:
    """Reject an output inside the input: a broker does not start if a log directory has unknown
    directories."""
    output = job.output.rstrip("/")
    for path in job.options.paths:
        if f"{output}/".startswith(f"{path.rstrip('/')}/"):
            raise UsageError("is inside an input path", file=job.output, cure="choose a directory outside")


def _settled(job: ExportJob, plan: Plan) -> Decodings:
    """How this job decodes keys and values: the same in all its tasks, and when it is resumed."""
    if Encoding.RAW == job.key.encoding == job.value.encoding:
        return Decodings()
    from klog.export.decoders.choose import resolve_decoding

    return Decodings(
        resolve_decoding(job.key, lambda: sample(plan, job, "key")),
        resolve_decoding(job.value, lambda: sample(plan, job, "value")),
    )


def commit_split(output: Output, result: SplitResult) -> None:
    """Write the result of a split, which commits it. Raises `StorageError`."""
    write_whole(output, _split_name(result.split), _encoded(to_json(result)))


def finish(progress: Progress, results: Iterable[SplitResult]) -> Progress:
    """Write the manifest of a job whose splits are all done, which commits the job. Raises `StorageError`."""
    done = {**progress.done, **{result.split.number: result for result in results}}
    finished = replace(progress, done=done, complete=True)
    if progress.complete:
        return finished
    output = open_output(progress.job.output)
    _remove_unknown_files(output, finished)
    write_whole(output, MANIFEST, _encoded(_manifest_json(finished)))
    _remove_intermediate_state(output)
    return finished


def load(output: Output) -> JsonObject | None:
    """The manifest of a complete export, None if there is none. Raises `StorageError`."""
    return _decoded(output, MANIFEST) if MANIFEST in output.names(JOB_STATE_DIRECTORY) else None


def _resumed(job: ExportJob, output: Output, complete: bool) -> Progress:
    state = _decoded(output, MANIFEST if complete else JOB)
    _require_same_options(job, state)
    output.remove_directory(TEMPORARY)
    results = state["splits"] if complete else _committed(output)
    done = {result.split.number: result for result in map(result_from_json, results)}
    if complete:
        state["plan"]["splits"] = [record["split"] for record in state["splits"]]
        _remove_intermediate_state(output)
    plan = plan_from_json(state["plan"])
    job = replace(job, decodings=decodings_from_json(state["decodings"]))
    sizes = output.names()
    whole = {
        number: result
        for number, result in done.items()
        if all(sizes.get(file.name) == file.size_bytes for file in result.all_files)
    }
    progress = Progress(job, plan, state["fingerprints"], whole, complete and len(whole) == len(done))
    _require_same_segments(progress)
    _remove_unknown_files(output, progress)
    return progress


def _committed(output: Output) -> list[JsonObject]:
    # There may be thousands of files, and each is a request.
    return map_concurrently(lambda name: _decoded(output, name), sorted(output.names(_SPLITS)), remote=True)


def _require_same_options(job: ExportJob, state: JsonObject) -> None:
    if state["version"] != _VERSION:
        raise UsageError(
            f"was written by another version of klog (job state version {state['version']})",
            file=job.output,
            cure="resume with that version, or export into another directory",
        )
    before, now = _flat(state["options"]), _flat(options_json(job))
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if names:
        shown = "; ".join(f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in names[:3])
        raise UsageError(
            f"holds an export with other options: {shown}",
            file=job.output,
            cure="resume with the same options, or export into another directory",
        )


def _require_same_segments(progress: Progress) -> None:
    find = progress.job.source.fingerprints
    files = changed(progress.pending, progress.fingerprints, progress.plan.splits, find)
    if files:
        more = f", and {len(files) - 1} more" if len(files) > 1 else ""
        raise UsageError(
            f"has changed since the export in {progress.job.output} was planned{more}",
            file=files[0],
            cure="restore the segments, or export into another directory",
        )


def options_json(job: ExportJob) -> JsonObject:
    """The options of an export except its output, and how its input is opened, as JSON."""
    options: JsonObject = to_json(replace(job, options=replace(job.options, encryption_key_file=None)))
    del options["output"], options["decodings"], options["source"]
    return options


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    """Nested objects as one object whose names are joined by dots: `options.starting.default`."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _flat(inner, f"{prefix}.{name}" if prefix else name)
    return found


def _job_json(progress: Progress) -> JsonObject:
    return {
        "version": _VERSION,
        "options": options_json(progress.job),
        "plan": to_json(progress.plan),
        "decodings": to_json(progress.job.decodings),
        "fingerprints": dict(progress.fingerprints),
    }


def _manifest_json(progress: Progress) -> JsonObject:
    results = [progress.done[number] for number in sorted(progress.done)]
    manifest = _job_json(progress)
    del manifest["plan"]["splits"]  # each result has its split
    manifest["rows"] = sum(result.rows for result in results)
    manifest["rejected"] = sum(result.rejected for result in results)
    manifest["misfits"] = sum(result.rows_with_error for result in results)
    manifest["sizeBytes"] = sum(result.size_bytes for result in results)
    manifest["splits"] = [to_json(result) for result in results]
    return manifest


def unknown_files(output: Output, results: Iterable[SplitResult]) -> list[str]:
    """The names of data files that no split has written."""
    known = {file.name for result in results for file in result.all_files}
    names = output.names()
    return [
        name
        for name in names
        if name not in known and is_data(name) and not name.startswith(f"{JOB_STATE_DIRECTORY}/")
    ]


def _remove_unknown_files(output: Output, progress: Progress) -> None:
    """Remove data files that no split has committed: a run was killed before it committed them."""
    for name in unknown_files(output, progress.done.values()):
        output.remove(name)


def _remove_intermediate_state(output: Output) -> None:
    """Remove the files that the manifest replaces."""
    output.remove_directory(_SPLITS)
    output.remove(JOB)
    output.remove_directory(TEMPORARY)


def _split_name(split: Split) -> str:
    return f"{_SPLITS}/{split.number:08d}.json"


def _encoded(value: JsonObject) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")


def _decoded(output: Output, name: str) -> JsonObject:
    try:
        value = json.loads(read_whole(output, name))
    except ValueError as error:
        raise StorageError(
            f"is no state of an export: {error}",
            file=f"{output.root}/{name}",
            cure="it was written by another program: export into another directory",
        ) from error
    decoded: JsonObject = value
    return decoded


# -- Samples keys or values of a plan, to infer a schema: the same ones every time ---------------------------

_MAX_SPLITS: Final = 20
_MAX_VALUES_OF_A_SPLIT: Final = 1000


def sample(plan: Plan, job: ExportJob, column: str) -> Iterator[bytes]:
    """Yield up to 1000 values (not null) of "key" or "value" from each of up to 20 splits of the plan.

    Data that cannot be read is skipped: the job itself reports it.
    """
    options = replace(job.options, fail_on_data_loss=False)
    splits = sorted(plan.splits, key=lambda split: split.number)
    step = max(len(splits) / _MAX_SPLITS, 1)
    for number in range(min(len(splits), _MAX_SPLITS)):
        values = _values(splits[int(number * step)], options, job.source.open, column)
        yield from islice(values, _MAX_VALUES_OF_A_SPLIT)


def _values(split: Split, options: ReadOptions, open_file: OpenFile, column: str) -> Iterator[bytes]:
    for batch in read_split(split, options, columns=[column], on_lost=lambda _: None, open_file=open_file):
        for value in batch.column(0):
            if value.is_valid:
                yield value.as_py()
