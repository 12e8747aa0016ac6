"""The command line as a whole: its list of commands, and output on terminals of any encoding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klog.commands import main
from klog.formats.errors import StorageError

RUN = "from klog.commands.main import main; main()"
POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def klog(*args: str | bytes | Path, code: str = RUN, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_list_of_commands_repeats_the_first_paragraph_of_their_help(name: str) -> None:
    own = main.load(name).help.split("\n\n")[0]
    assert " ".join(own.split()) == main.COMMANDS[name].help


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word() -> None:
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from klog.__main__ import main
main()
"""
    done = klog("formats", code=code)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize(("signalled", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_error_while_a_signal_ends_the_command_is_shown_and_does_not_change_the_exit_code(
    signalled: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> None:
        try:
            raise signalled
        finally:
            try:
                raise OSError("nobody answers")
            except OSError as error:
                raise StorageError("the offsets could not be committed") from error

    with pytest.raises(SystemExit) as ended:
        main.run_to_exit(run)
    assert ended.value.code == code
    assert capsys.readouterr().err == "klog: the offsets could not be committed\n"


def test_ctrl_c_while_an_import_makes_a_class_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupting:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt  # as the handler of the signal does

    with pytest.raises(SystemExit) as ended:
        main.run_to_exit(lambda: type("Made", (), {"field": Interrupting()}))
    assert (ended.value.code, capsys.readouterr().err) == (130, "")


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sorted(m for m in sys.modules"
        " if m.startswith('klog.commands.')), file=sys.stderr)); " + RUN
    )
    done = klog("--help", code=code)
    assert all(name.encode() in done.stdout for name in main.COMMANDS)
    shared = ["exit_codes", "help", "messages", "usage", "version"]
    expected = ["main", "shared", *(f"shared.{name}" for name in shared)]
    assert done.stderr.decode().split() == [f"klog.commands.{name}" for name in expected]


def test_garbage_is_collected_while_a_command_runs_and_not_before_or_after() -> None:
    code = """
import atexit, gc, sys
from klog.__main__ import main
def imported(kind, values):
    if kind == "import" and values[0] in ("typer", "klog.formats.catalogue"):
        print(values[0], gc.isenabled(), file=sys.stderr)
sys.addaudithook(imported)
atexit.register(lambda: print("end", gc.get_freeze_count() > 0, file=sys.stderr))
main()
"""
    done = klog("formats", code=code)
    assert done.stderr.decode().splitlines() == ["typer False", "klog.formats.catalogue True", "end True"]


@pytest.mark.parametrize("name", ["", *main.COMMANDS])
def test_help_is_shown_on_a_terminal_that_knows_only_ascii(name: str) -> None:
    done = klog(*filter(None, [name]), "--help", **POSIX)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"Usage: " in done.stdout


@pytest.mark.parametrize("env", [POSIX, {"LC_ALL": "C.UTF-8"}])
def test_the_name_of_a_file_is_written_as_its_bytes(tmp_path: Path, env: dict[str, str]) -> None:
    directory = os.fsencode(tmp_path) + b"/gr\xfc\xc3\xbc-0"
    os.mkdir(directory)
    segment = directory + b"/00000000000000000000.log"
    Path(os.fsdecode(segment)).write_bytes(b"\0" * 100)
    done = klog("verify", directory, **env)
    assert done.returncode == 1
    assert segment in done.stdout
    assert b"Traceback" not in done.stderr
