"""Calls of the tour that torch refuses: each with its message, and the versions of torch that refuse it."""

import torch

SPLIT_WITHOUT_DEVICE = "No device associated with the default pg, not safe to split any process groups"  # up to 2.14
NO_LISTS_IN_ALL_TO_ALL = "Backend gloo does not support alltoall"  # up to 2.11


def expected_refusals() -> dict[str, str]:
    """The phases that this torch refuses, by name, and what it says. It must make the calls of all other phases."""
    refused = {}
    if torch.__version__ < (2, 12):
        refused["all_to_all"] = refused["backend_by_device"] = NO_LISTS_IN_ALL_TO_ALL
    if torch.__version__ < (2, 15):
        refused["split_group"] = SPLIT_WITHOUT_DEVICE
    return refused


def refusal(error: RuntimeError, message: str) -> str:
    """The message, if the error is this refusal of torch's. Any other error is raised again."""
    if str(error).partition("\n")[0] != message:
        raise error
    return message
