"""What the numbers depend on: machine, compilers, versions."""

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from dalembert.simulate.ensemble import cores

PACKAGES = ("dalembert", "jax", "jaxlib", "llvmlite", "numpy", "equinox", "diffrax", "scipy", "heyoka")


def _first_line(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
    )
    return done.stdout.partition("\n")[0].strip() or None


def cpu_model() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [x.partition(":")[2].strip() for x in lines if x.lower().startswith("model name")]
    if named:
        return named[0]
    if shutil.which("lscpu"):  # Arm processors are named there only
        told = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
        ).stdout.splitlines()
        fields = {x.partition(":")[0].strip(): x.partition(":")[2].strip() for x in told}
        name = fields.get("Model name") or fields.get("BIOS Model name") or ""
        if name:
            return f"{fields.get('Vendor ID', '')} {name}".strip()
    return (
        _first_line("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()
    )


def installed(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """Everything worth writing next to a measurement."""
    import jax

    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "cores": cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "gcc": _first_line("gcc", "--version"),
        "accelerators": [str(d) for d in jax.devices() if d.platform != "cpu"],
        "versions": {name: installed(name) for name in PACKAGES},
    }
