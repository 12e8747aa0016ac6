"""Tests of `klog.drivers`: steps and answers as values, with a clock that the test sets."""
