"""Adapts `klog.export` to Spark: a data source for batches and streams, and a runner for export jobs.

The only package that imports pyspark.
"""
