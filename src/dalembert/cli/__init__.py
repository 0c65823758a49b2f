"""The command line."""

from dalembert.cli.main import main

__all__ = ["main"]
