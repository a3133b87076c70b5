"""Which links on the ways to a rank's files a capsule names."""

from __future__ import annotations

from pathlib import Path

from prismdbg.jobs.capture.followed_links import followed_links


def test_folders_and_files_and_where_they_lead_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "a.py").touch()
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("real")
    (tmp_path / "b.py").symlink_to("real/deep/a.py")
    named = [f"{tmp_path}/first/deep/a.py", f"{tmp_path}/b.py", f"{tmp_path}/real/deep/a.py"]
    assert followed_links(named) == {
        f"{tmp_path}/first": f"{tmp_path}/real",
        f"{tmp_path}/b.py": f"{tmp_path}/real/deep/a.py",
    }


def test_not_those_that_lead_nowhere_or_to_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nothing")
    (tmp_path / "kernel").symlink_to("/proc/self")
    (tmp_path / "round").symlink_to("round")
    assert followed_links([f"{tmp_path}/{name}/x" for name in ("gone", "kernel", "round")]) == {}
    assert followed_links(["/proc/self/exe"]) == {}
