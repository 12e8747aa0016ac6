"""Runs the `klog` command, also as `python -m klog`."""

import gc
import signal


def main() -> None:
    """Run the command line of this process.

    Ctrl-C ends the process without a word while the command is imported. Later the command itself does it.
    Imports make no garbage, so nothing is collected until they are over (`klog.commands.main.load`), nor at
    the end, when the interpreter would look through all modules several times.
    """
    gc.disable()
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from klog.commands.main import main as run

    signal.signal(signal.SIGINT, before)
    try:
        run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
