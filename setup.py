"""Builds the compiled modules, and makes the README's links absolute. The rest is in pyproject.toml.

The compiled modules are optional. Without a C compiler the install succeeds, the kernels run in pure Python
and the broker's modules run as Python (`klog --version` says what is in use).
"""

import os
import re
import sys
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from Cython import __version__ as cython_version
from Cython.Build import cythonize
from Cython.Build.Dependencies import DependencyTree
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KLOG = Path("klog")
# Another Cython makes everything anew: its modules do not share helpers with those of this one.
GENERATED = Path("build", f"cython-{cython_version}")

# Modules of the broker that are compiled as they stand. If a `.pxd` file stands beside one, it gives the C
# types of attributes and methods, which makes them cheaper.
#
# Each costs one to three seconds of CPU time when klog is installed. A module is here if one of these holds:
# - At least 2 % of the lines of Python that a broker runs for a load of the benchmarks are its own
#   (`python -m benchmarks.line_counts` counts them).
# - The `.pxd` file of another one names its classes.
# - Most requests call it, and it has less than 100 lines.
COMPILED_MODULES = (
    "coordinator/groups/classic/group.py",
    "coordinator/groups/classic/rebalance.py",
    "coordinator/groups/group_partition.py",
    "coordinator/groups/loading.py",
    "coordinator/groups/offsets/offsets.py",
    "coordinator/groups/requests.py",
    "coordinator/runtime/tasks.py",
    "coordinator/transactions/records.py",
    "coordinator/transactions/transaction.py",
    "coordinator/transactions/transaction_partition.py",
    "drivers/driver.py",
    "drivers/fetching.py",
    "drivers/marker_queues.py",
    "formats/varints.py",
    "kernel/batch_builder.py",
    "kernel/columns.py",
    "metadata/cache.py",
    "protocol/channel.py",
    "protocol/fetch_response.py",
    "protocol/messages.py",
    "protocol/primitives.py",
    "protocol/usual_fetch.py",
    "replication/fetching/fetched_partitions.py",
    "replication/fetching/fetcher.py",
    "replication/fetching/following.py",
    "replication/fetching/partition_fetch.py",
    "replication/fetching/session.py",
    "replication/follower.py",
    "replication/high_watermark.py",
    "replication/internal_append.py",
    "replication/partition.py",
    "replication/purgatory.py",
    "replication/reading.py",
    "replication/replica_manager.py",
    "replication/replica_waits.py",
    "replication/timing_wheel.py",
    "server/counters/request_times.py",
    "server/counters/topic_stats.py",
    "server/fetching/fetcher_thread.py",
    "server/fetching/requests.py",
    "server/handlers/data/fetch.py",
    "server/handlers/data/fetch_runs.py",
    "server/handlers/data/fetch_sessions.py",
    "server/handlers/data/produce.py",
    "server/handlers/data/produce_runs.py",
    "server/handlers/data/produce_screening.py",
    "server/handlers/data/produce_waits.py",
    "server/handlers/data/remembered_targets.py",
    "server/handlers/dispatch.py",
    "server/handlers/groups/commit_runs.py",
    "server/handlers/groups/members.py",
    "server/handlers/partition_lookup.py",
    "server/handlers/transactions/producers.py",
    "server/network/connection.py",
    "server/network/connection_registry.py",
    "server/network/connection_traffic.py",
    "server/network/deadlines.py",
    "server/network/dispatch.py",
    "server/network/frame_reading.py",
    "server/network/io_thread.py",
    "server/network/large_frame.py",
    "server/network/network_thread.py",
    "server/network/outbound.py",
    "server/network/poller.py",
    "server/network/request.py",
    "server/network/sending.py",
    "server/threads/driver_thread.py",
    "server/transactions/marker_writing.py",
    "storage/log/append_values.py",
    "storage/log/batch_place.py",
    "storage/log/built_batch.py",
    "storage/log/cold_reads.py",
    "storage/log/epoch_file.py",
    "storage/log/follower_batches.py",
    "storage/log/index_files.py",
    "storage/log/partition_log.py",
    "storage/log/producers.py",
    "storage/log/readable_log.py",
    "storage/log/reading.py",
    "storage/log/run_limits.py",
    "storage/log/segment.py",
    "storage/log/segmented_log.py",
    "storage/log/segments.py",
    "storage/log/validation.py",
)


