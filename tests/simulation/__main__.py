"""`python -m tests.simulation`: plays schedules, and shrinks and prints the first that fails."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.generation import schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.printing import report
from tests.simulation.run import Outcome, run
from tests.simulation.shrinking import shrink

_PROGRESS_EVERY = 200


def main() -> int:
    """Returns 1 if a schedule failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=1000, help="how many schedules to play (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="put this defect into the code first")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    failed: list[int] = []
    seeds = range(options.seed, options.seed + options.seeds)
    with ProcessPoolExecutor(options.processes) as pool:
        outcomes = pool.map(_run, seeds, [options.mutation] * len(seeds), chunksize=5)
        for done, (seed, outcome) in enumerate(zip(seeds, outcomes, strict=True), 1):
            counts += outcome.counts
            if done % _PROGRESS_EVERY == 0:
                _note(f"{done} schedules, {len(failed)} failed")
            if outcome.failure is not None:
                failed.append(seed)
                _write(f"seed {seed}: {outcome.failure.what}")
                if not options.keep_going:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
    seconds = time.monotonic() - began_s
    _write(f"{done} schedules, {done / seconds * 60:.0f} a minute, {len(failed)} failed: {dict(counts)}")
    if failed:
        _explain(failed[0], options.mutation)
    return 1 if failed else 0


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # A run of hours is watched through a file.


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _run(seed: int, mutation: str | None) -> Outcome:
    # A load of many records has frozen what the last schedule left: clusters with their open files.
    gc.unfreeze()
    if mutation is None:
        return run(schedule(seed))
    with MUTATIONS[mutation]():
        return run(schedule(seed))


def _explain(seed: int, mutation: str | None) -> None:
    _note(f"seed {seed} is made smaller")

    def play(candidate) -> Outcome:  # type: ignore[no-untyped-def]
        if mutation is None:
            return run(candidate)
        with MUTATIONS[mutation]():
            return run(candidate)

    smallest = shrink(schedule(seed), lambda candidate: play(candidate).failure is not None)
    failure = play(smallest).failure
    assert failure is not None
    _write(report(failure))


if __name__ == "__main__":
    sys.exit(main())
