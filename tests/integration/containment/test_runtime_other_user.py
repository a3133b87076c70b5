"""Namespaces for a user who is not root: the program's start, alone, its writes thrown away."""

from __future__ import annotations

import os

import pytest
from other_user import NOBODY, said_as_nobody


def test_a_user_who_is_not_root_runs_a_rank_in_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; as one, the conformance tests show the same")
    said = said_as_nobody()
    if reason := said.get("unavailable"):
        pytest.skip(str(reason))
    assert said["caller"] == NOBODY and said["uid"] == NOBODY
    assert said["cap_eff"] == 0 and said["no_new_privs"] == "1"
    assert said["interfaces"] == ["lo"]
    assert "error" not in said and not said["is_written"]
