"""Makes names of principals from the distinguished names of certificates (`ssl.principal.mapping.rules`).

Rules: KIP-371; Kafka's `SslPrincipalMapper`: `DEFAULT` or `RULE:PATTERN/REPLACEMENT/[LU]`, with commas
between them. The first one whose pattern matches the whole name applies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from klog.formats.errors import FormatError

_PART: Final = r"(?:\\.|[^\\/])*"
_SPLITTER: Final = re.compile(rf"\s*(DEFAULT|RULE:{_PART}/{_PART}/[LU]?.*?|.*?)\s*(?:,\s*|$)")
_RULE: Final = re.compile(rf"RULE:({_PART})/({_PART})/([LU]?)")
_REFERENCE: Final = re.compile(r"\\(?P<escaped>.)|\$(?P<digits>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The name that the rule makes; None if it does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, match: re.Match[str]) -> str:
        def value(reference: re.Match[str]) -> str:
            if reference["escaped"] is not None:
                return reference["escaped"]
            return _group(match, reference["digits"])

        return _REFERENCE.sub(value, self.replacement)


def _group(match: re.Match[str], digits: str) -> str:
    """What `$12` stands for: the group of as many digits as there is one for, and the other digits. A group
    that does not exist stays as it is written.
    """
    groups = match.re.groups
    if int(digits[0]) > groups:
        return f"${digits}"
    size = 1
    while size < len(digits) and int(digits[: size + 1]) <= groups:
        size += 1
    return (match[int(digits[:size])] or "") + digits[size:]


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """The rules of a listener, in order."""

    rules: tuple[Rule, ...] = (Rule(),)

    def name_of(self, distinguished_name: str) -> str:
        """The principal's name. Raises FormatError if no rule applies."""
        for rule in self.rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise FormatError(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name}")


UNCHANGED: Final = PrincipalRules()
"""Names stay as they are."""


def parse_rules(text: str) -> PrincipalRules:
    """Raises FormatError."""
    rules = []
    for part in (match[1] for match in _SPLITTER.finditer(text.strip())):
        found = _RULE.fullmatch(part)
        if part == "DEFAULT":
            rules.append(Rule())
        elif found is not None:
            try:
                rules.append(Rule(re.compile(found[1]), found[2], found[3]))
            except re.error as error:
                raise FormatError(f"{part}: its pattern is wrong: {error}") from error
        elif part:
            raise FormatError(f"{part} is no rule", cure="DEFAULT, or RULE:PATTERN/REPLACEMENT/ with L or U")
    return PrincipalRules(tuple(rules))
