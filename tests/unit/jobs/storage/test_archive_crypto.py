"""Packed capsules that are encrypted and signed: who may read them, who made them, and nothing half-believed."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import click
import pytest
from capsules import make_capsule

from prismdbg.cli import main, registry
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage import archive_crypto, pack
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import Seal
from prismdbg.jobs.storage.verify import verify
from tests.fuzz.commands import nothing_runs

pyrage = pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'prismdbg[crypto]'")
if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is not installed: openssh-client", allow_module_level=True)


def ssh_key(folder: Path, name: str) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True, timeout=60
    )
    return folder / name


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """alice signs and may decrypt, mallory is somebody else; `signers` names alice."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        ssh_key(folder, name)
        (folder / f"{name}.age").write_text(f"# {name}\n{pyrage.x25519.Identity.generate()}\n")
    (folder / "signers").write_text(f"alice@example.org {(folder / 'alice.pub').read_text()}")
    return folder


def recipient(file: Path) -> str:
    return str(pyrage.x25519.Identity.from_str(file.read_text().splitlines()[1]).to_public())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    """Encrypted to alice's age and SSH keys, signed by alice."""
    folder = tmp_path_factory.mktemp("sealed")
    make_capsule(folder / "capsule")
    to = (recipient(keys / "alice.age"), (keys / "alice.pub").read_text().strip())
    pack.pack(folder / "capsule", folder / "c.tar.zst.age", seal=Seal(recipients=to, key=keys / "alice"))
    return folder / "c.tar.zst.age"


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    for path in (packed, archive_crypto.signature_path(packed)):
        shutil.copy(path, tmp_path / path.name)
    return tmp_path / packed.name


def test_nothing_of_it_is_in_the_clear(packed: Path) -> None:
    data = packed.read_bytes()
    assert data.startswith(archive_crypto.MAGIC) and b"manifest" not in data and b"\x28\xb5\x2f\xfd" not in data[:2000]
    assert {path.name for path in packed.parent.iterdir()} == {"capsule", "c.tar.zst.age", "c.tar.zst.age.sig"}


@pytest.mark.parametrize("identity", ["alice.age", "alice"])
def test_there_and_back(copy: Path, keys: Path, tmp_path: Path, identity: str) -> None:
    said: list[str] = []
    with_keys = Keys(identity=keys / identity, signers=keys / "signers", say=said.append)
    capsule = pack.unpack(copy, tmp_path / "back", keys=with_keys)
    verify(capsule.path)
    assert said == ["c.tar.zst.age is signed by alice@example.org"]


def test_who_signed_is_said_without_being_asked(copy: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("inspect", "verify", "why", "unpack"):
        assert main.run([command, str(copy), "--identity", str(keys / "alice.age")]) == ExitCode.OK
        shown = capsys.readouterr()
        assert shown.err.count("is signed with ED25519 key SHA256:") == 1, shown.err
    assert (copy.parent / "c" / "prismdbg" / "manifest.json").is_file()


def sign(path: Path, key: Path) -> None:
    with path.open("rb") as file:
        archive_crypto.signature_path(path).write_bytes(archive_crypto.sign(file, key))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def resigned(path: Path) -> None:
    """By somebody else."""
    key = ssh_key(path.parent, "other")
    sign(path, key)


def nonsense(path: Path) -> None:
    archive_crypto.signature_path(path).write_text(
        "-----BEGIN SSH SIGNATURE-----\nnonsense\n-----END SSH SIGNATURE-----\n"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (flip, "the signature of"),
        (cut, "the signature of"),
        (resigned, "is not signed by any signer in"),
        (nonsense, "is not signed by any signer in"),
        (lambda path: archive_crypto.signature_path(path).unlink(), "is not signed"),
        (lambda path: archive_crypto.signature_path(path).write_bytes(bytes(70_000)), "is not a signature"),
    ],
)
@pytest.mark.parametrize("command", ["unpack", "inspect", "verify", "replay", "debug", "why", "open"])
def test_an_archive_that_is_not_as_it_was_signed(
    copy: Path,
    keys: Path,
    command: str,
    change: Callable[[Path], object],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(copy.parent))
    change(copy)
    before = sorted(copy.parent.iterdir())
    options = ["--identity", str(keys / "alice.age"), "--require-signature", str(keys / "signers")]
    assert main.run([command, str(copy), *options]) == ExitCode.BAD_CAPSULE
    error = capsys.readouterr().err
    assert says in error and error.count("error:") == 1 and "Traceback" not in error
    assert sorted(copy.parent.iterdir()) == before


def test_a_signature_made_for_something_else_does_not_count(
    copy: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(archive_crypto, "NAMESPACE", "git")
        sign(copy, keys / "alice")
    for signers in (None, keys / "signers"):
        with pytest.raises(CapsuleError, match="is not valid") as refused:
            pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / "alice.age", signers=signers))
        assert "not of the ssh namespace 'prismdbg'" in refused.value.hint and "altered" not in refused.value.hint


