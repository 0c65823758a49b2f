"""Reproductions of published experiments: one file per figure or table, and a report on all of them."""

from dalembert.lab.studies.run import STUDIES, chosen, reproduce

__all__ = ["STUDIES", "chosen", "reproduce"]
