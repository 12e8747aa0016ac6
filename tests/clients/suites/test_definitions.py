"""The results of the clients' own tests are read as their runners write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.suites.__main__ import arguments, print_table
from tests.clients.suites.definitions import SUITES, Result, go_results, junit_results


def test_the_results_of_go_test_are_those_of_its_innermost_tests() -> None:
    events = [
        {"Action": "run", "Test": "TestA"},
        {"Action": "pass", "Test": "TestA/one"},
        {"Action": "skip", "Test": "TestA/two"},
        {"Action": "pass", "Test": "TestA"},
        {"Action": "fail", "Test": "TestB"},
        {"Action": "fail"},
    ]
    printed = "\n".join(["# a line of the compiler", *map(json.dumps, events)])
    assert list(go_results(printed, Path())) == [
        Result("TestA/one", "passed"),
        Result("TestA/two", "skipped"),
        Result("TestB", "failed"),
    ]


def test_the_results_of_pytest_come_from_its_file(tmp_path: Path) -> None:
    cases = (
        '<testcase classname="m" name="good"/>',
        '<testcase classname="m" name="bad"><failure/></testcase>',
        '<testcase classname="m" name="worse"><error/></testcase>',
        '<testcase classname="m" name="left"><skipped/></testcase>',
    )
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert list(junit_results("", tmp_path)) == [
        Result("m.good", "passed"),
        Result("m.bad", "failed"),
        Result("m.worse", "failed"),
        Result("m.left", "skipped"),
    ]


def test_a_suite_that_did_not_run_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    suite = SUITES[0]
    assert print_table([(suite, "v1", [Result("a", "passed"), Result("b", "skipped")])], "klog")
    assert capsys.readouterr().out.splitlines()[-1] == f"| {suite.name} | v1 | 1 | 0 | 1 |"
    assert not print_table([(suite, "v1", [])], "klog")
    capsys.readouterr()
    assert not print_table([(suite, "v1", [Result("a", "passed"), Result("b", "failed")])], "klog")
    assert capsys.readouterr().out.splitlines()[-1] == f"{suite.name}: b"


@pytest.mark.parametrize("words", [["no-such-suite"], ["--tag", "v1"], ["--broker", "redpanda"]])
def test_bad_options_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(words)
