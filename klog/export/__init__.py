"""Exports segments to tables: a planner makes splits, a reader turns a split into Arrow, writers make files.

`klog export` runs it in a pool of processes on this machine; `klog.spark` runs it in Spark's tasks. Nothing
in this package imports pyspark.
"""
