"""transformers' Trainer as its documentation shows it: a small GPT-2 made from a configuration, random tokens, dropout,
gradient accumulation, a schedule, a loss of its own, and logging that sums the loss over all ranks."""

import argparse
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--steps", type=int, default=22)
arguments = parser.parse_args()


class Tokens(torch.utils.data.Dataset):
    def __init__(self, size: int) -> None:
        self.rows = torch.randint(0, 64, (size, 16), generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class WithAccuracy(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        hits = (outputs.logits[:, :-1].argmax(-1) == inputs["labels"][:, 1:]).float().mean()
        self.accuracy = self.accelerator.reduce(hits, "mean")
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *rest, **named):
        super().log({**logs, "accuracy": round(self.accuracy.item(), 6)}, *rest, **named)


set_seed(11)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
training = TrainingArguments(
    output_dir=arguments.out,
    max_steps=arguments.steps,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    learning_rate=1e-3,
    warmup_steps=4,
    logging_steps=3,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    seed=11,
)
trainer = WithAccuracy(model=model, args=training, train_dataset=Tokens(60))
trainer.train()
checksum = sum(p.double().sum().item() for p in model.parameters())
print(f"rank {training.process_index} parameters {checksum:.12f}", file=sys.stderr)
