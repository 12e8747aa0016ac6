"""Plans, results and decodings survive being written to a job's state and read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.decoders.decoding import Decoding, Encoding
from klog.export.decoders.wire import RegisteredSchema
from klog.export.jobs import Decodings, SplitResult
from klog.export.options import Isolation, ReadOptions, Subscription
from klog.export.outputs import WrittenFile
from klog.export.plan_json import decodings_from_json, plan_from_json, result_from_json, to_json
from klog.export.planner import plan
from klog.formats.errors import KlogError
from klog.replicas.splits import AbortedRange, Divergence, LostRange, Plan, Split
from tests import corpora

OFFSETS = st.integers(0, 2**63 - 1)
MAYBE = st.none() | OFFSETS
NAMES = st.text(max_size=20)
SPLITS = st.builds(
    Split,
    number=st.integers(0, 10**6),
    topic=NAMES,
    partition=st.integers(0, 2**31 - 1),
    file=NAMES,
    base_offset=OFFSETS,
    start_bytes=OFFSETS,
    end_bytes=OFFSETS,
    first_offset=OFFSETS,
    end_offset=OFFSETS,
    aborted=st.lists(st.builds(AbortedRange, OFFSETS, OFFSETS, OFFSETS), max_size=3).map(tuple),
)
LOST = st.builds(LostRange, NAMES, st.integers(0, 99), NAMES, MAYBE, MAYBE, MAYBE, MAYBE, NAMES)
FILES = st.builds(WrittenFile, NAMES, OFFSETS, OFFSETS, OFFSETS, OFFSETS, NAMES)
RESULTS = st.builds(
    SplitResult,
    SPLITS,
    st.lists(FILES, max_size=3).map(tuple),
    st.none() | FILES,
    st.lists(LOST, max_size=3).map(tuple),
    st.integers(0, 10**9),
)


def through_json(value):
    return json.loads(json.dumps(to_json(value)))


@given(RESULTS)
def test_results_survive(result) -> None:
    assert result_from_json(through_json(result)) == result


@given(
    st.lists(SPLITS, max_size=3), st.lists(LOST, max_size=3), st.lists(st.tuples(NAMES, NAMES), max_size=3)
)
def test_plans_survive(splits, lost, skipped) -> None:
    divergence = Divergence("t", 0, 3, 9, "a", "b", "newer")
    made = Plan(tuple(splits), (), (divergence,), tuple(lost), (), tuple(skipped))
    assert plan_from_json(through_json(made)) == made


@pytest.mark.parametrize("log_dir", corpora.log_dirs(), ids=str)
def test_plans_of_every_corpus_survive(log_dir) -> None:
    for isolation in Isolation:
        made = plan(ReadOptions((str(log_dir.path),), isolation=isolation))
        read = plan_from_json(through_json(made))
        assert [str(problem) for problem in read.problems] == [str(problem) for problem in made.problems]
        assert replace(read, problems=()) == replace(made, problems=())


def test_problems_keep_their_place_and_cure() -> None:
    error = KlogError("is broken", file="index", position_bytes=7, cure="mend it")
    (read,) = plan_from_json(through_json(Plan((), (), problems=(error,)))).problems
    assert str(read) == str(error)


def test_decodings_survive() -> None:
    decodings = Decodings(
        Decoding(Encoding.STRING),
        Decoding(Encoding.AVRO, '"long"', "", True, (RegisteredSchema(42, "AVRO", '"long"'),)),
    )
    assert decodings_from_json(through_json(decodings)) == decodings


def test_options_are_written_in_one_order() -> None:
    """Two runs of one command must not differ because of the order of a set."""
    one = ReadOptions((), Subscription(partitions={"b": frozenset({3, 1}), "a": frozenset({2})}))
    other = ReadOptions((), Subscription(partitions={"a": frozenset({2}), "b": frozenset({1, 3})}))
    assert json.dumps(to_json(one)) == json.dumps(to_json(other))
    assert to_json(one)["subscription"] == {
        "topics": None,
        "pattern": None,
        "partitions": {"a": [2], "b": [1, 3]},
    }
