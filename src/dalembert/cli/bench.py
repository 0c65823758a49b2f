"""The command `dalembert bench`: prints the measurements and writes them to a file."""

import json
from pathlib import Path

from rich.console import Console

from dalembert.cli.names import check_file
from dalembert.lab.bench.running import chosen, run
from dalembert.lab.bench.tables import Settings, print_section


def bench_and_report(
    console: Console, only: str | None, quick: bool, out: str | None, merge: str | None
) -> None:
    """Runs the benchmarks, prints one table per section, and writes the JSON file if one was asked for."""
    names = chosen(only)
    check_file("--json", out)
    if merge is not None:
        try:
            json.loads(Path(merge).read_text())
        except ValueError as error:
            raise ValueError(
                f"--merge: {merge!r} is not a file that benchmarks/gpu.py wrote ({error})"
            ) from None
    settings = Settings.short() if quick else Settings()
    found = run(names, settings, lambda s: print_section(console, s), Path(merge) if merge else None)
    console.print(f"\n{found['machine']['cpu']}, {found['machine']['cores']} cores; {found['seconds']:.0f} s")
    if quick:
        console.print("These numbers are rough: --quick makes few and short runs.")
    if out is not None:
        Path(out).write_text(json.dumps(found, indent=1) + "\n")
        console.print(f"wrote {out}", highlight=False)
