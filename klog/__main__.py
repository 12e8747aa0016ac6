"""Runs the `klog` command, also as `python -m klog`."""

import signal


def main() -> None:
    """Run the command line of this process.

    Ctrl-C ends the process without a word while the command is imported. Later the command itself does it.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from klog.commands.main import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
