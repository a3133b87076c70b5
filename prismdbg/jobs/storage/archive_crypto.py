"""Packed capsules that are encrypted (age, by pyrage) and signed (SSH keys, by `ssh-keygen -Y`).

The signature is a file of its own beside the archive and covers the bytes of the archive as it is handed on, encrypted
or not. What is read is first copied to where nobody else can change it, then verified, then decrypted, then unpacked.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prismdbg.capsule import transfer
from prismdbg.errors import CapsuleError, FacilityError, UsageError

MAGIC = b"age-encryption.org/v1"
NAMESPACE = "prismdbg"  # a signature made for something else does not count here
ENCRYPTED_SUFFIX = ".age"
SIGNATURE_SUFFIX = ".sig"
_SIGNED = b"-----BEGIN SSH SIGNATURE-----"
SIGNATURE_BYTES = 64 << 10
KEY_FILE_BYTES = 1 << 20
TOOL_BOUND_S = 600.0  # a passphrase may be asked for


def _silent(_text: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """With what an archive is read. identity: a file that decrypts; signers: who must have signed, as ssh-keygen's
    ALLOWED_SIGNERS. `say` is told who signed."""

    identity: Path | None = None
    signers: Path | None = None
    say: Callable[[str], None] = _silent


NO_KEYS = Keys()


@contextmanager
def plain(source: Path, keys: Keys = NO_KEYS) -> Iterator[BinaryIO]:
    """The archive as `pack` wrote it before it was sealed, verified. `CapsuleError` where a seal does not hold."""
    with _open(source) as file:
        signature = _signature_of(source)
        encrypted = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        if signature is None and keys.signers is not None:
            raise CapsuleError(
                f"{source} is not signed: no such file: {source.name}{SIGNATURE_SUFFIX}",
                hint="fetch the signature as well, or leave out --require-signature",
            )
        if signature is None and not encrypted:
            yield file
            return
        with _private_copy(file, source) if signature is not None else _as_it_is(file) as archive:
            if signature is not None:
                keys.say(_verified(archive, signature, source, keys))
            if not encrypted:
                yield archive
                return
            with _temporary() as out:
                _decrypt(archive, out, source, keys)
                yield out


def write_encrypted(out: BinaryIO, write: Callable[[BinaryIO], None], recipients: Sequence[str]) -> None:
    """Encrypts what `write` writes, as it comes: nothing of it touches the disk in the clear."""
    age = _pyrage()
    parsed = [_recipient(age, text) for given in recipients for text in _lines_of(given)]
    reader, writer = os.pipe()
    failed: list[BaseException] = []

    def produce() -> None:
        try:
            with os.fdopen(writer, "wb") as pipe:
                write(pipe)
        except BaseException as error:  # told below, where the archive is then thrown away
            failed.append(error)

    thread = threading.Thread(target=produce, daemon=True)
    with os.fdopen(reader, "rb") as pipe:
        thread.start()
        raised: list[BaseException] = []
        try:
            age.encrypt_io(_Remembering(pipe, raised), _Remembering(out, raised), parsed)
        except age.EncryptError as error:
            if not raised:
                raise FacilityError(f"the archive cannot be encrypted: {error}", hint="check --encrypt-to") from error
        finally:
            pipe.close()  # who still writes is told so
            thread.join()
    if raised or failed:
        raise [*raised, *failed][0]


class _Remembering:
    """A file whose errors are kept, an interrupt among them: age makes an error of its own of each, or none."""

    def __init__(self, file: BinaryIO, raised: list[BaseException]) -> None:
        self._file, self._raised = file, raised

    def read(self, size: int = -1) -> bytes:
        with self._kept():
            return self._file.read(size)

    def write(self, data: bytes) -> int:
        with self._kept():
            return self._file.write(data)

    def flush(self) -> None:
        with self._kept():
            self._file.flush()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._raised.append(error)
            raise


def sign(archive: BinaryIO, key: Path) -> bytes:
    """The signature of an open file by an SSH key: a private one, or a public one whose private half an agent holds.
    By a name another file could be signed: whoever may write to its folder can put one there."""
    if not key.is_file():
        raise UsageError(
            f"{key} is not a key file", hint="use an SSH key for --sign, for example from `ssh-keygen -t ed25519`"
        )
    archive.flush()
    os.lseek(archive.fileno(), 0, os.SEEK_SET)
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, data=archive)
    if done.returncode != 0 or not done.stdout.startswith(_SIGNED):
        raise UsageError(
            f"{key} cannot sign: {_said(done)}", hint="use an SSH key for --sign, or load it into ssh-agent"
        )
    return done.stdout


def signature_path(archive: Path) -> Path:
    return archive.with_name(archive.name + SIGNATURE_SUFFIX)


def is_signature(path: Path) -> bool:
    """Whether `path` is a file that `ssh-keygen -Y sign` wrote, and no link."""
    return _begins_with(path, _SIGNED)


def is_encrypted(path: Path) -> bool:
    """Whether `path` is a file that age wrote, and no link."""
    return _begins_with(path, MAGIC)


def _begins_with(path: Path, data: bytes) -> bool:
    try:
        with transfer.open_plain(path) as file:
            return file.read(len(data)) == data
    except OSError:
        return False


def _open(path: Path) -> BinaryIO:
    """Where `path` leads; a pipe or a device is refused."""
    try:
        return transfer.open_plain(Path(os.path.realpath(path)))
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}", hint="remove it, or fetch it again") from error


def _signature_of(source: Path) -> bytes | None:
    path = signature_path(source)
    if not os.path.lexists(path):
        return None
    with _open(path) as file:
        data = file.read(SIGNATURE_BYTES + 1)
    if len(data) > SIGNATURE_BYTES:
        raise CapsuleError(
            f"{path} is not a signature: it has more than {SIGNATURE_BYTES} bytes", hint="fetch the signature again"
        )
    return data


def _verified(archive: BinaryIO, signature: bytes, source: Path, keys: Keys) -> str:
    """Who signed, in a sentence."""
    with tempfile.NamedTemporaryFile(prefix="prismdbg-sig-") as file:
        file.write(signature)
        file.flush()
        if keys.signers is None:
            done = _ssh_keygen("check-novalidate", "-n", NAMESPACE, "-s", file.name, data=archive)
            _require_good(done, source)
            by = done.stdout.decode("utf-8", "replace").strip().rpartition(" signature with ")[2]
            return f"{source.name} is signed with {by}; check the signer with --require-signature ALLOWED_SIGNERS"
        return _by_allowed(archive, file.name, source, keys.signers)


def _by_allowed(archive: BinaryIO, signature: str, source: Path, signers: Path) -> str:
    if not signers.is_file():
        raise UsageError(f"{signers} is not a file", hint="write one line per signer: NAME ssh-ed25519 AAAA...")
    found = _ssh_keygen("find-principals", "-s", signature, "-f", str(signers))
    names = found.stdout.decode("utf-8", "replace").splitlines() if found.returncode == 0 else []
    if not names:
        raise CapsuleError(
            f"{source} is not signed by any signer in {signers}",
            hint="add the signer if you trust it; otherwise do not use the archive",
        )
    done = _ssh_keygen("verify", "-f", str(signers), "-I", names[0], "-n", NAMESPACE, "-s", signature, data=archive)
    _require_good(done, source)
    return f"{source.name} is signed by {names[0]}"


def _require_good(done: subprocess.CompletedProcess[bytes], source: Path) -> None:
    if done.returncode != 0:
        said = _said(done)
        raise CapsuleError(f"the signature of {source} is not valid: {said}", hint=_hint_for(said))


def _hint_for(said: str) -> str:
    """By ssh-keygen's words, which it has in English alone."""
    if "namespace does not match" in said:
        return f"sign it with `prismdbg pack --sign`: this signature is not of the ssh namespace {NAMESPACE!r}"
    if "not permitted for use in signature namespace" in said:
        return f"add {NAMESPACE!r} to namespaces= of this signer, if you trust it with archives"
    return "fetch both again: the archive or its signature was altered or truncated"


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else f"ssh-keygen ended with {done.returncode}"


