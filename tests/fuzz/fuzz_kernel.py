"""Coverage-guided fuzzing of all that reads bytes, with atheris (`pip install atheris`).

    python -m tests.fuzz.fuzz_kernel scan -max_total_time=60
    python -m tests.fuzz.fuzz_kernel definitions findings/ -runs=100000

The first argument is a target of `tests.fuzz.targets`, the others are libFuzzer's. It starts from the seeds
of the fixtures. The pure-Python kernel is instrumented; the compiled one has to agree with it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["klog", "construct"]):
    from tests.fuzz import targets

    PARSERS = [found.parse for found in targets.FORMATS]  # imports their modules, which are instrumented then


def main(arguments: list[str]) -> None:
    if len(arguments) < 2 or arguments[1] not in targets.TARGETS:
        sys.exit(
            f"usage: python -m tests.fuzz.fuzz_kernel {{{','.join(targets.TARGETS)}}} [libFuzzer's arguments]"
        )
    name = arguments[1]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(targets.seeds(name)):
            Path(folder, f"seed-{number}").write_bytes(seed)
        own = [argument for argument in arguments[2:] if not argument.startswith("-")]
        options = [argument for argument in arguments[2:] if argument.startswith("-")]
        target = targets.TARGETS[name]
        # libFuzzer writes its findings into the first folder, so the user's folder comes first.
        atheris.Setup([arguments[0], *options, *own, folder], lambda data: target(data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
