"""Each error that a broker can answer with is said in a sentence, with what to do about it."""

from __future__ import annotations

import re

import pytest

from klog.client.error_meanings import MEANINGS
from klog.client.errors import RefusedError
from klog.commands import main
from klog.protocol.error_codes import ErrorCode

ERRORS = [each for each in ErrorCode if each is not ErrorCode.NONE]
_COMMAND = re.compile(r"klog ([a-z-]+)(?: ([a-z][a-z-]+))?")


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
def test_an_error_says_what_it_means_and_what_to_do(code: ErrorCode) -> None:
    error = RefusedError("topic orders", code)
    assert str(error).startswith(f"topic orders: {code.name}: ")
    assert len(MEANINGS[code].what.split()) > 2
    assert error.cure == MEANINGS[code].cure
    assert len(MEANINGS[code].cure.split()) > 2


def test_what_the_broker_says_comes_before_what_is_known_of_the_code() -> None:
    error = RefusedError("topic orders", ErrorCode.POLICY_VIOLATION, message="names begin with shop.")
    assert "POLICY_VIOLATION: names begin with shop." in str(error)
    assert error.cure == MEANINGS[ErrorCode.POLICY_VIOLATION].cure


def test_what_to_do_names_commands_that_exist() -> None:
    for code, meaning in MEANINGS.items():
        for command, subcommand in _COMMAND.findall(meaning.cure):
            known = main.load(command)
            groups = getattr(known, "commands", None)
            names = groups or {}
            assert command in main.COMMANDS, code
            assert not subcommand or subcommand in names or subcommand in _words_after(command), code


def _words_after(command: str) -> set[str]:
    """Words of a sentence that may follow the name of a command."""
    return {"shows", "checks", "rewrites", "describes"}
