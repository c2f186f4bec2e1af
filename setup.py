"""Builds the native modules: every ``smg/_native/*.pyx`` becomes one extension.

``SMG_SANITIZE=1`` builds the debug variant (bounds checks, AddressSanitizer) that ``scripts/test --sanitize`` runs.
``SMG_PREBUILT=1`` builds nothing: ``setup.py build_ext --inplace`` has been run.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

JOBS = os.cpu_count() or 1
SANITIZE = os.environ.get("SMG_SANITIZE") == "1"
SOURCES = [] if os.environ.get("SMG_PREBUILT") == "1" else sorted(Path("smg/_native").glob("*.pyx"))

compile_args = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter"]
link_args: list[str] = []
if SANITIZE:
    compile_args += ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    link_args += ["-fsanitize=address,undefined"]
else:
    compile_args += ["-O3", "-g0"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"smg._native.{path.stem}",
                [str(path)],
                extra_compile_args=compile_args,
                extra_link_args=link_args,
            )
            for path in SOURCES
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": SANITIZE,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": SANITIZE,
            "embedsignature": True,
        },
        build_dir="build/sanitize/cython" if SANITIZE else "build/cython",
        nthreads=JOBS,
    ),
    options={"build_ext": {"parallel": JOBS}},
)
