"""Subscriptions by regular expressions: RE2's syntax, matched against the whole name of a topic.

Rules: KIP-848, SubscribedTopicRegex. Kafka uses RE2/J; RE2 is its original, takes the same syntax, and needs
linear time, so that no client's expression can hold up the broker. A back-reference or a look-ahead is
invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from klog.coordinator.groups.consumer.values import RefusedError
from klog.protocol.error_codes import ErrorCode

_MOST_COMPILED = 256


@lru_cache(maxsize=_MOST_COMPILED)
def _compiled(regex: str) -> Callable[[str], object]:
    import re2

    options = re2.Options()
    options.log_errors = False  # they are the client's, and are answered
    try:
        pattern: Callable[[str], object] = re2.compile(regex, options).fullmatch
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
    return pattern


def check_regex(regex: str) -> None:
    """Raises `RefusedError` with INVALID_REGULAR_EXPRESSION."""
    _compiled(regex)


def matching_topics(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match as a whole, in order. An expression that is invalid matches none."""
    try:
        matches = _compiled(regex)
    except RefusedError:
        return ()
    return tuple(sorted(name for name in names if matches(name)))
