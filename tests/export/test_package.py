"""`klog.export` works without PySpark."""

from __future__ import annotations

import subprocess
import sys

IMPORT_ALL = """
import pkgutil, sys
sys.modules["pyspark"] = None  # an import of it raises ImportError
import klog.export
for module in pkgutil.walk_packages(klog.export.__path__, "klog.export."):
    __import__(module.name)
"""


def test_no_module_of_the_export_needs_pyspark_to_be_imported() -> None:
    subprocess.run([sys.executable, "-c", IMPORT_ALL], check=True)
