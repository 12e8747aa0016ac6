"""Names of principals come from distinguished names by Kafka's rules."""

from __future__ import annotations

import pytest

from klog.formats.errors import FormatError
from klog.security.authentication.principal_rules import parse_rules

ALICE = "CN=Alice,OU=Dev,O=Acme"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", ALICE),
        (" DEFAULT , ", ALICE),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2@$9/L,DEFAULT", "alice@dev@$9"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=Bob.*$/bob/,RULE:^CN=(.*?),OU=.*$/$12-$0/L", f"alice2-{ALICE.lower()}"),
        (r"RULE:^CN=(.*?),.*$/a\/\$1$1/", "a/$1Alice"),
        (r"RULE:^.*\bO=(\w+)$/org/,DEFAULT", "org"),
        ("RULE:Alice/x/,DEFAULT", ALICE),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_applies(rules: str, name: str) -> None:
    assert parse_rules(rules).name_of(ALICE) == name


@pytest.mark.parametrize("rules", ["RULE:^CN=Bob.*$/bob/", ""])
def test_a_name_that_no_rule_fits_is_refused(rules: str) -> None:
    with pytest.raises(FormatError, match="no rule"):
        parse_rules(rules).name_of(ALICE)


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT x", "RULE:a/b/L,no"]
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(FormatError):
        parse_rules(rules)
