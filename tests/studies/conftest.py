"""All studies in their quick form, made once for the files that look at their numbers."""

import warnings

import pytest

from dalembert.lab.studies import reproduce


@pytest.fixture(scope="session")
def outcome(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the studies keep the library's warnings to themselves
        return reproduce(
            (),
            quick=True,
            folder=tmp_path_factory.mktemp("reproduction"),
            command="dalembert reproduce",
            alone=True,
        )
