"""`klog.export.options_parsing`: the option names of Spark's Kafka source, and what their values mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.options import EARLIEST, LATEST, TARGET_SPLIT_BYTES, Edge, Isolation, Subscription
from klog.export.options_parsing import OPTION_NAMES, ignored_options, read_options
from klog.formats.errors import UsageError


def parsed(**raw: str):
    return read_options({"path": "/logs", **raw})


def test_without_options_everything_is_read_from_the_first_offset_to_the_last() -> None:
    options = read_options({}, ["/a", "s3://b/c"])
    assert options.paths == ("/a", "s3://b/c")
    assert options.subscription == Subscription()
    assert (options.starting, options.ending) == (Edge(EARLIEST), Edge(LATEST))
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.target_split_bytes == TARGET_SPLIT_BYTES
    assert not options.fail_on_data_loss
    assert not options.include_headers


def test_a_path_among_the_options_comes_after_the_others() -> None:
    assert read_options({"PATH": "/b"}, ["/a"]).paths == ("/a", "/b")


def test_no_path_is_an_error() -> None:
    with pytest.raises(UsageError, match="no path"):
        read_options({"subscribe": "t"})


@pytest.mark.parametrize("spelling", ["startingOffsets", "startingoffsets", "STARTINGOFFSETS"])
def test_names_are_the_same_in_upper_and_lower_case(spelling: str) -> None:
    assert parsed(**{spelling: "earliest"}).starting == Edge(EARLIEST)


def test_two_spellings_of_one_option_must_agree() -> None:
    with pytest.raises(UsageError, match="subscribe is given twice"):
        read_options({"path": "/a", "subscribe": "x", "SUBSCRIBE": "y"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribes", "subscribe"),
        ("isolation.level", "kafka.isolation.level"),
        ("includeHeader", "includeHeaders"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not known") as caught:
        parsed(**{name: "x"})
    assert caught.value.cure == f"did you mean {nearest}?"


def test_options_that_say_how_to_read_from_brokers_are_ignored_and_named() -> None:
    given = {
        "path": "/a",
        "subscribe": "orders",
        "kafka.bootstrap.servers": "h:9092",
        "kafka.Group.id": "g",
        "kafka.ssl.truststore.location": "/t",
        "GroupIdPrefix": "p",
        "fetchoffset.numretries": "3",
        "kafkaConsumer.pollTimeoutMs": "100",
    }
    assert read_options(given) == read_options({"path": "/a", "subscribe": "orders"})
    assert set(ignored_options(given)) == set(given) - {"path", "subscribe"}


def test_an_option_that_means_something_is_not_ignored_if_it_is_misspelt() -> None:
    for name in ("kafka.isolation.levels", "kafka.isolationlevel"):
        with pytest.raises(UsageError) as caught:
            parsed(**{name: "read_committed"})
        assert caught.value.cure == "did you mean kafka.isolation.level?"


def test_topics_are_subscribed_by_name_pattern_or_partition() -> None:
    assert parsed(subscribe="a, b").subscription == Subscription(topics=frozenset("ab"))
    assert parsed(subscribePattern="a.*").subscription == Subscription(pattern="a.*")
    assigned = parsed(assign='{"a": [0, 2], "b": []}').subscription
    assert assigned == Subscription(partitions={"a": frozenset((0, 2)), "b": frozenset()})


def test_only_one_way_to_subscribe_is_given() -> None:
    with pytest.raises(UsageError, match="subscribe and assign exclude each other"):
        parsed(subscribe="a", assign='{"a": [0]}')


def test_offsets_by_partition_take_the_default_elsewhere() -> None:
    options = parsed(startingOffsets='{"t": {"0": 23, "1": -2}}', endingOffsets='{"t": {"0": 50, "1": -1}}')
    assert options.starting == Edge(EARLIEST, offsets={"t": {0: 23, 1: EARLIEST}})
    assert options.ending == Edge(LATEST, offsets={"t": {0: 50, 1: LATEST}})


def test_a_time_for_all_goes_before_times_and_those_before_offsets() -> None:
    offsets = {"endingOffsets": '{"t": {"0": 5}}'}
    times = {"endingOffsetsByTimestamp": '{"t": {"0": 1000}}'}
    assert parsed(**offsets, **times).ending == Edge(LATEST, timestamps={"t": {0: 1000}})
    assert parsed(**offsets, **times, endingTimestamp="7").ending == Edge(LATEST, timestamp_ms=7)
    assert parsed(startingTimestamp="9").starting == Edge(EARLIEST, timestamp_ms=9)


def test_isolation_has_two_names() -> None:
    assert (
        read_options({"path": "/a", "kafka.isolation.level": "read_committed"}).isolation == "read_committed"
    )
    assert parsed(isolation="READ_COMMITTED").isolation is Isolation.READ_COMMITTED
    with pytest.raises(UsageError, match="contradict each other"):
        read_options(
            {"path": "/a", "kafka.isolation.level": "read_committed", "isolation": "read_uncommitted"}
        )


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("67108864", 64 << 20),
        ("64m", 64 << 20),
        ("64MiB", 64 << 20),
        ("2 gb", 2 << 30),
        ("8K", 8192),
    ],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, size_bytes: int) -> None:
    assert parsed(targetSplitBytes=text).target_split_bytes == size_bytes
    assert parsed(maxDecompressedBytes=text).max_decompressed_bytes == size_bytes


def test_metadata_columns_are_taken_once_in_the_order_given() -> None:
    assert parsed(metadataColumns="codec, LEADEREPOCH,codec").metadata_columns == ("codec", "leaderEpoch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", "("),
        ("assign", "[1]"),
        ("assign", '{"a": [-1]}'),
        ("assign", '{"a": [true]}'),
        ("assign", '{"a": 0}'),
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"t": {"0": -1}}'),
        ("startingOffsets", '{"t": {"0": -3}}'),
        ("startingOffsets", '{"t": {"x": 1}}'),
        ("startingOffsets", '{"t": {"0": 1.5}}'),
        ("startingOffsets", '{"t": [0]}'),
        ("startingOffsets", "{"),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t": {"0": -2}}'),
        ("endingOffsets", '{"t": {"0": 9223372036854775808}}'),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "2020-01-01"),
        ("endingOffsetsByTimestamp", '{"t": {"0": -1}}'),
        ("startingOffsetsByTimestampStrategy", "first"),
        ("includeHeaders", "yes"),
        ("failOnDataLoss", ""),
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("isolation", "serializable"),
        ("metadataColumns", "colour"),
        ("targetSplitBytes", "0"),
        ("targetSplitBytes", "-5"),
        ("targetSplitBytes", "64x"),
    ],
)
def test_a_bad_value_names_the_option(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"option {name} is"):
        parsed(**{name: value})


def test_every_name_that_is_listed_is_known() -> None:
    values = {
        "assign": '{"a": [0]}',
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "startingOffsetsByTimestamp": "{}",
        "endingOffsetsByTimestamp": "{}",
        "startingOffsetsByTimestampStrategy": "latest",
        "kafka.isolation.level": "read_committed",
        "isolation": "read_committed",
        "metadataColumns": "",
    }
    switches = dict.fromkeys(("includeHeaders", "failOnDataLoss", "includeDeleted"), "true")
    for name in OPTION_NAMES:
        read_options({name: {**values, **switches}.get(name, "1")}, ["/a"])


@given(name=st.sampled_from(OPTION_NAMES), value=st.text(max_size=30))
def test_any_text_is_taken_or_refused_by_name(name: str, value: str) -> None:
    refusal = None
    try:
        read_options({name: value}, ["/a"])
    except UsageError as error:
        refusal = str(error)
    assert refusal is None or name in refusal


@given(
    st.dictionaries(
        st.text(max_size=5), st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=3)
    )
)
def test_offsets_survive_their_json(offsets: dict[str, dict[int, int]]) -> None:
    assert parsed(startingOffsets=json.dumps(offsets)).starting.offsets == offsets
