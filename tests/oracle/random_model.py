"""Draws a small random glm_moe_dsa model and writes it: as a bf16 checkpoint (also with merged expert tensors), or as
a reference container with mixed kinds of integers. With a tokenizer.json, so that a program can open the folder."""
import json
import os

import numpy as np

import folder as fmt
import wide_tiny

f32 = np.float32
SPECIALS = ("<|endoftext|>", "<|user|>", "<|assistant|>")


def byte_letters():
    """The byte alphabet of byte-level BPE: printable bytes stand for themselves, the others follow from U+0100."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {b: chr(b) for b in kept}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + extra)
            extra += 1
    return letters


def tokenizer_json():
    letters = byte_letters()
    added = [dict(id=256 + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, s in enumerate(SPECIALS)]
    split = dict(type="Split", pattern=dict(Regex=r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+| ?\p{L}+"), behavior="Isolated",
                 invert=False)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=dict(type="Sequence", pretokenizers=[split, level]), post_processor=None,
                decoder=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                           fuse_unk=False, byte_fallback=False, ignore_merges=False,
                           vocab={letters[b]: b for b in range(256)}, merges=[]))


DEFINED = 256 + len(SPECIALS)  # ids that tokenizer.json defines; the rows above are padding


def draw_config(rng, long_prompt):
    def number(low, high):
        return int(rng.integers(low, high + 1))

    layers = number(2, 4)
    dense = number(0, 1)
    types = "F" + "".join(rng.choice(["F", "S"], layers - 1))
    rope = 2 * number(1, 10)
    groups = int(rng.choice([1, 1, 2, 3]))
    experts = max(2, groups * number(1, 5))
    keep = number(1, groups)
    k = number(1, min(4, keep * (experts // groups)))
    topk = 600 if long_prompt else number(2, 9)
    c = wide_tiny.shape(DEFINED + number(0, 9), number(30, 700), layers, dense, types, number(1, 4), number(5, 150),
                        number(8, 200), number(3, 90), rope, number(3, 70), number(1, 5), rope + number(0, 80), topk,
                        experts, k, number(5, 300), number(5, 700), float(rng.choice([1e4, 5e5, 8e6])))
    c.update(n_group=groups, topk_group=keep, norm_topk_prob=bool(rng.integers(0, 4)), dtype="bfloat16",
             routed_scaling_factor=float(rng.choice([1.0, 2.5, 1.827])), rms_norm_eps=float(rng.choice([1e-5, 1e-6])),
             num_nextn_predict_layers=int(rng.random() < 0.7), n_shared_experts=number(1, 2), eos_token_id=[256])
    return c


def draw_weights(rng, c, mtp_indexer):
    w = {}
    for name, s in wide_tiny.tensors(c, bool(c["num_nextn_predict_layers"]), mtp_indexer).items():
        v = rng.standard_normal(s).astype(f32)
        if name.endswith("e_score_correction_bias"):
            v = f32(6.9) + f32(0.1) * v
        elif name.endswith("k_norm.bias"):
            v = f32(0.3) * v
        elif len(s) == 1:
            v = 1 + f32(0.2) * v
        elif name != "model.embed_tokens.weight":
            gain = {"lm_head.weight": 3.0}.get(name, 1.3)
            v = v * f32(gain / np.sqrt(s[1]))
        w[name] = fmt.widen_bf16(fmt.to_bf16(v)).reshape(s) if not name.endswith("correction_bias") else v
    return w


def _common_files(out, config):
    os.makedirs(out, exist_ok=True)
    for name, content in (("config.json", config), ("tokenizer.json", tokenizer_json()),
                          ("tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=SPECIALS[0]))):
        with open(os.path.join(out, name), "w") as f:
            json.dump(content, f)


def write_checkpoint(out, config, w, merged):
    _common_files(out, config)
    w = dict(w)
    if merged:
        for name in [n for n in w if ".experts.0.gate_proj." in n]:
            base = name.split("experts.0.")[0] + "experts."
            gate, up, down = ([w.pop(f"{base}{e}.{p}.weight") for e in range(config["n_routed_experts"])]
                              for p in ("gate_proj", "up_proj", "down_proj"))
            w[base + "gate_up_proj"] = np.stack([np.concatenate(pair) for pair in zip(gate, up)])
            w[base + "down_proj"] = np.stack(down)
    wide_tiny.write_checkpoint(out, config, w)


def pack_low(q, bits):
    """int2 (four a byte) or int3 in groups of 64 (16 bytes of low pairs, 8 bytes of high bits)."""
    rows, n = q.shape
    if bits == 2:
        u = np.zeros((rows, -(-n // 4) * 4), np.uint8)
        u[:, :n] = (q + 2).astype(np.uint8)
        return u[:, 0::4] | (u[:, 1::4] << 2) | (u[:, 2::4] << 4) | (u[:, 3::4] << 6)
    groups = -(-n // 64)
    u = np.zeros((rows, groups * 64), np.uint8)  # unused places hold bits 0, as the reference writes them
    u[:, :n] = (q + 4).astype(np.uint8)
    u = u.reshape(rows, groups, 64)
    low, high = u & 3, np.packbits(u >> 2, axis=-1, bitorder="little")
    low = low[..., 0::4] | (low[..., 1::4] << 2) | (low[..., 2::4] << 4) | (low[..., 3::4] << 6)
    return np.concatenate([low, high], -1).reshape(rows, -1)


def encode(rng, name, v, kinds):
    """(payload, scales) of one matrix in a random kind that the reader recognises as what it is."""
    rows, n = v.shape
    for bits, group in [kinds[int(rng.integers(len(kinds)))] for _ in range(6)] + [(4, 0), (8, 0)]:
        q, s = fmt.quantise_matrix(v, bits, group)
        floor = -(2 ** (bits - 1))
        q = np.where(rng.random(q.shape) < 0.01, floor, q).astype(np.int8)  # values the converter never writes
        payload = q.view(np.uint8) if bits == 8 else fmt.pack_int4(q) if bits == 4 else pack_low(q, bits)
        payload = np.ascontiguousarray(payload).reshape(-1)
        if s.size == 1 and payload.size == rows * (-(-n // 256)) * 98:
            continue  # would be read as a lattice format
        try:
            back = fmt.unpack(payload, s.reshape(-1), rows, n, name)
        except ValueError:
            continue
        read_as = group if group and s.shape[1] > 1 else n  # one scale a row is a row's scale
        if np.array_equal(back.q, q) and back.scales.shape == s.shape and (back.group or n) == read_as:
            return payload, s
    raise ValueError(f"{name}: no kind fits [{rows}, {n}]")


def write_container(rng, out, config, w, low_bits, some_float):
    _common_files(out, config)
    four = [(4, 16), (4, 32), (4, 64), (4, 0), (4, 128), (4, 256)]
    items, n = {}, config["num_hidden_layers"]
    for name, v in w.items():
        eight = (name in ("model.embed_tokens.weight", "lm_head.weight") or ".indexer." in name
                 or name.startswith(f"model.layers.{n}."))
        stays = some_float and not eight and ".experts." not in name and rng.random() < 0.15
        if v.ndim == 1 or name.endswith("mlp.gate.weight") or stays:
            items[name] = ("F32", v.shape, v.astype("<f4").tobytes())
            continue
        kinds = [(8, 0)] if eight else four + ([(8, 0), (3, 64), (2, 0)] if low_bits else [])
        payload, s = encode(rng, name, v, kinds)
        items[name] = ("U8", (payload.size,), payload.tobytes())
        items[name + ".qs"] = ("F32", (s.size,), s.astype("<f4").tobytes())
    ordered = dict(sorted(items.items(), key=lambda item: (item[1][0] != "F32", item[0])))
    fmt.save_safetensors(os.path.join(out, "out-00000.safetensors"), ordered)


def plant_fault(w, token):
    """Channel 0 is zero in every embedding but the token's; layer 0 multiplies it by more than binary32 holds."""
    embedding = w["model.embed_tokens.weight"]
    embedding[:, 0] = 0
    embedding[token, 0] = 64
    w["model.layers.0.input_layernorm.weight"][0] = fmt.widen_bf16(fmt.to_bf16(np.array([3e38], f32)))[0]


