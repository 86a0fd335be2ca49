#!/usr/bin/python3
"""The whole forward pass of a glm_moe_dsa model in the arithmetic of docs/arithmetic.md, with MTP and the sampler.

usage: model_twin.py MODEL_FOLDER --ids 1,2,3 [--n N --seed S --temperature T --top-p P --top-k K --min-p P]
                     [--ignore-eos] [--float] [--index-topk K] [--draft DEPTH]
Prints one JSON object. Meant for small models: every matrix is held unpacked.
"""
import argparse
import json
import sys

import numpy as np

import contract as C
from folder import Folder, Weights

f32, f64 = np.float32, np.float64
QUANTISE, ROUTER, INDEXER, SCORE, LOGITS = range(5)
SITES = ("quantise", "router", "indexer", "score", "logits")


class Cache:
    """One cached part of one layer: rows of 8-bit groups with scales, or binary32 in a float session."""

    def __init__(self, width, capacity, float_session):
        self.width, self.float_session = width, float_session
        groups = -(-width // 64)
        if float_session:
            self.values = np.zeros((capacity, width), f32)
        else:
            self.q, self.s = np.zeros((capacity, groups, 64), f32), np.zeros((capacity, groups), f32)

    def write(self, positions, x):
        """Returns which rows held a value that is not finite."""
        if self.float_session:
            bad = ~np.isfinite(x)
            self.values[positions] = np.where(bad, f32(0), x)
            return bad.any(-1)
        self.q[positions], self.s[positions], bad = C.quantise8(x)
        return bad


class Layer:
    pass


class Model:
    def __init__(self, path, float_session=False, index_topk=None, capacity=2048):
        self.folder = Folder(path)
        self.c = c = self.folder.config
        self.float_session, self.capacity = float_session, capacity
        w = self.w = Weights(self.folder, float_session)
        self.hidden, self.vocab, self.layers_n = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
        self.heads, self.latent, self.rope = c["num_attention_heads"], c["kv_lora_rank"], c["qk_rope_head_dim"]
        self.nope, self.vd, self.q_rank = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
        self.index_heads, self.index_dim = c["index_n_heads"], c["index_head_dim"]
        self.index_topk = index_topk or c["index_topk"]
        self.eps = f32(f64(c["rms_norm_eps"]))
        self.n_experts = c.get("n_routed_experts") or c.get("num_experts")
        parameters = c.get("rope_parameters") or {}
        theta = parameters.get("rope_theta", c.get("rope_theta"))
        if parameters.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type {parameters['rope_type']} is not a glm_moe_dsa model's")
        self.interleaved = c.get("rope_interleave", True)
        self.index_interleaved = c.get("indexer_rope_interleave", True)
        self.cos, self.sin = C.rope_table(C.rope_frequencies(f64(theta), self.rope), np.arange(capacity))
        self.scale = C.inverse_sqrt(self.nope + self.rope)
        self.index_scale = C.inverse_sqrt(self.index_dim)
        self.embed = w.matrix("model.embed_tokens.weight", self.vocab, self.hidden)
        self.head = (self.embed if c.get("tie_word_embeddings") and "lm_head.weight" not in self.folder
                     else w.matrix("lm_head.weight", self.vocab, self.hidden))
        self.norm = w.vector("model.norm.weight")
        self.full = self._indexer_types()
        self.layers = [self._load_layer(i, self.full[i], self._sparse(i)) for i in range(self.layers_n)]
        self.mtp = None
        m = f"model.layers.{self.layers_n}."
        if m + "eh_proj.weight" in self.folder or m + "eh_proj.weight.qs" in self.folder:
            own = m + "self_attn.indexer.wk.weight" in self.folder
            self.mtp = self._load_layer(self.layers_n, own, True)
            self.mtp.eh = w.matrix(m + "eh_proj.weight", self.hidden, 2 * self.hidden)
            self.mtp.enorm, self.mtp.hnorm = w.vector(m + "enorm.weight"), w.vector(m + "hnorm.weight")
            self.mtp.final = w.vector(m + "shared_head.norm.weight")
        self.tokens, self.faults = [], []
        self.rows = {}  # position -> what is remembered of that row

    def reset(self):
        """Forgets the conversation; cached rows are overwritten before they are read."""
        self.tokens, self.faults, self.rows = [], [], {}

    def _indexer_types(self):
        c, n = self.c, self.layers_n
        types = c.get("indexer_types")
        if types is None:
            pattern = c.get("index_topk_pattern")
            if pattern:
                types = [{"F": "full", "S": "shared"}.get(t, t) for t in pattern]
            else:
                freq, offset = c.get("index_topk_freq") or 1, c.get("index_skip_topk_offset") or 2
                types = ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(n)]
        return [t == "full" for t in types]

    def _sparse(self, i):
        types = self.c.get("mlp_layer_types")
        return types[i] == "sparse" if types else i >= self.c["first_k_dense_replace"]

    def _load_layer(self, i, full, sparse):
        c, w = self.c, self.w
        p, a, m = f"model.layers.{i}.", f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        l = Layer()
        l.i, l.full, l.sparse = i, full, sparse
        l.input_norm, l.post_norm = w.vector(p + "input_layernorm.weight"), w.vector(p + "post_attention_layernorm.weight")
        l.q_a, l.q_a_norm = w.matrix(a + "q_a_proj.weight", self.q_rank, self.hidden), w.vector(a + "q_a_layernorm.weight")
        l.q_b = w.matrix(a + "q_b_proj.weight", self.heads * (self.nope + self.rope), self.q_rank)
        l.kv_a = w.matrix(a + "kv_a_proj_with_mqa.weight", self.latent + self.rope, self.hidden)
        l.kv_a_norm = w.vector(a + "kv_a_layernorm.weight")
        kv_b = w.matrix(a + "kv_b_proj.weight", self.heads * (self.nope + self.vd), self.latent)
        step = self.nope + self.vd
        l.k_heads = [kv_b.take_rows(slice(h * step, h * step + self.nope)) for h in range(self.heads)]
        l.v_heads = [kv_b.take_rows(slice(h * step + self.nope, (h + 1) * step)) for h in range(self.heads)]
        l.o = w.matrix(a + "o_proj.weight", self.hidden, self.heads * self.vd)
        l.c, l.k = (Cache(n, self.capacity, self.float_session) for n in (self.latent, self.rope))
        if full:
            x = a + "indexer."
            l.wq = w.matrix(x + "wq_b.weight", self.index_heads * self.index_dim, self.q_rank)
            l.wk = w.matrix(x + "wk.weight", self.index_dim, self.hidden)
            l.ww = w.matrix(x + "weights_proj.weight", self.index_heads, self.hidden)
            l.k_norm, l.k_bias = w.vector(x + "k_norm.weight"), w.vector(x + "k_norm.bias")
            l.index = Cache(self.index_dim, self.capacity, self.float_session)

        def ffn(q, width):
            return (w.matrix(q + "gate_proj.weight", width, self.hidden), w.matrix(q + "up_proj.weight", width, self.hidden),
                    w.matrix(q + "down_proj.weight", self.hidden, width))

        if not sparse:
            l.dense = ffn(m, c["intermediate_size"])
            return l
        width = c["moe_intermediate_size"]
        l.router = w.router(m + "gate.weight", self.n_experts, self.hidden)
        l.bias = w.vector(m + "gate.e_score_correction_bias")
        shared = c.get("n_shared_experts") or 0
        l.shared = ffn(m + "shared_experts.", width * shared) if shared else None
        l.experts = [(w.expert(m + "experts.", e, "gate_proj", width, self.hidden, width),
                      w.expert(m + "experts.", e, "up_proj", width, self.hidden, width),
                      w.expert(m + "experts.", e, "down_proj", self.hidden, width, width)) for e in range(self.n_experts)]
        return l

    # ------------------------------------------------------------------------------------------------------- a layer

    def _noter(self, positions, layer, site):
        def note(bad):
            bad = np.asarray(bad).reshape(len(positions), -1).any(-1)
            self.faults += [(int(p), layer, site) for p in positions[bad]]
        return note

    def _select(self, l, x, r, positions):
        """Writes the index keys and returns S(p) of every row."""
        note = self._noter(positions, l.i, QUANTISE)
        cos, sin = self.cos[positions], self.sin[positions]
        key = C.layernorm(l.wk.apply(x, note), l.k_norm, l.k_bias)
        key[:, :self.rope] = C.rope(key[:, :self.rope], cos, sin, self.index_interleaved)
        note(l.index.write(positions, key))
        selected = [np.arange(p + 1) for p in positions]
        late = np.flatnonzero(positions >= self.index_topk)
        if not len(late):
            return selected
        note = self._noter(positions[late], l.i, QUANTISE)
        q = l.wq.apply(r[late], note).reshape(len(late), self.index_heads, self.index_dim)
        q[..., :self.rope] = C.rope(q[..., :self.rope], cos[late, None], sin[late, None], self.index_interleaved)
        weight = l.ww.apply(x[late], note)
        if not self.float_session:
            q, s, bad = C.quantise8(q)
            note(bad)
        step = max(1, (1 << 21) // (self.index_heads * (int(positions[-1]) + 1)))
        for begin in range(0, len(late), step):
            part = slice(begin, begin + step)
            top = int(positions[late[part]].max()) + 1
            if self.float_session:
                dots = np.stack([C.dot32_matrix(row, l.index.values[:top]) for row in q[part]]) * self.index_scale
            else:
                dots = C.all_scores((q[part], s[part]), l.index.q[:top], l.index.s[:top], self.index_scale)
            scores = C.index_scores(dots, weight[part], self.index_heads)
            for row, score in zip(late[part], scores):
                score = score[:positions[row] + 1]
                if not np.isfinite(score).all():
                    self.faults.append((int(positions[row]), l.i, INDEXER))
                    score = np.where(np.isfinite(score), score, f32(0))
                selected[row] = np.sort(C.order(score)[:self.index_topk])
        return selected

    def _attention(self, l, x, positions, previous, forced):
        note = self._noter(positions, l.i, QUANTISE)
        cos, sin = self.cos[positions], self.sin[positions]
        r = C.rmsnorm(l.q_a.apply(x, note), l.q_a_norm, self.eps)
        q = l.q_b.apply(r, note).reshape(len(positions), self.heads, self.nope + self.rope)
        q_rope = C.rope(np.ascontiguousarray(q[..., self.nope:]), cos[:, None], sin[:, None], self.interleaved)
        kv = l.kv_a.apply(x, note)
        note(l.c.write(positions, C.rmsnorm(kv[:, :self.latent], l.kv_a_norm, self.eps)))
        note(l.k.write(positions, C.rope(np.ascontiguousarray(kv[:, self.latent:]), cos, sin, self.interleaved)))
        selected = previous
        if l.full:
            selected = self._select(l, x, r, positions)
        elif l is self.mtp:
            selected = [np.arange(p + 1) for p in positions]
        if forced is not None:
            selected = forced
        qa = np.stack([l.k_heads[h].column_sum(q[:, h, :self.nope], note) for h in range(self.heads)], 1)
        if self.float_session:
            z, bad = C.attention_float(qa, q_rope, l.c.values, l.k.values, selected, self.scale)
        else:
            z, quantised, bad = C.attention(qa, q_rope, (l.c.q, l.c.s, l.k.q, l.k.s), selected, self.scale)
            note(quantised)
        self._noter(positions, l.i, SCORE)(bad)
        out = np.concatenate([l.v_heads[h].apply(z[:, h], note) for h in range(self.heads)], 1)
        return l.o.apply(out, note), selected

    def _ffn(self, weights, x, note):
        gate, up, down = weights
        return down.apply(C.swiglu(gate.apply(x, note), up.apply(x, note)), note)

    def _moe(self, l, x, positions):
        c = self.c
        logits = C.dot32_matrix(x, l.router)
        bad = ~np.isfinite(logits)
        if bad.any():
            self._noter(positions, l.i, ROUTER)(bad)
            logits = np.where(bad, f32(0), logits)
        ids, gates = [], []
        for row in logits:
            chosen, g, _ = C.route_sigmoid(row, l.bias, c["num_experts_per_tok"], c["routed_scaling_factor"],
                                           c["norm_topk_prob"], c.get("n_group") or 1, c.get("topk_group") or 1)
            ids.append(chosen)
            gates.append(g)
        ids, gates = np.array(ids), np.array(gates, f32)
        acc = np.zeros(x.shape, f32)
        for e in range(self.n_experts):  # ascending expert id
            row, rank = np.nonzero(ids == e)
            if len(row):
                out = self._ffn(l.experts[e], x[row], self._noter(positions[row], l.i, QUANTISE))
                acc[row] = C.fma32(gates[row, rank][:, None], out, acc[row])
        if l.shared:
            acc = acc + self._ffn(l.shared, x, self._noter(positions, l.i, QUANTISE))
        return acc, ids, gates

    def layer(self, l, h, positions, previous=None, forced=None):
        """One decoder layer for rows at ascending positions: h', selected sets, expert ids, gate weights."""
        y, selected = self._attention(l, C.rmsnorm(h, l.input_norm, self.eps), positions, previous, forced)
        h = h + y
        x = C.rmsnorm(h, l.post_norm, self.eps)
        if not l.sparse:
            return h + self._ffn(l.dense, x, self._noter(positions, l.i, QUANTISE)), selected, None, None
        y, ids, gates = self._moe(l, x, positions)
        return h + y, selected, ids, gates

    # ----------------------------------------------------------------------------------------------------- the model

    def forward(self, ids):
        """Appends tokens; returns the rows' logits. Details stay in self.rows by position."""
        start = len(self.tokens)
        positions = np.arange(start, start + len(ids))
        self.tokens += [int(i) for i in ids]
        h = self.embed.embedding(ids)
        rows = [dict(embedding=h[r], residual=[], selected=[], experts=[], gates=[]) for r in range(len(ids))]
        selected = None
        for l in self.layers:
            h, selected, chosen, gates = self.layer(l, h, positions, selected)
            for r, row in enumerate(rows):
                row["residual"].append(h[r])
                row["selected"].append(selected[r])
                row["experts"].append([] if chosen is None else chosen[r].tolist())
                row["gates"].append([] if gates is None else gates[r])
        final = C.rmsnorm(h, self.norm, self.eps)
        logits = self.head.apply(final, self._noter(positions, self.layers_n, QUANTISE))
        bad = ~np.isfinite(logits)
        if bad.any():
            self._noter(positions, self.layers_n, LOGITS)(bad)
        for r, row in enumerate(rows):
            row["final_norm"], row["logits"] = final[r], logits[r]
            self.rows[start + r] = row
        return logits

    def mtp_rows(self, tokens, hidden, positions, forced=None):
        """Rows of the MTP layer: z, logits, selected, experts, gates."""
        m, positions = self.mtp, np.asarray(positions)
        e = C.rmsnorm(self.embed.embedding(tokens), m.enorm, self.eps)
        g = C.rmsnorm(hidden, m.hnorm, self.eps)
        note = self._noter(positions, m.i, QUANTISE)
        u = m.eh.apply(np.concatenate([e, g], 1), note)
        y, selected, ids, gates = self.layer(m, u, positions, None, forced)
        z = C.rmsnorm(y, m.final, self.eps)
        return dict(z=z, logits=self.head.apply(z, note), selected=selected, experts=ids, gates=gates, y=y)

    def generate(self, n, settings, stops=()):
        """Draws up to n tokens after the rows fed so far; the last one is not fed. Returns ids."""
        out = []
        while len(out) < n:
            token = C.sample(self.rows[len(self.tokens) - 1]["logits"], self.tokens, settings)
            out.append(token)
            if token in stops or len(out) == n:
                break
            self.forward([token])
        return out

    def speculate(self, tokens, first, settings, depth, last=None):
        """Rounds of speculation against the true tokens: `first` = index of the first drawn token. self.rows
        must hold the true rows. Returns a list of rounds (position, drafts, accepted, logits of each draft)."""
        rounds, newest, fed, end = [], first, 0, len(tokens) - 1
        while newest < end:
            rows = list(range(fed, newest))
            out = None
            for begin in range(0, len(rows), 128):
                part = rows[begin:begin + 128]
                out = self.mtp_rows([tokens[p + 1] for p in part], np.stack([self.rows[p]["final_norm"] for p in part]), part)
            fed = newest
            z, logits, selected = out["z"][-1:], out["logits"][-1], out["selected"][-1]
            first_step = {k: out[k][-1:] for k in ("y", "selected", "experts", "gates")}
            context = list(tokens[:newest + 1])
            drafts, seen = [], []
            for k in range(depth):
                if k:
                    selected = np.append(selected, newest - 1 + k)
                    out = self.mtp_rows([drafts[-1]], z, [newest - 1 + k], [selected])
                    z, logits = out["z"], out["logits"][0]
                seen.append(logits)
                drafts.append(C.sample(logits, context, settings))
                context.append(drafts[-1])
            accepted = 0
            while accepted < depth and newest + 1 + accepted <= end and drafts[accepted] == tokens[newest + 1 + accepted]:
                accepted += 1
            rounds.append(dict(position=newest, drafts=drafts, accepted=accepted, logits=seen, first=first_step))
            newest += accepted + 1
        return rounds


def ranges(positions):
    """Ascending positions as the recorded files write them: 0-3,7."""
    text, p = [], [int(v) for v in positions]
    while p:
        n = 1
        while n < len(p) and p[n] == p[0] + n:
            n += 1
        text.append(str(p[0]) if n == 1 else f"{p[0]}-{p[n - 1]}")
        p = p[n:]
    return ",".join(text)


def hash_of(x):
    return C.hex64(C.fnv64(np.ascontiguousarray(x, "<f4").tobytes()))


def hash_of_rows(rows):
    h = 14695981039346656037
    for row in rows:
        h = C.fnv64(np.ascontiguousarray(row, "<f4").tobytes(), h)
    return C.hex64(h)


def bits_of(values):
    return [format(int(v), "08x") for v in np.asarray(values, f32).view(np.uint32)]


def describe(position, row):
    return dict(position=position, residual=[hash_of(h) for h in row["residual"]], final_norm=hash_of(row["final_norm"]),
                logits=hash_of(row["logits"]), selected=[ranges(s) for s in row["selected"]], experts=row["experts"],
                gates=[bits_of(g) for g in row["gates"]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--ids", required=True)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--float", action="store_true")
    parser.add_argument("--index-topk", type=int)
    parser.add_argument("--draft", type=int, default=0)
    a = parser.parse_args()
    prompt = [int(v) for v in a.ids.split(",")]
    model = Model(a.model, a.float, a.index_topk, len(prompt) + a.n + 8)
    eos = model.c.get("eos_token_id", [])
    stops = () if a.ignore_eos else tuple(eos if isinstance(eos, list) else [eos])
    settings = C.Settings(a.temperature, a.top_k, a.top_p, a.min_p, seed=a.seed)
    model.forward(prompt)
    ids = model.generate(a.n, settings, stops)
    last = len(model.tokens) - 1
    out = dict(ids=ids, logits_hash=hash_of_rows(model.rows[p]["logits"] for p in range(len(prompt) - 1, last + 1)),
               logits_all=hash_of_rows(model.rows[p]["logits"] for p in range(last + 1)),
               prompt_ids=prompt, arith_version=C.ARITH_VERSION,
               prompt_last_row=describe(len(prompt) - 1, model.rows[len(prompt) - 1]),
               last_row=describe(last, model.rows[last]))
    if a.draft and model.mtp:
        rounds = model.speculate(prompt + ids, len(prompt), settings, a.draft)
        out["speculation"] = dict(forwards=len(rounds) + 1, accepted=sum(r["accepted"] for r in rounds),
                                  rounds=[{k: r[k] for k in ("position", "drafts", "accepted")} for r in rounds])
    if model.faults:
        row, layer, site = min(model.faults)
        out["fault"] = dict(row=row, layer=layer, site=SITES[site])
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
