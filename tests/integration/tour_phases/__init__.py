"""The phases of the tour of torch.distributed, one function each: `phase(at)` gives its results."""
