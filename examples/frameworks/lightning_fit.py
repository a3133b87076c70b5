"""Lightning's Trainer as its documentation shows it: three epochs under DDP, gradient accumulation, dropout, a
schedule, a loss that is summed over all ranks in every batch. `python lightning_fit.py` starts all ranks of a node by
itself: `--devices` times `--nodes` is the number of ranks of the job, also in an emulated one."""

import argparse
import sys

import lightning
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=2)
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--epochs", type=int, default=3)
arguments = parser.parse_args()


class Autoencoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 16)
        )

    def training_step(self, batch, index):
        loss = (self.layers(batch[0]) - batch[0].flip(1)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=False, sync_dist=True)
        if self.trainer.is_global_zero and index % 4 == 0:
            print(f"loss {loss.item():.6f}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


lightning.seed_everything(11)
rows = torch.randn(64, 16, generator=torch.Generator().manual_seed(5))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=2, shuffle=True)
model = Autoencoder()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=arguments.devices,
    num_nodes=arguments.nodes,
    strategy="ddp",
    max_epochs=arguments.epochs,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader)
checksum = sum(p.double().sum().item() for p in model.parameters())
print(f"rank {trainer.global_rank} parameters {checksum:.12f}", file=sys.stderr)
