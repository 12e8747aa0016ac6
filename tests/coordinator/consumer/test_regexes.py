"""Regular expressions of subscriptions: RE2's syntax, whole names, in linear time."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.consumer.regexes import check_regex, matching_topics
from klog.coordinator.groups.consumer.values import RefusedError
from klog.protocol.error_codes import ErrorCode

TOPICS = ("orders", "orders-eu", "my-orders", "__consumer_offsets", "Ä")


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("orders", ("orders",)),
        ("orders.*", ("orders", "orders-eu")),
        ("^orders(-[a-z]{2})?$", ("orders", "orders-eu")),
        (".*", ("__consumer_offsets", "my-orders", "orders", "orders-eu", "Ä")),
        (r"\p{Lu}", ("Ä",)),
        ("(?i)ORDERS", ("orders",)),
        (r"\Qmy-\E\w+", ("my-orders",)),
        ("", ()),
        ("nothing", ()),
    ],
)
def test_a_regex_matches_whole_names(regex: str, matched: tuple[str, ...]) -> None:
    check_regex(regex)
    assert matching_topics(regex, TOPICS) == matched


@pytest.mark.parametrize("regex", ["(", "[z-a]", "a(?=b)", r"(a)\1", "*", "\ud800"])
def test_what_is_not_re2_is_refused(regex: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError, match="is not a valid regular expression") as refused:
        check_regex(regex)
    assert refused.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert matching_topics(regex, TOPICS) == ()
    assert capfd.readouterr().err == ""


def test_an_expression_that_backtracks_elsewhere_ends_at_once() -> None:
    assert matching_topics("(a*)*b", ["a" * 200]) == ()