def _ssh_keygen(what: str, *options: str, data: BinaryIO | None = None) -> subprocess.CompletedProcess[bytes]:
    """`data` is its standard input, from its start; it stands there again afterwards."""
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", what, *options],
            stdin=subprocess.DEVNULL if data is None else data,
            capture_output=True,
            timeout=TOOL_BOUND_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise FacilityError("ssh-keygen is missing", hint="install the OpenSSH client: openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise FacilityError(
            f"ssh-keygen did not end within {TOOL_BOUND_S:.0f} s",
            hint="check the key: ssh-keygen may wait for a passphrase or a token",
        ) from error
    finally:
        if data is not None:
            os.lseek(data.fileno(), 0, os.SEEK_SET)  # it shares our place in the file


@contextmanager
def _private_copy(file: BinaryIO, source: Path) -> Iterator[BinaryIO]:
    """What is verified is what is read afterwards, whoever may write to `source`."""
    with _temporary() as copy:
        try:
            while chunk := file.read(transfer.CHUNK_BYTES):
                copy.write(chunk)
            copy.flush()
        except OSError as error:
            raise FacilityError(
                f"{source} cannot be copied: {error.strerror}", hint="check the disk and TMPDIR"
            ) from error
        copy.seek(0)
        yield copy


@contextmanager
def _as_it_is(file: BinaryIO) -> Iterator[BinaryIO]:
    yield file


