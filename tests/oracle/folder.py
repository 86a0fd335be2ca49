"""Model folders for the twin: safetensors in and out, the reference container, and the rule of
"folder quantised while loading" (docs/arithmetic.md 1). Reads whole tensors; meant for small models."""
import json
import os

import numpy as np

import contract as C

f32 = np.float32
GROUPS = (16, 32, 48, 64, 96, 128, 192, 256)


def widen_bf16(x):
    return (x.astype(np.uint32) << 16).view(f32)


def to_bf16(x):
    b = np.ascontiguousarray(x, f32).view(np.uint32)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)


def _e4m3_table():
    out = np.zeros(256, f32)
    for b in range(256):
        e, m = (b >> 3) & 15, b & 7
        v = m * 2.0 ** -9 if e == 0 else (8 + m) * 2.0 ** (e - 10)
        out[b] = (-v if b & 128 else v) if b & 127 != 127 else np.nan
    return out


E4M3 = _e4m3_table()


class Folder:
    def __init__(self, path):
        self.path = path
        self.config = json.load(open(os.path.join(path, "config.json")))
        self.where = {}
        index = os.path.join(path, "model.safetensors.index.json")
        files = sorted(f for f in os.listdir(path) if f.endswith(".safetensors"))
        placed = json.load(open(index))["weight_map"] if os.path.exists(index) else {}
        for name in files:
            full = os.path.join(path, name)
            with open(full, "rb") as f:
                size = int.from_bytes(f.read(8), "little")
                head = json.loads(f.read(size))
            for tensor, entry in head.items():
                if tensor == "__metadata__" or placed.get(tensor, name) != name:
                    continue
                if tensor in self.where:
                    raise ValueError(f"{tensor} stands in two files of {path}")
                self.where[tensor] = (full, 8 + size, entry)
        self.container = any(n.endswith(".qs") for n in self.where)

    def __contains__(self, name):
        return name in self.where

    def raw(self, name):
        file, base, entry = self.where[name]
        kinds = dict(F32="<f4", BF16="<u2", F16="<f2", U8="u1", I8="i1", F8_E4M3="u1")
        begin, end = entry["data_offsets"]
        with open(file, "rb") as f:
            f.seek(base + begin)
            data = np.frombuffer(f.read(end - begin), kinds[entry["dtype"]])
        return data.reshape(entry["shape"]), entry["dtype"]

    def floats(self, name):
        data, kind = self.raw(name)
        if kind == "BF16":
            data = widen_bf16(data)
        elif kind == "F8_E4M3":
            data = E4M3[data]
            scale, _ = self.raw(name + "_scale_inv")
            rows, columns = data.shape
            wide = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :columns]
            data = data * wide
        return data.astype(f32)


def quantise_matrix(w, bits, group):
    """The converter's rule: integers and scales [O, groups]; group 0 = the whole row."""
    w = np.asarray(w, f32)
    rows, n = w.shape
    size = group or n
    groups = -(-n // size)
    wide = np.zeros((rows, groups * size), f32)
    wide[:, :n] = w
    wide = wide.reshape(rows, groups, size)
    top = f32(2 ** (bits - 1) - 1)
    s = np.maximum(np.abs(wide).max(2) / top, f32(1e-8))
    q = np.clip(np.rint(wide / s[:, :, None]), -top - 1, top).astype(np.int8)
    return q.reshape(rows, -1)[:, :n], s


def pack_int4(q):
    rows, n = q.shape
    nibbles = np.zeros((rows, n + n % 2), np.uint8)
    nibbles[:, :n] = (q + 8).astype(np.uint8)
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)


