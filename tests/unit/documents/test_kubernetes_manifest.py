"""The manifest of examples/kubernetes is one that Kubernetes takes: its published schemas, strict on unknown fields."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT / "examples" / "kubernetes" / "job.yaml"
SCHEMAS = ROOT / "tests" / "golden" / "kubernetes.json"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def check(one: dict[str, Any]) -> None:
    schemas = json.loads(SCHEMAS.read_text())
    whole = {"$ref": f"#/$defs/{one['kind']}", "$defs": schemas["$defs"]}
    jsonschema.Draft202012Validator(whole).validate(one)


def test_kubernetes_takes_every_object(objects: dict[str, Any]) -> None:
    assert sorted(objects) == ["Job", "PersistentVolumeClaim", "Service"]
    for one in objects.values():
        check(one)


def test_what_it_does_not_know_is_refused(objects: dict[str, Any]) -> None:
    """That the schema is strict, down to a container."""
    job = copy.deepcopy(objects["Job"])
    job["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(jsonschema.ValidationError, match="volumeMount"):
        check(job)
    job = copy.deepcopy(objects["Job"])
    job["spec"]["completions"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="two"):
        check(job)


def test_its_parts_fit_together(objects: dict[str, Any]) -> None:
    """What no schema knows: names by which one object means another."""
    job, service, claim = objects["Job"], objects["Service"], objects["PersistentVolumeClaim"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name = job["metadata"]["name"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert f"--rdzv-endpoint={name}-0.{pod['subdomain']}:29500" in container["command"]
    assert f"--nnodes={job['spec']['completions']}" in container["command"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "emptyDir" not in volume]
    assert claims == [claim["metadata"]["name"]]
    assert "RUN" in {variable["name"] for variable in container["env"]}
