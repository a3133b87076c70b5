"""`prismdbg build`: the container image of a capsule's environment, made once for all capsules that share it."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import cache_dir
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine
from prismdbg.runtime.docker.image import ensure_environment_image, environment_tag
from prismdbg.runtime.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """`size_bytes` of the files in it; `made`: it was not there before."""

    tag: str
    files: int
    size_bytes: int
    made: bool


def build_image(capsule: Capsule, say: Say) -> Built:
    """Needs an engine. Where the image is not there yet, the files must be as they were at the capture."""
    fields = capsule.part(layout.ENVIRONMENT)
    if fields is None:
        raise CapsuleError(
            f"{capsule.path} does not list the installed files of the rank", hint="replay it with --runtime local"
        )
    environment = Environment.from_json(fields)
    with engine(Daemon(cache_dir())) as docker:
        made = not docker.has_image(environment_tag(environment))
        tag = ensure_environment_image(docker, environment, say, cache=cache_dir())
    return Built(tag=tag, files=len(environment.files), size_bytes=environment.size_bytes, made=made)
