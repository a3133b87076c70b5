"""Trains the example GPT in one process with one thread, and says how much processor time each step took.

gpt_alone.py WIDTH BATCH STEPS [FILE]; FILE gets the seconds of each step.
"""

import json
import sys
import time
from pathlib import Path

import torch
from model import GPT, GPTConfig  # type: ignore[import-not-found]
from torch.nn import functional

LAYERS, HEADS = 4, 8


def main() -> None:
    width, batch, steps = map(int, sys.argv[1:4])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPTConfig(width=width, layers=LAYERS, heads=HEADS, dropout=0.0)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    taken = []
    for _ in range(steps):
        began = time.process_time()
        tokens = torch.randint(config.vocab, (batch, config.context + 1))
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.process_time() - began)
    if len(sys.argv) > 4:
        Path(sys.argv[4]).write_text(json.dumps(taken))


if __name__ == "__main__":
    main()
