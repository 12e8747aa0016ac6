"""A Java program that does not answer or has ended fails the request, and does not block the test."""

from __future__ import annotations

import sys

import pytest

from tests.peers.java_server import JavaServer


def server(program: str, answer_timeout_s: float) -> JavaServer:
    """A server that runs Python instead of Java."""
    return JavaServer([sys.executable, "-c", program], answer_timeout_s=answer_timeout_s)


def test_lines_and_blocks_are_read_one_after_the_other() -> None:
    program = "import sys\nfor line in sys.stdin: print('ok', line.strip(), 'block', sep='\\t', flush=True)"
    with server(program, 60) as running:
        for number in range(3):
            assert running.ask("load", number) == ["ok", "load", str(number), "block"]
            running.send(b"load\n")
            assert [running.read(3), running.read(11)] == [b"ok\t", b"load\tblock\n"]


def test_a_program_that_does_not_answer_is_killed_and_reported() -> None:
    with server("import sys; print('half', end='', flush=True); sys.stdin.read(); input()", 0.5) as running:
        with pytest.raises(TimeoutError, match="no answer"):
            running.ask("load")
        with pytest.raises(EOFError, match="ended with status -9"):
            running.ask("load")


def test_a_program_that_has_ended_is_reported() -> None:
    with server("input(); raise SystemExit(3)", 60) as running, pytest.raises(EOFError, match="status 3"):
        running.ask("load")
