"""A loop of the program's own with Accelerate: three epochs, gradient accumulation, dropout, a schedule, and a loss
that is gathered in every step. Its place is registered for Accelerate's own checkpoints."""

import argparse
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
arguments = parser.parse_args()


class Place:
    epoch = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


set_seed(11)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
rows = torch.randn(64, 16, generator=torch.Generator().manual_seed(5))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=2, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 32), torch.nn.Linear(32, 16)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

place = Place()
accelerator.register_for_checkpointing(place)

while place.epoch < arguments.epochs:
    model.train()
    for (batch,) in loader:
        with accelerator.accumulate(model):
            loss = (model(batch) - batch.flip(1)).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()).mean()
        accelerator.print(f"loss {mean.item():.6f}", flush=True)
    place.epoch += 1
checksum = sum(p.double().sum().item() for p in model.parameters())
print(f"rank {accelerator.process_index} parameters {checksum:.12f}", file=sys.stderr)
accelerator.end_training()
