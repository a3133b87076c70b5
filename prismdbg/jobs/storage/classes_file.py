"""RUN/classes.json: which classes of ranks an emulation found, which ranks ran for them, and what is only assumed."""

from __future__ import annotations

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Fields
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.simulate.graph.class_finder import FoundClass, RankClasses
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh

FORMAT = 1
FILE_NAME = "classes.json"


def write_classes(run: RunFolder, found: RankClasses) -> None:
    write_json(
        run.path / FILE_NAME,
        {
            "format": FORMAT,
            "begins": {name: list(begins) for name, begins in found.kinds.begins.items()},
            "alike": list(found.kinds.alike),
            "probed": list(found.probed),
            "ran": list(found.ran),
            "classes": [
                {
                    "name": f"as rank {each.representative}",
                    "representative": each.representative,
                    "bases": list(each.bases),
                    "ranks": each.ranks,
                    "checked_with": list(each.checked_with),
                    "assumed": each.is_assumed,
                }
                for each in found.classes
            ],
        },
    )


def read_classes(run: RunFolder, mesh: Mesh) -> RankClasses | None:
    """None where the run has no classes."""
    path = run.path / FILE_NAME
    if not path.is_file():
        return None
    fields = checked_json.read(path)
    version = fields.integer("format")
    if version != FORMAT:
        raise CapsuleError(f"{path} has format {version}; this version reads {FORMAT}", hint="use a newer prismdbg")
    begins = fields.fields("begins")
    return RankClasses(
        kinds=Kinds(mesh=mesh, begins={name: begins.integers(name) for name in mesh.names}),
        probed=fields.texts("probed"),
        classes=tuple(_class(each) for each in fields.objects("classes")),
        ran=fields.integers("ran"),
    )


def _class(fields: Fields) -> FoundClass:
    return FoundClass(
        bases=fields.integers("bases"), ranks=fields.integer("ranks"), checked_with=fields.integers("checked_with")
    )
