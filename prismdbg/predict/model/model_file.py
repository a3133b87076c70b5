"""MODEL: a YAML file. `kind` gives what is usual for it, and every other name changes one thing.

kind: llama              # gpt, llama or moe
layers: 32
hidden: 4096
heads: 32
kv_heads: 8              # [default: heads]
ffn: 14336               # [default: 4 hidden]
vocabulary: 128256
sequence: 8192
experts: 8               # moe only
experts_per_token: 2
attention: flash         # or unfused
norm: RMSlayernorm       # or layernorm
gated: true              # an MLP with two inputs
rope: true               # rotary positions
dropout: false
tied: false              # embedding and output are one table
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismdbg.predict.model.model import Attention, Model, Norm
from prismdbg.simulate.cluster import checked_yaml
from prismdbg.simulate.cluster.checked_yaml import Value

_LLAMA = {"norm": Norm.RMS, "gated": True, "rope": True, "dropout": False, "tied": False, "attention": Attention.FLASH}
KINDS: dict[str, dict[str, Any]] = {
    "gpt": {**_LLAMA, "norm": Norm.LAYER, "gated": False, "rope": False, "dropout": True, "tied": True},
    "llama": _LLAMA,
    "moe": _LLAMA,
}
_EXAMPLE = "examples/prediction/llama-8b.yaml"
_SIZES = ("layers", "hidden", "heads", "vocabulary", "sequence")
_FLAGS = ("gated", "rope", "dropout", "tied")
_MOST = 1 << 24
_NAMES = ("kind", *_SIZES, "kv_heads", "ffn", "experts", "experts_per_token", "attention", "norm", *_FLAGS)


def read(path: Path) -> Model:
    """UsageError with file, line and name where something is wrong."""
    return _model(checked_yaml.read(path, example=_EXAMPLE))


def parse(text: str, file: str = "model.yaml") -> Model:
    return _model(checked_yaml.parse(text, file, example=_EXAMPLE))


def _model(top: Value) -> Model:
    fields = top.known(*_NAMES)
    kind = top.required(fields, "kind")
    usual = dict(KINDS[_one_of(kind, KINDS)])
    sizes = {name: _size(top.required(fields, name)) for name in _SIZES}
    more = {name: _size(fields[name]) for name in ("kv_heads", "ffn", "experts_per_token") if name in fields}
    experts = _experts(top, kind.text(), fields)
    usual |= {name: fields[name].flag() for name in _FLAGS if name in fields}
    model = Model(
        **sizes,
        kv_heads=more.get("kv_heads", sizes["heads"]),
        ffn=more.get("ffn", 4 * sizes["hidden"]),
        norm=Norm(_one_of(fields["norm"], Norm)) if "norm" in fields else usual["norm"],
        attention=Attention(_one_of(fields["attention"], Attention)) if "attention" in fields else usual["attention"],
        is_gated=usual["gated"],
        has_rope=usual["rope"],
        has_dropout=usual["dropout"],
        is_tied=usual["tied"],
        experts=experts,
        experts_per_token=more.get("experts_per_token", 2),
    )
    _check(fields, model)
    return model


def _experts(top: Value, kind: str, fields: dict[str, Value]) -> int:
    if kind == "moe":
        return _size(top.required(fields, "experts"))
    for name in ("experts", "experts_per_token"):
        if name in fields:
            fields[name].fail(f"a {kind} has no experts", "write kind: moe, or leave it out")
    return 0


def _check(fields: dict[str, Value], model: Model) -> None:
    if model.hidden % model.heads:
        fields["heads"].fail(f"{model.heads} heads do not divide a hidden size of {model.hidden}")
    if model.heads % model.kv_heads:
        fields["kv_heads"].fail(f"{model.kv_heads} do not divide {model.heads} heads")
    if model.experts and model.experts_per_token > model.experts:
        fields["experts"].fail(f"a token cannot go to {model.experts_per_token} of {model.experts}")


def _size(value: Value) -> int:
    size = value.whole(1)
    if size > _MOST:
        value.fail(f"{size} is more than {_MOST:,}")
    return size


def _one_of(value: Value, names: Any) -> str:
    if value.text() not in list(names):
        value.fail(f"{value.text()[:40]!r} is not one of its values", f"give one of: {', '.join(names)}")
    return value.text()
