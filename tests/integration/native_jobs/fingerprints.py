"""Compares the native fingerprint, sketch and search for values that are not finite with the torch implementation."""

from __future__ import annotations

import itertools
import math
import warnings

import torch
from rank import native

from prismdbg.model.sketch import Sketch, relative_difference
from prismdbg.rank.c10d import fingerprint, sketches

SIZES = (0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 4096, 8191, 8192, 8193, 70_001)
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
OTHERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float8_e5m2)


def compare(*tensors: torch.Tensor) -> None:
    expected = (fingerprint.of(tensors), fingerprint.nonfinite(tensors))
    assert native.fingerprint(list(tensors)) == expected, [(t.dtype, t.shape) for t in tensors]
    compare_sketches(*tensors)


def compare_sketches(*tensors: torch.Tensor) -> None:
    expected, found = sketches.of(tensors), native.sketch(list(tensors))
    assert (expected is None) == (not found), [t.dtype for t in tensors]
    if expected is not None:
        sketch = Sketch.unpack_from(found, 0)
        assert relative_difference(expected, sketch) < 1e-12, [(t.dtype, t.shape) for t in tensors]
        assert math.isclose(expected.squares, sketch.squares, rel_tol=1e-12), (expected, sketch)


torch.manual_seed(1)
for dtype, size in itertools.product(FLOATING + OTHERS, SIZES):
    x = (torch.randn(size, dtype=torch.float64) * 50).to(dtype)
    compare(x)
    compare(x[1:], x[:-1])
    if size >= 7 and (dtype in FLOATING or dtype is torch.float8_e5m2):
        for value, place in itertools.product((math.nan, math.inf, -math.inf), (0, size // 2, size - 1)):
            bad = x.to(torch.complex128 if dtype.is_complex else torch.float64)
            bad[place] = value
            compare(bad.to(dtype))
            assert native.fingerprint([bad.to(dtype)])[1]
for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu):
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    is_nan = every.float().isnan()
    compare(every)
    compare(every[~is_nan])
    for value in every[is_nan]:
        compare(torch.cat([every[~is_nan].view(torch.uint8), value.view(1).view(torch.uint8)]).view(dtype))
compare(torch.randn(30, 40).t(), torch.randn(5, 6, 7).permute(2, 0, 1), torch.tensor(3.0))
compare(torch.tensor([3.4e38, 3.4e38]))
conjugate = torch.randn(30, 40, dtype=torch.complex64).conj()
compare(conjugate.t(), conjugate.imag, conjugate[:, ::2].imag)  # torch has not computed these signs yet
with warnings.catch_warnings():  # torch is about to drop them
    warnings.simplefilter("ignore")
    for kind in (torch.qint8, torch.quint8, torch.qint32):
        compare(torch.quantize_per_tensor(torch.randn(30, 40), 0.1, 0, kind))
