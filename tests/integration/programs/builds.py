"""Computes with native code: a library that torch compiles from a file beside this one, another from a text below, and
a library and a module that lie beside it. Of the first two rank 0 builds what is not there yet.

torchrun --nproc-per-node 2 builds.py
"""

import ctypes
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load, load_inline

HERE = Path(__file__).parent
TEXT = 'extern "C" double thrice(double x) { return 3 * x; }'


def built() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """No header of torch's: that takes half a minute."""
    from_file = load("prismdbg_from_file", [str(HERE / "twice.cpp")], is_python_module=False)
    options = {"is_python_module": False, "no_implicit_headers": True}
    from_text = load_inline("prismdbg_from_text", TEXT, **options)
    return ctypes.CDLL(from_file), ctypes.CDLL(from_text)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        built()
    dist.barrier()
    twice, thrice = built()
    beside = ctypes.CDLL(str(HERE / "lib" / "libfour.so"))
    import five_times

    for function in (twice.twice, thrice.thrice, beside.four_times):
        function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    for step in range(4):
        value = five_times.times(beside.four_times(thrice.thrice(twice.twice(step + rank))))
        total = torch.tensor([value])
        dist.all_reduce(total)
        print(f"rank {rank}: {total.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
