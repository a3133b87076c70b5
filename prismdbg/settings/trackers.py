"""Experiment trackers: whose client is turned off in a replay, and what a recorded rank notes of their runs."""

from __future__ import annotations

MODULES = ("comet_ml", "mlflow.tracking.registry", "neptune", "wandb")  # imported when the program uses one
NOTE = "tracker_run"
VALUES = ("id", "name", "project", "entity", "dir", "url", "resumed", "starting_step", "step")  # attributes of a run

# Variables that a capsule may lack as secrets, and what a replay has in their place: it needs no true ones.
STAND_INS = {
    "COMET_API_KEY": "0" * 40,
    "MLFLOW_TRACKING_PASSWORD": "0" * 40,
    "MLFLOW_TRACKING_TOKEN": "0" * 40,
    "MLFLOW_TRACKING_URI": "http://localhost",
    "NEPTUNE_API_TOKEN": "0" * 40,
    "WANDB_API_KEY": "0" * 40,
}
