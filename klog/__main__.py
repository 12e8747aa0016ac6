"""`python -m klog` is `klog`."""

from klog.commands.main import main

main()
