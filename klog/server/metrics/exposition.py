"""Metrics as values, and their text in Prometheus' exposition format, in pieces.

Other threads can run between the pieces, so that a scrape does not block a broker with thousands of
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

_LINES_A_PIECE: Final = 100

Labels = Mapping[str, str | int]


class Sample(NamedTuple):
    """One value of a metric. `suffix` is appended to the name of the metric (`_sum`, `_count`)."""

    labels: Labels
    value: float
    suffix: str = ""


class Metric(NamedTuple):
    """A metric with all its values. `kind` is that of Prometheus (`counter`, `gauge`, `summary`)."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


def gauge(name: str, help_text: str, value: float) -> Metric:
    """A gauge without labels."""
    return Metric(name, "gauge", help_text, (Sample({}, value),))


def gauges(
    name: str, help_text: str, label: str, values: Mapping[str, float] | Mapping[int, float]
) -> Metric:
    """A gauge with a value for each value of one label."""
    return Metric(name, "gauge", help_text, [Sample({label: each}, value) for each, value in values.items()])


def counter(name: str, help_text: str, value: float) -> Metric:
    """A counter without labels."""
    return Metric(name, "counter", help_text, (Sample({}, value),))


def render(metrics: Iterable[Metric]) -> Iterator[str]:
    """The exposition text in pieces of at most a hundred lines."""
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
        samples = iter(metric.samples)
        while lines := [_line(metric.name, sample) for sample in islice(samples, _LINES_A_PIECE)]:
            yield "".join(lines)


def _line(name: str, sample: Sample) -> str:
    return f"{name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
