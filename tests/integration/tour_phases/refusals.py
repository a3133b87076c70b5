"""Calls of the tour that torch refuses: each with its message, and the versions of torch that refuse it."""

import torch

SPLIT_WITHOUT_DEVICE = "No device associated with the default pg, not safe to split any process groups"
NO_LISTS_IN_ALL_TO_ALL = "Backend gloo does not support alltoall"  # gloo has it since torch 2.12


def expected_refusals() -> dict[str, str]:
    """The phases that this torch refuses, by name, and what it says. It must make the calls of all other phases."""
    refused = {"split_group": SPLIT_WITHOUT_DEVICE}
    if torch.__version__ < (2, 12):
        refused["all_to_all"] = NO_LISTS_IN_ALL_TO_ALL
    return refused


def refusal(error: RuntimeError, message: str) -> str:
    """The message, if the error is this refusal of torch's. Any other error is raised again."""
    if str(error).partition("\n")[0] != message:
        raise error
    return message
