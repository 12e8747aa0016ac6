"""Dumps records as JSON Lines with decoded keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from klog.commands.offline.dump import jsonl
from klog.commands.shared.decoding.failures import Failures
from klog.commands.shared.decoding.fields import RecordDecoder
from klog.commands.shared.decoding.json_lines import DecodingLines
from klog.commands.shared.messages import print_error
from klog.commands.shared.records.plan import DumpPlan


def decoded_lines(decoder: RecordDecoder) -> Callable[[DumpPlan, BinaryIO], int]:
    """The rendering of a plan whose bytes are in base64. It gives 1 if something could not be decoded."""

    def run(plan: DumpPlan, out: BinaryIO) -> int:
        failures = Failures()
        code = jsonl.run(plan, DecodingLines(out, decoder, failures))  # type: ignore[arg-type]  # it is written to
        error = failures.error()
        if error is None:
            return code
        print_error(error)
        return 1

    return run
