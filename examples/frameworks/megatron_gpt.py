"""A small GPT with megatron-core, as its quickstart has it: tensor and pipeline parallelism, its own DDP and 1F1B
schedule with several microbatches, random tokens. `OnCpus` and `without_a_gpu` are what it needs to
run on CPUs."""

import argparse
import sys
from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.overrides import TorchFunctionMode

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--pp", type=int, default=1)
parser.add_argument("--steps", type=int, default=12)
arguments = parser.parse_args()
SEQUENCE, VOCABULARY, MICROBATCH, MICROBATCHES = 16, 64, 2, 4


class OnCpus(TorchFunctionMode):
    """megatron-core names the device "cuda" where it makes tensors."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = dict(kwargs or {})
        if named.get("device") == "cuda":
            named["device"] = "cpu"
        return function(*args, **named)


def without_a_gpu() -> None:
    """megatron-core asks torch.cuda where tensors are to be, waits for its streams, and draws from its generators."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.manual_seed = torch.manual_seed
    torch.cuda.get_rng_state = torch.get_rng_state
    tensor_parallel.random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    tensor_parallel.random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


def make_model(config: TransformerConfig) -> DistributedDataParallel:
    model = GPTModel(
        config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    return DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False), model)


def batches():
    """Of this data-parallel rank: the same for all its tensor-parallel ranks and stages."""
    generator = torch.Generator().manual_seed(5 + parallel_state.get_data_parallel_rank())
    while True:
        yield torch.randint(0, VOCABULARY, (MICROBATCH, SEQUENCE + 1), generator=generator)


def loss_of(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = output.mean()
    mean = loss.detach().clone()
    dist.all_reduce(mean, group=parallel_state.get_data_parallel_group())
    return loss, {"loss": mean / parallel_state.get_data_parallel_world_size()}


def forward_step(data, model):
    tokens = next(data)
    places = torch.arange(SEQUENCE).expand(MICROBATCH, -1)
    output = model(tokens[:, :-1], places, None, labels=tokens[:, 1:])
    return output, partial(loss_of)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    parallel_state.initialize_model_parallel(arguments.tp, arguments.pp)
    replicas = parallel_state.get_data_parallel_world_size()
    init_num_microbatches_calculator(rank, None, MICROBATCH * MICROBATCHES * replicas, MICROBATCH, replicas)
    torch.manual_seed(11)
    tensor_parallel.model_parallel_cuda_manual_seed(11)
    config = TransformerConfig(
        num_layers=max(2, arguments.pp),
        hidden_size=32,
        num_attention_heads=max(4, arguments.tp),
        tensor_model_parallel_size=arguments.tp,
        pipeline_model_parallel_size=arguments.pp,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        deallocate_pipeline_outputs=True,
    )
    config.finalize_model_grads_func = finalize_model_grads
    model = make_model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train, data = get_forward_backward_func(), batches()
    for step in range(1, arguments.steps + 1):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = train(
            forward_step_func=forward_step,
            data_iterator=data,
            model=model,
            num_microbatches=MICROBATCHES,
            seq_length=SEQUENCE,
            micro_batch_size=MICROBATCH,
            decoder_seq_length=SEQUENCE,
            forward_only=False,
        )
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
        if (
            losses
            and parallel_state.get_tensor_model_parallel_rank() == 0
            and parallel_state.get_data_parallel_rank() == 0
        ):
            print(f"step {step} loss {sum(each['loss'].item() for each in losses) / len(losses):.6f}", flush=True)
    checksum = sum(p.double().sum().item() for p in model.parameters())
    print(f"rank {rank} parameters {checksum:.12f}", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    without_a_gpu()
    with OnCpus():
        main()
