"""Builds the record kernel. Everything else is declared in pyproject.toml.

The extension is optional: where no C compiler is found the install goes on and klog runs on the
pure-Python twin of the kernel (`klog --version` says which of the two is in use).
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "klog.formats._kernel",
                ["klog/formats/_kernel.pyx"],
                extra_compile_args=["-O3"],
                optional=True,
            )
        ],
        language_level=3,
    )
)
