"""The libraries of `rank/recording/inputs/native_readers.py`, as pip has them: what they read is noted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITES = """
import av, cv2, faiss, h5py, lmdb, numpy as np, pandas as pd, pyarrow as pa, pyarrow.orc, SimpleITK, soundfile
import torch, safetensors.torch
a = np.arange(64, dtype=np.float32).reshape(8, 8)
table = pd.DataFrame(a, columns=[f"c{number}" for number in range(8)])
with h5py.File("d.h5", "w") as file:
    file["a"] = a
with lmdb.open("d.lmdb", map_size=1 << 20) as database, database.begin(write=True) as write:
    write.put(b"0", b"1")
table.to_csv("d.csv", index=False)
table.to_parquet("d.parquet")
table.to_feather("d.feather")
table.to_json("d.jsonl", orient="records", lines=True)
pa.orc.write_table(pa.Table.from_pandas(table), "d.orc")
soundfile.write("d.wav", np.zeros(8000), 8000)
SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.zeros((4, 4, 4), dtype=np.float32)), "d.nii")
index = faiss.IndexFlatL2(8)
index.add(a)
faiss.write_index(index, "d.faiss")
cv2.imwrite("d.png", np.zeros((8, 8, 3), dtype=np.uint8))
safetensors.torch.save_file({"a": torch.ones(4)}, "d.safetensors")
with av.open("d.mp4", "w") as video:
    stream = video.add_stream("mpeg4", rate=10)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    for packet in stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), dtype=np.uint8))):
        video.mux(packet)
    for packet in stream.encode():
        video.mux(packet)
"""
READS = """
import importlib.util, json, os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
files.install()
found = []
files.listen(lambda kind, path, _: found.append(os.path.relpath(path)) if kind == "file" else None)
module, line = sys.argv[2].split(": ")
importlib.util.find_spec(module.split(".")[0])  # as libraries ask for others
exec(f"import {module}")
exec(line)
print(json.dumps(found))
"""
READERS = {
    "av: av.open('d.mp4').close()": "d.mp4",
    "cv2: assert cv2.VideoCapture('d.mp4').read()[0]": "d.mp4",
    "cv2: cv2.imread('d.png').shape": "d.png",
    "cv2: cv2.imreadmulti('d.png')": "d.png",
    "decord: decord.VideoReader('d.mp4')": "d.mp4",
    "faiss: faiss.read_index('d.faiss')": "d.faiss",
    "h5py: h5py.File('d.h5')['a'][0]": "d.h5",
    "lmdb: lmdb.Environment('d.lmdb', readonly=True, lock=False)": "d.lmdb/data.mdb",
    "lmdb: lmdb.open('d.lmdb', readonly=True, lock=False)": "d.lmdb/data.mdb",
    "pandas: pandas.read_csv('d.csv')": "d.csv",
    "pandas: pandas.read_feather('d.feather')": "d.feather",
    "pandas: pandas.read_parquet('d.parquet')": "d.parquet",
    "polars: polars.read_csv('d.csv')": "d.csv",
    "polars: polars.read_ipc('d.feather')": "d.feather",
    "polars: polars.read_ndjson('d.jsonl')": "d.jsonl",
    "polars: polars.read_parquet('d.parquet')": "d.parquet",
    "polars: polars.scan_csv('*.csv').collect()": "d.csv",
    "polars: polars.scan_ipc('d.feather').collect()": "d.feather",
    "polars: polars.scan_ndjson('d.jsonl').collect()": "d.jsonl",
    "polars: polars.scan_parquet('d.parquet').collect()": "d.parquet",
    "pyarrow: pyarrow.input_stream('d.csv').read()": "d.csv",
    "pyarrow: pyarrow.memory_map('d.feather').read()": "d.feather",
    "pyarrow.csv: pyarrow.csv.open_csv('d.csv')": "d.csv",
    "pyarrow.csv: pyarrow.csv.read_csv('d.csv')": "d.csv",
    "pyarrow.dataset: pyarrow.dataset.dataset('.', format='parquet', exclude_invalid_files=True)": "d.parquet",
    "pyarrow.feather: pyarrow.feather.read_table('d.feather')": "d.feather",
    "pyarrow.json: pyarrow.json.read_json('d.jsonl')": "d.jsonl",
    "pyarrow.orc: pyarrow.orc.ORCFile('d.orc').read()": "d.orc",
    "pyarrow.parquet: pyarrow.parquet.read_table(['d.parquet'])": "d.parquet",
    "safetensors: safetensors.safe_open('d.safetensors', 'pt').keys()": "d.safetensors",
    "soundfile: soundfile.read('d.wav')": "d.wav",
    "SimpleITK: SimpleITK.ReadImage('d.nii')": "d.nii",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, "-c", WRITES], cwd=folder, check=True, timeout=300)
    return folder


@pytest.mark.parametrize("reader", READERS)
def test_what_a_library_reads_natively_is_noted(reader: str, written: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(READS)
    line = [sys.executable, str(program), str(ROOT), reader]
    done = subprocess.run(line, cwd=written, check=True, timeout=120, capture_output=True, text=True)
    assert READERS[reader] in json.loads(done.stdout.splitlines()[-1])
