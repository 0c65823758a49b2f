"""The published experiments, done again: one file per figure or table, and a report of all of them."""

from dalembert.lab.studies.run import STUDIES, chosen, reproduce

__all__ = ["STUDIES", "chosen", "reproduce"]
