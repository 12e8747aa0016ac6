"""Builds the record kernel. Everything else is declared in pyproject.toml.

The extensions are optional: where no C compiler is found the install goes on and klog runs on the
pure-Python twins (`klog --version` says which of the two is in use).
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FORMATS = Path("klog", "formats")

setup(
    ext_modules=cythonize(
        [
            Extension(f"klog.formats.{source.stem}", [str(source)], extra_compile_args=["-O3"], optional=True)
            for source in sorted(FORMATS.glob("_*.pyx"))
        ],
        language_level=3,
    )
)
