"""Makes scan_kernel.h of scan_kernel.cu: the kernel as PTX, which drivers since CUDA 11 compile for their devices.

`python prismdbg/rank/native/device/generate.py`, with nvidia-cuda-nvrtc installed (CUDA builds of torch have it).
No GPU is needed. Nothing but this file needs a compiler for CUDA.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = HERE / "scan_kernel.cu"
HEADER = HERE / "scan_kernel.h"
# of the oldest that runs it: Volta, and the drivers of CUDA 11
TARGET, PTX_VERSION = "sm_70", "7.0"


def library() -> ctypes.CDLL:
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.1[0-9]")):
            for built_in in path.parent.glob("libnvrtc-builtins.so.*"):  # it looks for it by its name alone
                ctypes.CDLL(str(built_in))
            return ctypes.CDLL(str(path))
    raise SystemExit("libnvrtc was not found: pip install nvidia-cuda-nvrtc")


def compiled(source: str) -> str:
    nvrtc = library()
    program = ctypes.c_void_p()

    def call(name: str, *arguments: Any) -> None:
        code = getattr(nvrtc, name)(*arguments)
        if code:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise SystemExit(f"{name} ended with {code}: {log.value.decode()}")

    call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), SOURCE.name.encode(), 0, None, None)
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_75")  # the oldest that a current NVRTC knows
    call("nvrtcCompileProgram", program, len(options), options)
    size = ctypes.c_size_t()
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, text)
    return text.value.decode()


def lowered(ptx: str) -> str:
    """Named for older devices and drivers: the kernel has no instruction that is newer."""
    ptx = re.sub(r"^\.version .*$", f".version {PTX_VERSION}", ptx, flags=re.M)
    ptx = re.sub(r"^\.target .*$", f".target {TARGET}", ptx, flags=re.M)
    return re.sub(r"^//.*\n", "", ptx, flags=re.M).strip() + "\n"


def digest() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]


def main() -> None:
    ptx = lowered(compiled(SOURCE.read_text()))
    HEADER.write_text(
        f"// Made of scan_kernel.cu (sha256 {digest()}) by generate.py. Do not edit.\n#pragma once\n\n"
        f'namespace prismdbg {{\n\nconstexpr char kScanKernel[] = R"ptx({ptx})ptx";\n\n}}  // namespace prismdbg\n'
    )


if __name__ == "__main__":
    main()
