"""The collectives of torch.distributed as a rank issues them: calls, their kernels, works and fingerprints."""
