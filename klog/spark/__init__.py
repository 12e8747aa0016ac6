"""Segments to tables: a planner makes splits, a reader makes Arrow of a split, writers make files of that.

The one room for `klog export` (a pool of processes), `spark-submit commands/segment_export.py` (tasks that
write themselves) and `spark.read.format("klog")`. Only the modules named after Spark import pyspark.
"""
