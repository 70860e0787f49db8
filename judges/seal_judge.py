"""model_signing, hashlib, blake3 and numpy judge seals: lists of files, hashes of tensors, and that they can be signed.

usage: seal_judge.py PATH-OF-THE-COMMAND
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import blake3
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from model_signing import hashing, verifying
from model_signing._signing import sign_ec_key, signing
from safetensors.numpy import save_file

COMMAND = str(Path(sys.argv[1]).resolve())
passed = failed = 0


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def run(*words, cwd=None):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, cwd=cwd)


def seal(path, *words):
    done = run("seal", path, "-o", "-", *words)
    check(f"seal {path}: {done.stderr}", done.returncode == 0)
    return json.loads(done.stdout)


def verified(path, manifest, *words):
    done = run("verify", path, "--manifest", manifest, *words, "--json")
    return done.returncode, json.loads(done.stdout)


def of_files(what, path, algorithm="sha256", ignore=()):
    """The list of files, against the one that model_signing makes."""
    words = [] if algorithm == "sha256" else ["--algorithms", algorithm]
    ours = seal(path, "--files-only", *words)
    config = hashing.Config().use_file_serialization(hashing_algorithm=algorithm)
    config.set_ignored_paths(paths=list(ignore))
    theirs = config.hash(path)
    expected = [
        {"name": r.identifier, "algorithm": r.digest.algorithm, "digest": r.digest.digest_hex}
        for r in theirs.resource_descriptors()
    ]
    check(f"{what}: resources", ours["predicate"]["resources"] == expected)
    payload = json_format.MessageToDict(signing.Payload(theirs).statement.pb)
    check(f"{what}: subject", ours["subject"] == payload["subject"])
    for key in ["_type", "predicateType"]:
        check(f"{what}: {key}", ours[key] == payload[key])
    # What they read from ours is what they make themselves.
    read = signing.dsse_payload_to_manifest(ours)
    check(f"{what}: read", read == theirs and read.model_name == theirs.model_name)
    their_args, our_args = theirs.serialization_type, read.serialization_type
    for key in ["method", "hash_type", "allow_symlinks"]:
        check(f"{what}: {key}", their_args[key] == our_args[key])


def of_tensors(what, path, arrays):
    ours = seal(path)["predicate"]["weighbridge"]
    check(f"{what}: names", [t["name"] for t in ours["tensors"]] == sorted(arrays))
    for tensor in ours["tensors"]:
        array = arrays[tensor["name"]]
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        check(f"{what}: {tensor['name']} sha256", tensor["sha256"] == hashlib.sha256(raw).hexdigest())
        check(f"{what}: {tensor['name']} blake3", tensor["blake3"] == blake3.blake3(raw).hexdigest())
        check(f"{what}: {tensor['name']} shape", tensor["shape"] == list(array.shape))
    for file in ours["files"]:
        place = path if file["name"] == "." else path / file["name"]
        raw = place.read_bytes()
        check(f"{what}: file sha256", file["sha256"] == hashlib.sha256(raw).hexdigest())
        check(f"{what}: file blake3", file["blake3"] == blake3.blake3(raw).hexdigest())
        check(f"{what}: file length", file["bytes"] == len(raw))


def sign(manifest, key, target):
    """Signs the manifest as model_signing signs its own."""
    message = json_format.ParseDict(manifest, statement_pb2.Statement())
    payload = types.SimpleNamespace(statement=types.SimpleNamespace(pb=message))
    sign_ec_key.Signer(key).sign(payload).write(target)


def signed(what, path, folder, damage):
    """Signed by their code, held against the model by theirs and by ours; and then the model is damaged."""
    private = ec.generate_private_key(ec.SECP256R1())
    key, public, signature = folder / "key.pem", folder / "public.pem", folder / "model.sig"
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    sign(seal(path), key, signature)

    def theirs():
        try:
            verifying.Config().use_elliptic_key_verifier(public_key=public).verify(path, signature)
            return True
        except ValueError:
            return False

    check(f"{what}: theirs accept", theirs())
    code, report = verified(path, signature)
    check(f"{what}: ours accept", code == 0 and report["manifest"]["signed"])
    check(f"{what}: said aloud", any(f["code"] == "signature-not-checked" for f in report["findings"]))
    damage()
    check(f"{what}: theirs refuse", not theirs())
    check(f"{what}: ours refuse", verified(path, signature)[0] == 1)


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    rng = np.random.default_rng(7)
    arrays = {
        "embed": rng.standard_normal((1000, 1031)).astype(np.float32),
        "bias": rng.standard_normal(17),
        "half": rng.standard_normal((3, 5, 7)).astype(np.float16),
        "count": np.array(3, dtype=np.int64),
        "none": np.zeros((0, 4), dtype=np.float32),
        "mask": rng.integers(0, 2, (9, 9)).astype(bool),
    }
    lone = folder / "m.safetensors"
    save_file(arrays, lone)
    of_files("file", lone)
    of_files("file, blake3", lone, "blake3")
    of_tensors("safetensors", lone, arrays)
    np.savez(folder / "m.npz", **arrays)
    of_tensors("npz", folder / "m.npz", arrays)
    np.savez_compressed(folder / "c.npz", **arrays)
    of_tensors("npz, deflated", folder / "c.npz", arrays)
    for order, dtype in [("C", "<f4"), ("F", "<f4"), ("C", ">f8"), ("F", ">i2")]:
        array = np.array(arrays["embed"] * 100, dtype=dtype, order=order)
        np.save(folder / "a.npy", array)
        of_tensors(f"npy {order} {dtype}", folder / "a.npy", {"value": array})
    for suffix in ["pt", "h5", "npz"]:
        target = folder / f"converted.{suffix}"
        check(f"convert to {suffix}", run("convert", lone, target, "-q").returncode == 0)
        of_tensors(suffix, target, arrays)
        run("seal", lone, "--force", "-q")
        manifest = folder / "m.safetensors.manifest.json"
        check(f"verify {suffix}", verified(target, manifest, "--tensors-only")[0] == 0)
        check(f"verify {suffix}: files are not compared", verified(target, manifest)[0] == 3)

    model = folder / "model"
    for place, content in {
        "model.safetensors": lone.read_bytes(),
        "a.txt": b"a",
        "a/b": b"bb",
        "a/c/d.bin": os.urandom(3 << 20),
        "a-b": b"",
        "Z": b"z",
        "größe 重み": b"\0",
        ".hidden": b"h",
        ".git/config": b"not a part of it",
        ".gitattributes": b"nor this",
        "exact": os.urandom(1 << 20),
        "one more": os.urandom((1 << 20) + 1),
    }.items():
        (model / place).parent.mkdir(parents=True, exist_ok=True)
        (model / place).write_bytes(content)
    of_files("folder", model)
    of_files("folder, blake3", model, "blake3")
    # A manifest inside of the folder leaves itself out, for both.
    inside = model / "inside.json"
    check("inside", run("seal", model, "--files-only", "-o", inside).returncode == 0)
    ours = json.loads(inside.read_text())
    config = hashing.Config().set_ignored_paths(paths=["inside.json"])
    check("inside: read", signing.dsse_payload_to_manifest(ours) == config.hash(model))
    check("inside: ignored", "inside.json" in ours["predicate"]["serialization"]["ignore_paths"])
    check("inside: verified", verified(model, inside)[0] == 0)
    inside.unlink()
    # The name of a folder that is called by another one.
    of_files("dots", model / "a" / "..")
    here = run("seal", ".", "--files-only", "-o", "-", cwd=model)
    check("from within", json.loads(here.stdout) == seal(model, "--files-only"))

    one = folder / "one"
    one.mkdir()
    save_file(arrays, one / "m.safetensors")
    signed("signed file", one / "m.safetensors", folder, lambda: (one / "m.safetensors").write_bytes(b"x"))
    check("a folder of npy", run("convert", lone, folder / "npys", "--to", "npy", "-q").returncode == 0)
    signed("signed folder", folder / "npys", folder, lambda: (folder / "npys" / "extra").write_bytes(b"x"))

print(f"{passed} checks passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
