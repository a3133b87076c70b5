"""Imported by programs that have an optimizer and compile nothing: torch's optimizers import all of torch._dynamo, as
much again as torch itself, only to say that they are not compiled. What they ask of it is answered here."""

import sys
import types

import torch


class _Compiler(types.ModuleType):
    trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
    utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")

    @staticmethod
    def disable(function, *_arguments, **_options):
        return function

    @staticmethod
    def graph_break(*_arguments) -> None:
        pass


if "torch._dynamo" not in sys.modules:  # ranks may be forked from a process that has it
    sys.modules["torch._dynamo"] = torch._dynamo = _Compiler("torch._dynamo")
