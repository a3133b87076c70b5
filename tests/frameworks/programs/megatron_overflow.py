"""megatron-core's own optimizers on two stages: all parameters of the second one are frozen. With --fp16, gradients
overflow in two steps. Prints how often the optimizer was called, and how often it skipped the step."""

import argparse

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer import OptimizerConfig
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer.optimizer import ChainedOptimizer, Float16OptimizerWithFloat16Params, FP32Optimizer
from torch.overrides import TorchFunctionMode

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
arguments = parser.parse_args()
STEPS, OVERFLOWS = 6, (0, 3)


class OnCpus(TorchFunctionMode):
    """megatron-core names the device "cuda" where it makes tensors."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = dict(kwargs or {})
        if named.get("device") == "cuda":
            named["device"] = "cpu"
        return function(*args, **named)


class Parameter(torch.nn.Parameter):
    """megatron-core asks for the type that it has on a GPU."""

    def type(self):
        return "torch.cuda.FloatTensor"


def make_optimizer(parameters):
    config = OptimizerConfig(fp16=arguments.fp16, clip_grad=0.0, lr=1e-3)
    torchs = torch.optim.AdamW(parameters, lr=1e-3) if parameters else None
    if not arguments.fp16:
        optimizer = FP32Optimizer(torchs, config, None)
    else:
        scaler = DynamicGradScaler(
            initial_scale=2.0, min_scale=1.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=100, hysteresis=1
        )
        optimizer = Float16OptimizerWithFloat16Params(torchs, config, scaler, None)
    optimizer.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
    return ChainedOptimizer([optimizer])


dist.init_process_group("gloo")
torch.cuda.current_device = lambda: "cpu"
parallel_state.initialize_model_parallel(1, 2)
parameter = Parameter(torch.ones(4))
with OnCpus():
    optimizer = make_optimizer([parameter] if dist.get_rank() == 0 else [])
    skipped = 0
    for step in range(STEPS):
        loss = (parameter * parameter).sum() * (float("inf") if arguments.fp16 and step in OVERFLOWS else 1.0)
        loss.backward()
        dist.all_reduce(loss.detach())
        parameter.main_grad = parameter.grad
        skipped += not optimizer.step()[0]
        parameter.grad = None
print(f"rank {dist.get_rank()} steps {STEPS} skipped {skipped}", flush=True)
dist.destroy_process_group()
