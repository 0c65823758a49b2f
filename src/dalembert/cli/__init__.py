"""The command line."""

from dalembert.cli.commands import main

__all__ = ["main"]
