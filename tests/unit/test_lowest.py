"""Which versions `make lowest` takes."""

from __future__ import annotations

from lowest import lowest


def test_the_lowest_version_of_each_package_with_a_bound_is_taken() -> None:
    project = '[project]\ndependencies = ["click>=8.2", "docker>=7.1,<8", "textual==8.2.8", "protobuf>=5", "plain"]'
    assert lowest(project) == ["click==8.2", "docker==7.1"]
