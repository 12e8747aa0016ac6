"""Spark as the tests use it: one small session for all of them, and processes that end with the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests import corpora
from tests.peers.maven import PeerUnavailableError, require_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# A JVM of these tests lives for seconds. The optimizing compiler takes more than it gives in that time.
JVM_FLAGS: Sequence[str] = (
    "--add-modules=jdk.incubator.vector",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)
LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
"""


def require_spark() -> None:
    """Raises PeerUnavailableError where there is no PySpark 4 or no Java."""
    try:
        import pyspark
    except ImportError:
        raise PeerUnavailableError("pyspark is not installed (pip install klog[spark])") from None
    if int(pyspark.__version__.split(".")[0]) < 4:
        raise PeerUnavailableError(f"pyspark is {pyspark.__version__} (needed: 4.0 or newer)")
    require_program("java")


def environment(work: Path) -> dict[str, str]:
    """What Spark and its Python workers are started with.

    The checkout is on PYTHONPATH, as an installed klog is on the path of site-packages: there Spark looks for
    data sources, and an editable install is not to be found by looking.
    """
    log4j = work / "log4j2.properties"
    log4j.write_text(LOG4J)
    return {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(corpora.REPOSITORY),
        "SPARK_LOCAL_DIRS": str(work / "spark-local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": f"-Dlog4j2.configurationFile={log4j} {' '.join(JVM_FLAGS)}",
        "SPARK_HOME": _spark_home(),
    }


def _spark_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def settings(work: Path, master: str, jars: str = "") -> dict[str, str]:
    """The settings of a test's application."""
    own = {"spark.master": master, "spark.sql.warehouse.dir": str(work / "warehouse")}
    return {**SETTINGS, **own, **({"spark.jars": jars} if jars else {})}


@contextmanager
def session(work: Path, jars: str = "") -> Iterator[SparkSession]:
    """A session on two threads (a task is tried twice); its JVM has ended when the block has."""
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ.update(environment(work))
    try:
        builder = SparkSession.builder.appName("klog-tests")
        for name, value in settings(work, "local[2,2]", jars).items():
            builder = builder.config(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the launcher's own
            spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            _stop(spark)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _stop(spark: SparkSession) -> None:
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def submit_command(work: Path, master: str, *arguments: str) -> list[str]:
    """`spark-submit` of the installed PySpark, with the tests' settings before what is submitted."""
    command = [str(Path(_spark_home()) / "bin" / "spark-submit")]
    for name, value in settings(work, master).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, *arguments]
