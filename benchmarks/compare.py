"""Shows how ratios changed between two files of `--json`: `python -m benchmarks.compare OLD NEW`.

A ratio is klog's figure to its peer's in the same run, so files of different machines can be compared, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.rows import Row, read


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    chosen = parser.parse_args()
    try:
        (old_head, old), (new_head, new) = read(chosen.old), read(chosen.new)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name, head in (("old", old_head), ("new", new_head)):
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in head.items())}")
    print("\n".join(changes(old, new)))
    return 0


def changes(old: Sequence[Row], new: Sequence[Row]) -> Iterator[str]:
    """A line for each figure: the old ratio, the new one, and the change. Figures of one file come last."""
    before, after = ({(row.name, row.load): row.ratio for row in rows} for rows in (old, new))
    for key in before:
        if key in after:
            was, now = before[key], after[key]
            change = f"{now / was - 1:+.0%}" if was else ""
            yield f"{was:8.3g} {now:8.3g} {change:>6}  {': '.join(key)}"
    for key in before.keys() - after.keys():
        yield f"{before[key]:8.3g} {'-':>8} {'':6}  {': '.join(key)}"
    for key in after.keys() - before.keys():
        yield f"{'-':>8} {after[key]:8.3g} {'':6}  {': '.join(key)}"


if __name__ == "__main__":
    sys.exit(main())
