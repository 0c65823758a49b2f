"""Builds the hand-written C and CUDA yardsticks and loads them with ctypes."""

import ctypes
import hashlib
import importlib
import logging
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
HEADERS = ("common.h", "sine.h", "lapack.h")
C_SOURCES = ("cvt.c", "snakeboard.c", "ensemble.c")
LARGE_SOURCES = ("towed.c", "lattice.c")
C_FLAGS = (
    *("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC"),
)
CUDA_SOURCES = ("cvt_leapfrog.cu",)
CUDA_FLAGS = ("-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC")

SINGLE = {
    "cvt_leapfrog": 9,
    "cvt_dla01": 6,
    "cvt_dla_half": 6,
    "cvt_dd": 9,
    "cvt_frame": 8,
    "snakeboard_leapfrog": 15,
    "snakeboard_dla01": 10,
    "snakeboard_dla_half": 10,
    "snakeboard_dd": 15,
}
"""Functions of one trajectory, and the length of their state; cvt.c and snakeboard.c say what is in it."""
MANY = {
    "cvt_leapfrog_many": 9,
    "cvt_dla01_many": 6,
    "cvt_dla_half_many": 6,
    "cvt_dd_many": 9,
    "snakeboard_leapfrog_many": 15,
}
"""Functions of an ensemble, and how many rows their states have."""

LARGE = ("towed_dense", "towed_walk", "lattice_leapfrog")
"""Functions of one trajectory of a system of any size; towed.c and lattice.c say what is in their state."""
ROUTINES = {
    "scipy.linalg.cython_blas": ("dsymm", "dtrsm", "dsyrk", "dgemv"),
    "scipy.linalg.cython_lapack": ("dgetrf", "dgetrs", "dposv", "dpotrf", "dpotrs"),
}
"""The routines of lapack.h, by SciPy's modules that have them."""

_log = logging.getLogger(__name__)
_doubles = ctypes.POINTER(ctypes.c_double)
_RUN = [_doubles, _doubles, ctypes.c_double, ctypes.c_long, ctypes.c_long, _doubles]
_LARGE = [_doubles, _doubles, ctypes.c_long, ctypes.c_double, ctypes.c_long]


def library() -> ctypes.CDLL | None:
    """The C functions, built where needed; None, with the reason logged, where there is no compiler."""
    built = _build("gcc", C_SOURCES, C_FLAGS, ("-lm",))
    if built is None:
        return None
    for name in SINGLE:
        function = getattr(built, name)
        function.argtypes = _RUN
        function.restype = ctypes.c_long
    for name in MANY:
        function = getattr(built, name)
        function.argtypes = [_doubles, _doubles, ctypes.c_double, ctypes.c_long, ctypes.c_long]
        function.restype = None
    built.sines.argtypes = [_doubles, ctypes.c_long, _doubles, _doubles, _doubles]
    built.sines.restype = None
    return built


class Lapack(ctypes.Structure):
    """The pointers of lapack.h."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("dsymm", "dgetrf", "dgetrs", "dtrsm", "dsyrk", "dgemv", "dposv", "dpotrf", "dpotrs")
    ]


def lapack() -> Lapack | None:
    """SciPy's own BLAS and LAPACK as pointers; None, with the reason logged, where SciPy is missing or has 64-bit
    integers."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = Lapack()
    for module, names in ROUTINES.items():
        try:
            capsules = importlib.import_module(module).__pyx_capi__
        except ImportError:
            _log.warning("%s cannot be imported, so its routines cannot be called", module)
            return None
        for name in names:
            signature = name_of(capsules[name])
            if b"int *" not in signature:
                _log.warning("%s of %s has a different kind of integers: %s", name, module, signature)
                return None
            setattr(found, name, address(capsules[name], signature))
    return found


def large_library() -> ctypes.CDLL | None:
    """The C functions for systems of any size, built where needed; None where there is no compiler."""
    built = _build("gcc", LARGE_SOURCES, C_FLAGS, ("-lm",))
    if built is None:
        return None
    for name in LARGE:
        function = getattr(built, name)
        function.argtypes = [*_LARGE, ctypes.POINTER(Lapack)]
        function.restype = ctypes.c_long
    return built


def cuda_library() -> ctypes.CDLL | None:
    """The CUDA function, built where needed; None, with the reason logged, where there is no compiler."""
    built = _build("nvcc", CUDA_SOURCES, CUDA_FLAGS, ())
    if built is None:
        return None
    built.cvt_leapfrog_gpu.argtypes = _RUN
    built.cvt_leapfrog_gpu.restype = ctypes.c_int
    return built


def _cache() -> Path:
    """Where built libraries are kept."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dalembert" / "benchmarks"


def _build(
    compiler: str, sources: tuple[str, ...], flags: tuple[str, ...], after: tuple[str, ...]
) -> ctypes.CDLL | None:
    path = shutil.which(compiler)
    if path is None:
        _log.warning("%s is not installed, so %s cannot be built", compiler, ", ".join(sources))
        return None
    # The host's name: "native" means something else on another machine that shares the folder.
    version = subprocess.run([path, "--version"], capture_output=True, check=False).stdout
    key = hashlib.sha256(repr((flags, after, platform.machine(), platform.node())).encode() + version)
    for name in (*HEADERS, *sources):
        key.update(name.encode() + (FOLDER / name).read_bytes())
    target = _cache() / f"{Path(sources[0]).stem}-{key.hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}.tmp")
        command = [path, *flags, *(str(FOLDER / name) for name in sources), *after, "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            _log.warning("%s failed, so %s cannot be used:\n%s", compiler, ", ".join(sources), done.stderr)
            partial.unlink(missing_ok=True)
            return None
        partial.replace(target)
    return ctypes.CDLL(str(target))
