"""Where Spark finds klog's data source: it imports every installed package named `pyspark_*` and registers
its `DefaultSource`, so that `spark.read.format("klog")` works without another word.
"""

from klog.spark.source import KlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