def test_a_signer_who_is_trusted_with_other_things_only(copy: Path, keys: Path, tmp_path: Path) -> None:
    public = (keys / "alice.pub").read_text()
    (tmp_path / "signers").write_text(f'alice@example.org namespaces="git" {public}')
    with pytest.raises(CapsuleError, match="is not valid") as refused:
        pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / "alice.age", signers=tmp_path / "signers"))
    assert "add 'prismdbg' to namespaces=" in refused.value.hint


@pytest.mark.parametrize("change", [flip, cut])
def test_an_encrypted_archive_that_was_changed_without_a_signature(
    copy: Path, keys: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    archive_crypto.signature_path(copy).unlink()
    change(copy)
    with pytest.raises(CapsuleError, match="cannot be decrypted"):
        pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / "alice.age"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.tar.zst.age"]


def test_a_signature_that_does_not_hold_is_an_error_also_where_none_is_required(
    copy: Path, keys: Path, tmp_path: Path
) -> None:
    flip(copy)
    with pytest.raises(CapsuleError, match=r"the signature of .* is not valid"):
        pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / "alice.age"))


def test_what_was_verified_is_what_is_unpacked(
    copy: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive becomes another one right after its signature was checked."""
    verified = archive_crypto._verified

    def verify_and_swap(*arguments: object) -> str:
        said = verified(*arguments)  # type: ignore[arg-type]
        copy.write_bytes(b"another archive")
        return said

    monkeypatch.setattr(archive_crypto, "_verified", verify_and_swap)
    with_keys = Keys(identity=keys / "alice.age", signers=keys / "signers")
    assert pack.unpack(copy, tmp_path / "back", keys=with_keys).manifest.job == "gpt"


def test_without_the_right_key(copy: Path, keys: Path, tmp_path: Path) -> None:
    with pytest.raises(CapsuleError, match="is encrypted") as none:
        pack.unpack(copy, tmp_path / "back")
    assert "--identity" in none.value.hint
    for other in ("mallory.age", "mallory"):
        with pytest.raises(CapsuleError, match="cannot be decrypted with"):
            pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / other))
    with pytest.raises(UsageError, match="not a key that can decrypt"):
        pack.unpack(copy, tmp_path / "back", keys=Keys(identity=keys / "signers"))
    with pytest.raises(UsageError, match="cannot be read"):
        pack.read_manifest(copy, Keys(identity=keys / "nothing"))
    assert not (tmp_path / "back").exists()


def test_a_folder_is_signed_by_nobody(packed: Path, keys: Path) -> None:
    folder = packed.parent / "capsule"
    with (
        pytest.raises(CapsuleError, match="is not signed: it is a folder"),
        pack.opened(folder, Keys(signers=keys / "signers")),
    ):
        pass


def test_wrong_recipients_and_keys_leave_nothing(packed: Path, tmp_path: Path, keys: Path) -> None:
    folder = packed.parent / "capsule"
    for seal, says in (
        (Seal(recipients=("age1nonsense",)), "is not a recipient"),
        (Seal(recipients=("ssh-ed25519 nonsense",)), "is not a recipient"),
        (Seal(recipients=(str(tmp_path / "none"),)), "cannot be read"),
        (Seal(key=tmp_path / "none"), "is not a key file"),
        (Seal(key=keys / "signers"), "cannot sign"),
    ):
        with pytest.raises(UsageError, match=says):
            pack.pack(folder, tmp_path / "out.tar.zst", seal=seal)
    assert list(tmp_path.iterdir()) == []


def test_a_capsule_that_breaks_while_it_is_encrypted_leaves_nothing(tmp_path: Path, keys: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    flip(capsule.path / "prismdbg" / "rank.json")
    with pytest.raises(CapsuleError, match="does not match the manifest"):
        pack.pack(capsule.path, tmp_path / "out.age", seal=Seal(recipients=(recipient(keys / "alice.age"),)))
    assert [path.name for path in tmp_path.iterdir()] == ["capsule"]


def test_a_signature_of_a_plain_archive(packed: Path, keys: Path, tmp_path: Path) -> None:
    target = tmp_path / "plain.tar.zst"
    pack.pack(packed.parent / "capsule", target, seal=Seal(key=keys / "alice"))
    assert pack.read_manifest(target, Keys(signers=keys / "signers")).job == "gpt"
    flip(target)
    with pytest.raises(CapsuleError, match="the signature of"):
        pack.read_manifest(target, Keys(signers=keys / "signers"))


@pytest.mark.parametrize("when", ["before it is signed", "before it has its name"])
def test_an_archive_that_somebody_puts_there_meanwhile_is_not_signed(
    packed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Who may write to the folder could have an archive of his own signed."""
    foreign, target, signs = tmp_path / "foreign", tmp_path / "plain.tar.zst", pack.sign
    foreign.write_bytes(b"not ours")

    def slow(archive: BinaryIO, key: Path) -> bytes:
        (partial,) = tmp_path.glob(".plain*partial*")
        if when == "before it is signed":
            foreign.replace(partial)
        signed = signs(archive, key)
        if when != "before it is signed":
            foreign.replace(partial)
        return signed

    monkeypatch.setattr(pack, "sign", slow)
    with pytest.raises(FacilityError, match="was replaced by another file while it was written"):
        pack.pack(packed.parent / "capsule", target, seal=Seal(key=keys / "alice"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_ends_the_writing_of_an_encrypted_archive_is_told_as_it_is(keys: Path, error: BaseException) -> None:
    """pyrage makes an error of its own of it."""

    class Full(io.BytesIO):
        def write(self, _data: Any) -> int:
            raise error

    with pytest.raises(type(error)) as raised:
        archive_crypto.write_encrypted(Full(), lambda _: None, [recipient(keys / "alice.age")])
    assert raised.value is error


def test_another_failure_of_the_encryption_is_ours(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise pyrage.EncryptError("no entropy")

    to = [recipient(keys / "alice.age")]
    monkeypatch.setattr(pyrage, "encrypt_io", broken)
    with pytest.raises(FacilityError, match="cannot be encrypted: no entropy"):
        archive_crypto.write_encrypted(io.BytesIO(), lambda pipe: None, to)


def test_memory_stays_bounded(tmp_path: Path, keys: Path) -> None:
    """256 MiB go through, there and back, in far less memory."""
    code = f"""
import os
from pathlib import Path
from prismdbg.jobs.storage import archive_crypto

def most_kib():  # not ru_maxrss, which a process has from whoever started it
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

base = most_kib()
chunk = os.urandom(1 << 20)
target = Path({str(tmp_path / "big.age")!r})
with target.open("w+b") as out:
    to = [{recipient(keys / "alice.age")!r}]
    archive_crypto.write_encrypted(out, lambda stream: [stream.write(chunk) for _ in range(256)], to)
with target.open("rb") as file:
    signed = archive_crypto.sign(file, Path({str(keys / "alice")!r}))
archive_crypto.signature_path(target).write_bytes(signed)
size = 0
with archive_crypto.plain(target, archive_crypto.Keys(identity=Path({str(keys / "alice.age")!r}))) as file:
    while got := file.read(1 << 20):
        size += len(got)
print(size, (most_kib() - base) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    size, grown_mib = map(int, done.stdout.split())
    assert size == 256 << 20 and grown_mib < 64


REQUIRED: dict[tuple[str, ...], tuple[str, ...]] = {  # besides the capsule
    ("export",): ("--format", "flight-recorder", "-o", "dumps"),
    ("report",): ("-o", "incident.html"),
}


def commands_of_capsules() -> list[tuple[str, ...]]:
    """Whatever names a CAPSULE to read in its arguments or options, by the words that call it."""
    found: list[tuple[str, ...]] = []

    def look(command: click.Command, words: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                look(inner, (*words, name))
            return
        named = [param for param in command.params if "-o" not in param.opts]
        if any("CAPSULE" in f"{param.name} {param.metavar}".upper() for param in named):
            found.append(words)

    for entry in (entry for section in registry.SECTIONS.values() for entry in section):
        look(entry.load(), (entry.name,))
    return found


def test_every_command_that_takes_a_capsule_is_looked_at() -> None:
    names = {" ".join(words) for words in commands_of_capsules()}
    assert names >= {"why", "open", "build", "replay", "debug", "memory", "inspect", "verify", "pack", "graph build"}


@pytest.mark.parametrize("words", commands_of_capsules(), ids=" ".join)
def test_every_command_that_takes_a_capsule_takes_a_sealed_one(
    words: tuple[str, ...],
    copy: Path,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks for the key; with it, what is wrong or missing is said of what is inside."""
    monkeypatch.chdir(tmp_path)
    words = (*words, *REQUIRED.get(words, ()))
    with nothing_runs(tmp_path):
        assert main.run([*words, str(copy)]) == ExitCode.BAD_CAPSULE
        assert f"{copy} is encrypted" in capsys.readouterr().err
        options = ("--identity", str(keys / "alice.age"), "--require-signature", str(keys / "signers"))
        main.run([*words, str(copy), *options])
    said = capsys.readouterr()
    assert f"{copy.name} is signed by alice@example.org" in said.err and "is encrypted" not in said.err


def test_a_sealed_capsule_is_packed_again_for_others(copy: Path, keys: Path, tmp_path: Path) -> None:
    plain = tmp_path / "c.tar.zst"
    assert main.run(["pack", str(copy), "--identity", str(keys / "alice")]) == ExitCode.OK
    verify(pack.unpack(plain, tmp_path / "back").path)