def draw(seed, out, fault_token=None):
    """Writes the model of a seed; returns a description with prompt and number of new tokens."""
    rng = np.random.default_rng(seed)
    long_prompt = bool(rng.random() < 0.25)
    config = draw_config(rng, long_prompt)
    kind = str(rng.choice(["checkpoint", "merged checkpoint", "container", "container of all kinds"]))
    mtp_indexer = bool(rng.random() < 0.7) or "checkpoint" in kind
    w = draw_weights(rng, config, mtp_indexer)
    if fault_token is not None:
        plant_fault(w, fault_token)
    some_float = kind == "container of all kinds" and bool(rng.random() < 0.5)
    if "checkpoint" in kind:
        write_checkpoint(out, config, w, kind.startswith("merged"))
    else:
        write_container(rng, out, config, w, "all kinds" in kind, some_float)
    length = int(rng.integers(260, 560)) if long_prompt else int(rng.integers(1, 25))
    prompt = [int(v) for v in rng.integers(0, DEFINED, length)]
    return dict(kind=kind, some_float=some_float, mtp=bool(config["num_nextn_predict_layers"]), mtp_indexer=mtp_indexer,
                prompt=prompt, n=int(rng.integers(4, 13)), sampling_seed=int(rng.integers(0, 2 ** 63)), config=config)
