"""Which Cython sources make which extension modules, and with which compiler flags."""

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("GRADOPS_DEBUG") == "1"
KERNELS = Path("src/gradops_cy/kernels")
FAMILIES = ("convolution", "resampling")

# One set of kernel sources, compiled once per instruction-set tier.
X86_TIERS = {
    "v2": ["-march=x86-64-v2"],
    "v3": ["-march=x86-64-v3"],
    "v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}
X86_TIERS["v4bf16"] = [*X86_TIERS["v4"], "-mavx512bf16"]
X86_TIERS["amx"] = [*X86_TIERS["v4bf16"], "-mamx-tile", "-mamx-bf16"]
TIERS = X86_TIERS if platform.machine().lower() in ("x86_64", "amd64") else {"generic": []}

# Never -ffast-math: it breaks NaN and Inf, and older GCC then flushes subnormals process-wide.
COMMON_FLAGS = ["-O1", "-g"] if DEBUG else ["-O3", "-g0"]
COMMON_FLAGS += ["-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]


def openmp_flags():
    """Return (compile, link) flags for OpenMP, or empty lists where the compiler has none."""
    if sys.platform == "darwin":
        candidates = [(["-Xpreprocessor", "-fopenmp"], ["-lomp"])]
        prefix = os.environ.get("LIBOMP_PREFIX", "/opt/homebrew/opt/libomp")
        candidates.append(
            (["-Xpreprocessor", "-fopenmp", f"-I{prefix}/include"], [f"-L{prefix}/lib", "-lomp"])
        )
    else:
        candidates = [(["-fopenmp"], ["-fopenmp"])]
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
        for compile_flags, link_flags in candidates:
            command = [*compiler, *compile_flags, str(probe), "-o", f"{folder}/probe", *link_flags]
            try:
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    return compile_flags, link_flags
            except OSError:
                break
    print("gradops-cy: the compiler has no OpenMP; building kernels that run in one thread")
    return [], []


OPENMP_COMPILE, OPENMP_LINK = openmp_flags()


def extension(name, source, depends, flags=()):
    return Extension(
        name,
        [str(source)],
        depends=[str(path) for path in depends],
        include_dirs=[str(KERNELS)],
        extra_compile_args=[*COMMON_FLAGS, *OPENMP_COMPILE, *flags],
        extra_link_args=OPENMP_LINK,
    )


headers = sorted(KERNELS.glob("*.h"))
extensions = [extension("gradops_cy._cpu", "src/gradops_cy/_cpu.pyx", headers)]
extensions += [
    extension(
        f"gradops_cy.kernels.{family}_{tier}",
        KERNELS / f"{family}_{tier}.pyx",
        headers,
        flags,
    )
    for family in FAMILIES
    for tier, flags in TIERS.items()
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build",
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "freethreading_compatible": True,
            "autotestdict": False,
            "auto_pickle": False,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
