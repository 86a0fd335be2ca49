#!/usr/bin/python3
"""The embedded demo model is, tensor by tensor, what an independent converter made of the same checkpoint.

usage: demo_manifest_test.py CONTAINER MANIFEST.txt
       demo_manifest_test.py --write CONVERTERS_MANIFEST.json MANIFEST.txt   (writes the text form of the converter's manifest)
"""
import hashlib
import json
import os
import sys


def hashes_of(folder):
    """Name -> SHA-256 of the bytes of every entry of every safetensors file."""
    out, twice = {}, []
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
        data = open(os.path.join(folder, file), "rb").read()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name == "__metadata__":
                continue
            if name in out:
                twice.append(f"{name} stands in two files")
            first, end = entry["data_offsets"]
            out[name] = hashlib.sha256(data[begin + first:begin + end]).hexdigest()
    return out, twice


def read_manifest(path):
    """Name -> (hash of the payload, hash of the scales or None)."""
    lines = (line.split() for line in open(path, encoding="utf-8") if not line.startswith("#"))
    return {name: (payload, None if scales == "-" else scales) for name, payload, scales in lines}


def write(source, path):
    made = json.load(open(source, encoding="utf-8"))
    with open(path, "w", encoding="utf-8") as out:
        out.write("# Written by tests/house/demo_manifest_test.py --write from the manifest of an independent converter.\n"
                  "# name, SHA-256 of the payload, SHA-256 of the scales (- where there are none)\n")
        for tensor in made["tensors"] + made["optional"]:
            out.write(f"{tensor['name']} {tensor['sha256']} {tensor.get('qs_sha256', '-')}\n")


def differences(folder, manifest):
    have, out = hashes_of(folder)
    wanted = {}
    for name, (payload, scales) in manifest.items():
        wanted[name] = payload
        if scales:
            wanted[name + ".qs"] = scales
    out += [f"{name} is missing" for name in sorted(wanted.keys() - have.keys())]
    out += [f"{name} is not in the manifest" for name in sorted(have.keys() - wanted.keys())]
    out += [f"{name} has {have[name]}, expected {wanted[name]}" for name in sorted(wanted.keys() & have.keys()) if have[name] != wanted[name]]
    return out, len(wanted)


def main():
    if sys.argv[1] == "--write":
        write(*sys.argv[2:])
        return 0
    manifest = read_manifest(sys.argv[2])
    out, compared = differences(sys.argv[1], manifest)
    for sentence in out[:20]:
        print(sentence)
    print(f"{len(manifest)} tensors, {compared} hashes, {len(out)} differences")
    return 1 if out or not manifest else 0


if __name__ == "__main__":
    sys.exit(main())
