"""Runs all sections, one after the other, and collects their results for a file."""

import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dalembert.lab.bench.tables import Section, Settings
from dalembert.simulation.ensembles import cores

PACKAGES = (
    "dalembert",
    "jax",
    "jaxlib",
    "llvmlite",
    "numpy",
    "equinox",
    "diffrax",
    "scipy",
    "heyoka",
    "sympy",
)


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
    if shutil.which("lscpu"):  # only lscpu names Arm processors
        lines = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
        ).stdout.splitlines()
        fields = {x.partition(":")[0].strip(): x.partition(":")[2].strip() for x in lines}
        name = fields.get("Model name") or fields.get("BIOS Model name") or ""
        if name:
            return f"{fields.get('Vendor ID', '')} {name}".strip()
    return (
        _first_line("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()
    )


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """The description of the machine and its software that accompanies a measurement."""
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


FORMAT = 1


SECTIONS = {
    "c": "yardstick.against_c", "ensemble": "yardstick.ensembles", "naive": "naive.against_plain_jax",
    "peers": "peers.work_precision", "compile": "startup.first_calls", "gradients": "gradients.cost",
    "size": "size.of_chains", "tag": "fused_calls.one_kernel_tag", "sweep": "sweeps.engine_cost", "gpu": "gpu.on_gpu",
}  # fmt: skip
"""Sections by name: a module of this package and its function of Settings, imported when the section runs."""


def measured(name: str, settings: Settings) -> Section:
    """One section, measured now."""
    module, function = SECTIONS[name].split(".")
    return getattr(importlib.import_module(f"dalembert.lab.bench.{module}"), function)(settings)


def chosen(only: str | None) -> list[str]:
    """The checked names in a list separated by commas; all names if no list is given."""
    if only is None:
        return list(SECTIONS)
    names = [x.strip() for x in only.split(",") if x.strip()]
    unknown = [x for x in names if x not in SECTIONS]
    if unknown or not names:
        raise ValueError(f"--only takes names of {', '.join(SECTIONS)}; got {only!r}")
    return [x for x in SECTIONS if x in names]


def run(
    names: Sequence[str], settings: Settings, show: Callable[[Section], None], merge: Path | None = None
) -> dict[str, Any]:
    """Runs the sections, shows each when it is done, and returns everything as plain values."""
    elsewhere: dict[str, Section] = {}
    if merge is not None:
        from dalembert.lab.bench.gpu import section_of

        elsewhere["gpu"] = section_of(json.loads(merge.read_text()))
        elsewhere["gpu"].notes.append("Measured on a different machine from the rest.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    began, done = time.perf_counter(), {}
    for name in [*names, *(x for x in elsewhere if x not in names)]:
        before = time.perf_counter()
        section = elsewhere[name] if name in elsewhere else measured(name, settings)
        section.seconds = time.perf_counter() - before
        show(section)
        done[name] = section.to_json()
    made = {
        "format": FORMAT,
        "machine": {**describe(), "load_before": load},
        "settings": dataclasses.asdict(settings),
    }
    return {**made, "seconds": time.perf_counter() - began, "sections": done}
