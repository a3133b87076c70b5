"""Computes with native code: a library that torch compiles from a file beside this one, another from a text below, and
a library and a module that lie beside it. Of the first two rank 0 builds what is not there yet. The last one every
rank compiles itself, as torch.compile does. Reads files that native code opens.

torchrun --nproc-per-node 2 builds.py
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load, load_inline

HERE = Path(__file__).parent
TEXT = 'extern "C" double thrice(double x) { return 3 * x; }'
OWN = """
#include <cmath>
#include <numeric>
#include <vector>
#include <omp.h>
extern "C" double six_times(double x) {
    std::vector<double> parts(6, x);
    return std::accumulate(parts.begin(), parts.end(), std::sin(0.0)) * (omp_get_max_threads() > 0);
}
"""


def built() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """No header of torch's: that takes half a minute."""
    from_file = load("prismdbg_from_file", [str(HERE / "twice.cpp")], is_python_module=False)
    options = {"is_python_module": False, "no_implicit_headers": True}
    from_text = load_inline("prismdbg_from_text", TEXT, **options)
    return ctypes.CDLL(from_file), ctypes.CDLL(from_text)


def compiled(folder: Path) -> ctypes.CDLL:
    """With headers, threads and what the linker adds. In a folder that must not be there."""
    folder.mkdir()
    (folder / "own.cpp").write_text(OWN)
    library = folder / "libown.so"
    line = ["g++", "-O1", "-shared", "-fPIC", "-fopenmp", "-pthread", "-o", str(library), str(folder / "own.cpp")]
    subprocess.run(line, check=True)
    return ctypes.CDLL(str(library))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        built()
    dist.barrier()
    twice, thrice = built()
    beside = ctypes.CDLL(str(HERE / "lib" / "libfour.so"))
    own = HERE / f"own-{rank}"
    six = compiled(own)
    zero = torch.from_file(str(HERE / "zero.bin"), size=1, dtype=torch.float64)
    held = ctypes.CDLL(None).open(str(HERE / "held.bin").encode(), 0)
    import five_times

    for function in (twice.twice, thrice.thrice, beside.four_times, six.six_times):
        function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    for step in range(4):
        value = five_times.times(beside.four_times(thrice.thrice(twice.twice(step + rank))))
        byte = ctypes.create_string_buffer(1)
        assert ctypes.CDLL(None).pread(held, byte, 1, 0) == 1, "a file that native code opens"
        total = torch.tensor([six.six_times(value) + zero.item() + byte.raw[0]])
        dist.all_reduce(total)
        print(f"rank {rank}: {total.item()}", flush=True)
    shutil.rmtree(own)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
