"""A run's files while several write them at once."""

from __future__ import annotations

import threading
from pathlib import Path

from prismdbg.jobs.storage.run_folder import read_json, write_json


def test_several_write_one_file_and_one_of_them_stays(tmp_path: Path) -> None:
    path, failed = tmp_path / "environment.json", list[Exception]()

    def write(number: int) -> None:
        try:
            for _ in range(50):
                write_json(path, {"by": number, "padding": "x" * 5000})
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == [] and read_json(path)["by"] in range(4)
    assert [file.name for file in tmp_path.iterdir()] == ["environment.json"]
    assert path.stat().st_mode & 0o777 == 0o600
