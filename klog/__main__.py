"""Runs the `klog` command as `python -m klog`."""

from klog.commands.main import main

main()