def extension(source: Path, level: str) -> Extension:
    """An extension module next to its source."""
    name = ".".join(source.with_suffix("").parts)
    return Extension(name, [str(source)], extra_compile_args=[level, "-g0"], optional=True)


# Cython makes this source. It has what all compiled modules need of Cython, so that it is compiled once.
SHARED = extension(KLOG / "_cython.c", "-O2")
KERNELS = [SHARED, *(extension(source, "-O3") for source in sorted(KLOG.glob("**/_*.pyx")))]
MODULES = [extension(KLOG / path, "-O1") for path in COMPILED_MODULES]


# Annotations are for readers and mypy; compiled code would enforce them.
KERNEL_DIRECTIVES = {"annotation_typing": False, "emit_code_comments": False}
# What a `.pxd` file types fails as in Python: an object that is None, or a number that overflows.
MODULE_DIRECTIVES = {**KERNEL_DIRECTIVES, "nonecheck": True, "overflowcheck": True}


def changed_s(_: DependencyTree, path: str) -> float:
    """When a source was changed last. Cython's own files do not count: pip installs them for each build."""
    return Path(path).stat().st_mtime if Path(path).resolve().is_relative_to(KLOG.resolve()) else 0.0


# What has not changed since the last build is not compiled again.
DependencyTree.timestamp = changed_s


def generated(extensions: Sequence[Extension], directives: Mapping[str, bool]) -> list[Extension]:
    """The extensions with the C files that Cython makes of their sources."""
    return cythonize(
        list(extensions),
        build_dir=str(GENERATED),
        language_level=3,
        compiler_directives=dict(directives),
        shared_utility_qualified_name=SHARED.name,
        # On other systems each worker process would run this file again.
        nthreads=os.cpu_count() if sys.platform == "linux" else 0,
    )


class BuildExtensions(build_ext):
    """Builds only the kernels for an editable install: the compiled form of a module would hide its edits."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        # The kind of install is known only here, because options are finalised more than once.
        names = {each.name for each in KERNELS}
        kernels = [each for each in self.extensions if each.name in names]
        modules = [each for each in self.extensions if each.name not in names]
        if self.inplace or self.editable_mode:
            self.extensions, modules = kernels, []
        made = generated(kernels, KERNEL_DIRECTIVES)
        if modules:
            made += generated(modules, MODULE_DIRECTIVES)
        for each, with_sources in zip([*kernels, *modules], made, strict=True):
            each.sources = with_sources.sources
        self._remove_others()
        super().run()
        self._require_all(modules)

    def _built(self, extensions: Sequence[Extension]) -> list[Path]:
        return [Path(self.get_ext_fullpath(each.name)) for each in extensions]

    def _remove_others(self) -> None:
        """Remove what an earlier build compiled and this one does not: it would go into the package."""
        if not self.inplace:
            built = set(Path(self.build_lib).rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))
            for path in built - set(self._built(self.extensions)):
                path.unlink()

    def _require_all(self, modules: Sequence[Extension]) -> None:
        """Remove all compiled modules if one is missing: they read each other's objects as C structures."""
        if not all(path.exists() for path in self._built([SHARED, *modules])):
            for path in self._built(modules):
                path.unlink(missing_ok=True)


def readme() -> str:
    """README.md for the package index, where links must be absolute."""
    urls = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    text = Path("README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({urls['Source']}/blob/main/", text)


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=KERNELS + MODULES,
    long_description=readme(),
    long_description_content_type="text/markdown",
)