def unpack(payload, scales, rows, n, name="", declared=None):
    """Payload bytes and scale count -> Quantised, in the reader's order: int8, int4, int2, int3."""
    count, ns = payload.size, scales.size
    payload = np.ascontiguousarray(payload).reshape(rows, -1) if count % rows == 0 else payload
    if count == rows * n and ns == rows:
        return C.Quantised(payload.view(np.int8), scales, 0)
    if count == rows * (-(-n // 2)):
        both = np.empty((rows, payload.shape[1] * 2), np.uint8)
        both[:, 0::2], both[:, 1::2] = payload & 15, payload >> 4
        q = both[:, :n].astype(np.int8) - np.int8(8)
        if ns == rows:
            return C.Quantised(q, scales, 0)
        group = declared or next((g for g in GROUPS if rows * (-(-n // g)) == ns), None)
        if group and rows * (-(-n // group)) == ns:
            return C.Quantised(q, scales, group)
    if count == rows * (-(-n // 4)) and ns == rows:
        q = np.stack([(payload >> (2 * k)) & 3 for k in range(4)], -1).reshape(rows, -1)[:, :n]
        return C.Quantised(q.astype(np.int8) - np.int8(2), scales, 0)
    groups = -(-n // 64)
    if count == rows * groups * 24 and ns == rows * groups:
        data = payload.reshape(rows, groups, 24)
        low = np.stack([(data[..., :16] >> (2 * k)) & 3 for k in range(4)], -1).reshape(rows, groups, 64)
        high = np.unpackbits(data[..., 16:], axis=-1, bitorder="little")
        q = (low | (high << 2)).astype(np.int8) - np.int8(4)
        return C.Quantised(q.reshape(rows, -1)[:, :n], scales, 64)
    raise ValueError(f"{name}: {count} payload bytes and {ns} scales fit no format of [{rows}, {n}]")


class Matrix:
    """A weight as the session holds it: quantised (row dot) or binary32 (dot32)."""

    def __init__(self, quantised=None, values=None):
        self.quantised, self.values = quantised, values

    def apply(self, x, fault=None):
        """x [R, n] -> [R, O]; fault(mask of rows) is told about inputs that are not finite."""
        if self.quantised is None:
            return C.dot32_matrix(np.ascontiguousarray(x, f32), self.values)
        q, s, bad = C.quantise8(x)
        if fault is not None and bad.any():
            fault(bad)
        return self.quantised.rowdot(q, s)

    def embedding(self, ids):
        ids = np.asarray(ids)
        return self.values[ids] if self.quantised is None else self.quantised.embedding(ids)

    def column_sum(self, p, fault=None):
        if self.quantised is None:
            return C.column_fma(p, self.values)
        y, bad = C.column_sum(p, self.quantised)
        if fault is not None and bad.any():
            fault(bad)
        return y

    def take_rows(self, rows):
        if self.quantised is None:
            return Matrix(values=self.values[rows])
        return Matrix(quantised=self.quantised.take_rows(rows))


class Weights:
    """Loads matrices of one folder for one kind of session."""

    def __init__(self, folder, float_session):
        self.folder, self.float_session = folder, float_session
        self.mtp_prefix = f"model.layers.{folder.config['num_hidden_layers']}."

    def vector(self, name):
        return self.folder.floats(name).reshape(-1)

    def router(self, name, rows, n):
        return self.folder.floats(name).reshape(rows, n)

    def bits(self, name):
        eight = name in ("model.embed_tokens.weight", "lm_head.weight") or ".indexer." in name
        return 8 if eight or name.startswith(self.mtp_prefix) else 4

    def _from_floats(self, name, values):
        if self.float_session or self.folder.container:
            return Matrix(values=values)
        bits = self.bits(name)
        q, s = quantise_matrix(values, bits, 0 if bits == 8 else 64)
        return Matrix(quantised=C.Quantised(q, s, 0 if bits == 8 else 64))

    def matrix(self, name, rows, n):
        if name + ".qs" in self.folder:
            payload, scales = self.folder.raw(name)[0], self.folder.floats(name + ".qs")
            q = unpack(payload.reshape(-1), scales.reshape(-1), rows, n, name)
            return Matrix(values=q.float_values()) if self.float_session else Matrix(quantised=q)
        values = self.folder.floats(name)
        if values.shape != (rows, n):
            raise ValueError(f"{name}: shape {values.shape}, expected {(rows, n)}")
        return self._from_floats(name, values)

    def expert(self, prefix, e, projection, rows, n, width):
        """One matrix of one expert, from its own tensor or from the merged ones."""
        name = f"{prefix}{e}.{projection}.weight"
        if name in self.folder:
            return self.matrix(name, rows, n)
        if projection == "down_proj":
            values = self.folder.floats(prefix + "down_proj")[e]
        else:
            both = self.folder.floats(prefix + "gate_up_proj")[e]
            values = both[:width] if projection == "gate_proj" else both[width:]
        return self._from_floats(name, np.ascontiguousarray(values))


def save_safetensors(path, items, meta=None):
    """items: name -> (dtype, shape, bytes), in file order."""
    head, offset = {}, 0
    if meta:
        head["__metadata__"] = meta
    for name, (kind, shape, data) in items.items():
        head[name] = dict(dtype=kind, shape=list(shape), data_offsets=[offset, offset + len(data)])
        offset += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in items.values():
            f.write(data)