@contextmanager
def _temporary() -> Iterator[BinaryIO]:
    """A file without a name: it is gone with the process."""
    with tempfile.TemporaryFile(prefix="prismdbg-sealed-") as file:
        yield file


def _decrypt(archive: BinaryIO, out: BinaryIO, source: Path, keys: Keys) -> None:
    """Everything is decrypted, and so authenticated, before anything of it is read."""
    if keys.identity is None:
        raise CapsuleError(
            f"{source} is encrypted",
            hint="give the key with --identity FILE, or run `prismdbg unpack` with that key first",
        )
    age = _pyrage()
    identities = _identities(age, keys.identity)
    try:
        age.decrypt_io(archive, out, identities)
        out.flush()
    except age.DecryptError as error:
        raise CapsuleError(
            f"{source} cannot be decrypted with {keys.identity}: {error}",
            hint="use another key, or fetch it again: it is for another key, altered or truncated",
        ) from error
    except OSError as error:
        raise CapsuleError(
            f"{source} cannot be decrypted: {error}",
            hint="fetch it again, or free space in TMPDIR: it was altered or truncated, or TMPDIR is full",
        ) from error
    out.seek(0)


def _identities(age: Any, path: Path) -> list[Any]:
    data = _key_file(path)
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return [age.ssh.Identity.from_buffer(data)]
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except age.IdentityError as error:
        raise UsageError(
            f"{path} is not a key that can decrypt: {error}", hint="use an age or SSH key for --identity"
        ) from None
    if not found:
        raise UsageError(f"{path} contains no key", hint="use an age or SSH key for --identity")
    return found


def _key_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(KEY_FILE_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="give an age or SSH key, or a file that contains one"
        ) from None


def _lines_of(given: str) -> list[str]:
    """A recipient, or those in the file of that name."""
    if given.startswith(("age1", "ssh-")):
        return [given]
    lines = _key_file(Path(given)).decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _recipient(age: Any, text: str) -> Any:
    try:
        kind = age.ssh if text.startswith("ssh-") else age.x25519
        return kind.Recipient.from_str(text)
    except age.RecipientError as error:
        raise UsageError(
            f"{text[:70]!r} is not a recipient: {error}",
            hint="use --encrypt-to age1... or --encrypt-to 'ssh-ed25519 ...'",
        ) from None


def _pyrage() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise FacilityError("encryption requires the package pyrage", hint="pip install 'prismdbg[crypto]'") from error
    return pyrage
