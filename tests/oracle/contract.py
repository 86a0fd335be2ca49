"""Second, independent implementation of docs/arithmetic.md (version 1), one operation at a time, in numpy.

It was written from that page alone, by someone who had not read the engine, and it shares no code with it.
Every function works on whole arrays; the last axis is the vector the page speaks of. All results are equal to the
page bit for bit on any machine with IEEE 754 arithmetic: nothing here leaves the order of a sum to a library.
"""
import numpy as np

ARITH_VERSION = 1
f32, f64, i64, u64 = np.float32, np.float64, np.int64, np.uint64
np.seterr(all="ignore")


def F(text):
    """A binary32 constant written as a hexadecimal float."""
    value = float.fromhex(text)
    assert float(f32(value)) == value
    return f32(value)


def pad_to(x, period):
    """x with +0 appended up to a multiple of `period` (page 0: the padding takes part)."""
    x = np.asarray(x)
    short = -x.shape[-1] % period
    if not short:
        return x
    return np.concatenate([x, np.zeros(x.shape[:-1] + (short,), x.dtype)], -1)


# ---------------------------------------------------------------------------------------------- fma, one rounding

_LOW29, _HALF = i64(0x1FFFFFFF), i64(0x10000000)
_ABS = i64(0x7FFFFFFFFFFFFFFF)
_TINY = u64(np.array(2.0 ** -125, f64).view(i64))


def two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def round_to_odd_sum(a, b):
    """a + b in binary64, inexact results rounded to the neighbour with an odd last bit."""
    s, e = two_sum(a, b)
    bits = np.ascontiguousarray(s).view(i64)
    move = (e != 0) & ((bits & 1) == 0) & np.isfinite(s)
    up = (e > 0) == (s > 0)  # away from zero: the bits grow
    return np.where(move, bits + np.where(up, 1, -1), bits).view(f64)


def fma32(a, b, c):
    """fma(a, b, c) of binary32 values with one rounding.

    The product of two binary32 is exact in binary64. The binary64 sum is rounded once more on the way to binary32;
    that is wrong only where it stands exactly between two binary32 values, or below the normal range. Those few
    elements are done again through rounding to odd, which makes the second rounding harmless.
    """
    product = np.multiply(a, b, dtype=f64)
    c = np.asarray(c, f64)
    total = np.atleast_1d(product + c)
    result = total.astype(f32)
    bits = total.view(i64)
    doubt = ((bits & _LOW29) == _HALF) | (((bits & _ABS) - 1).view(u64) < _TINY)
    if doubt.any():
        shape = total.shape
        p, q = np.broadcast_to(product, shape)[doubt], np.broadcast_to(c, shape)[doubt]
        result[doubt] = round_to_odd_sum(p, q).astype(f32)
    return result if np.ndim(product) or np.ndim(c) else result[0]


def _split(a):
    t = a * f64(134217729.0)
    high = t - (t - a)
    return high, a - high


def fma64(a, b, c):
    """fma of binary64 values with one rounding, for products and sums far from the ends of the range.

    Boldo and Melquiond's emulation: exact product, exact sums, the two small parts added with rounding to odd.
    """
    a, b, c = np.broadcast_arrays(*(np.asarray(v, f64) for v in (a, b, c)))
    uh = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    ul = al * bl - (((uh - ah * bh) - al * bh) - ah * bl)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    return vh + round_to_odd_sum(tl, vl)


# ------------------------------------------------------------------------------------------ binary64, page section 2

L1, L2 = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
PI = float.fromhex("0x1.921fb54442d18p+1")


def ln64(x):
    x = np.asarray(x, f64)
    m, e = np.frexp(x)  # 0.5 <= m < 1
    m, k = m * 2.0, e.astype(f64) - 1.0
    big = m >= float.fromhex("0x1.6a09e667f3bcdp+0")
    m, k = np.where(big, m / 2.0, m), np.where(big, k + 1.0, k)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = f64(2.0) / f64(23.0)
    for i in range(21, 2, -2):
        p = fma64(p, z, f64(2.0) / f64(i))
    y = fma64(s * z, p, s + s)
    return fma64(k, L1, fma64(k, L2, y))


_FACTORIAL = [1.0]
for _i in range(1, 18):
    _FACTORIAL.append(_FACTORIAL[-1] * _i)  # 17! < 2^53: exact


def exp64(x):
    x = np.asarray(x, f64)
    low = x < -708.0
    x = np.where(x > 708.0, 708.0, np.where(low, 0.0, x))
    n = np.rint(x * float.fromhex("0x1.71547652b82fep+0"))
    t = fma64(n, -L1, x)
    t = fma64(n, -L2, t)
    p = np.full(x.shape, 1.0 / _FACTORIAL[13])
    for i in range(12, -1, -1):
        p = fma64(p, t, 1.0 / _FACTORIAL[i])
    return np.where(low, 0.0, np.ldexp(p, n.astype(np.int32)))


def pow64(a, b):
    return exp64(np.asarray(b, f64) * ln64(a))


def sincos64(x):
    x = np.asarray(x, f64)
    n = np.rint(x * float.fromhex("0x1.45f306dc9c883p-1"))
    r = fma64(n, -float.fromhex("0x1.921fb54442d18p+0"), x)
    r = fma64(n, -float.fromhex("0x1.1a62633145c07p-54"), r)
    z = r * r

    def e(i):
        return (-1.0 if i % 4 in (2, 3) else 1.0) / _FACTORIAL[i]

    p = np.full(x.shape, e(17))
    for i in range(15, 2, -2):
        p = fma64(p, z, e(i))
    sine = fma64(r * z, p, r)
    q = np.full(x.shape, e(16))
    for i in range(14, 1, -2):
        q = fma64(q, z, e(i))
    cosine = fma64(z, q, 1.0)
    quadrant = n.astype(i64) % 4
    return (np.choose(quadrant, [sine, cosine, -sine, -cosine]),
            np.choose(quadrant, [cosine, -sine, -cosine, sine]))


# --------------------------------------------------------------------------------- binary32 reductions and functions


def _lanes(x):
    x = pad_to(np.asarray(x, f32), 32)
    return x.reshape(x.shape[:-1] + (x.shape[-1] // 32, 32))


def _fold(acc):
    for m in (16, 8, 4, 2, 1):
        acc = acc[..., :m] + acc[..., m:2 * m]
    return acc[..., 0]


def dot32(x, w):
    """dot32 along the last axis; the other axes broadcast."""
    x, w = _lanes(x), _lanes(w)
    shape = np.broadcast_shapes(x.shape[:-2], w.shape[:-2]) + (32,)
    acc = np.zeros(shape, f32)
    for i in range(x.shape[-2]):
        acc = fma32(x[..., i, :], w[..., i, :], acc)
    return _fold(acc)


def dot32_matrix(x, w):
    """[R, n] and [O, n] -> [R, O], in pieces that stay in the processor's caches."""
    out = np.empty((x.shape[0], w.shape[0]), f32)
    step = max(1, (1 << 15) // (32 * max(1, min(x.shape[0], 32))))
    for r in range(0, x.shape[0], 32):
        for o in range(0, w.shape[0], step):
            out[r:r + 32, o:o + step] = dot32(x[r:r + 32, None, :], w[None, o:o + step, :])
    return out


def sum32(x):
    x = _lanes(x)
    acc = np.zeros(x.shape[:-2] + (32,), f32)
    for i in range(x.shape[-2]):
        acc = acc + x[..., i, :]
    return _fold(acc)


def rmsnorm(x, w, eps):
    x = np.asarray(x, f32)
    v = dot32(x, x) / f32(x.shape[-1]) + f32(eps)
    r = f32(1) / np.sqrt(v)
    return (x * r[..., None]) * w


def layernorm(x, w, b, eps=1e-6):
    x = np.asarray(x, f32)
    mean = sum32(x) / f32(x.shape[-1])
    d = x - mean[..., None]
    v = dot32(d, d) / f32(x.shape[-1]) + f32(eps)
    r = f32(1) / np.sqrt(v)
    return fma32(d * r[..., None], w, b)


_EXP = [F(c) for c in ("0x1.1239e2p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "0x1p+0", "0x1p+0")]


def exp32(x):
    x = np.asarray(x, f32)
    low, nan = x < -87, np.isnan(x)
    x = np.where(x > 87, f32(87), np.where(low | nan, f32(0), x))
    n = np.rint(x * F("0x1.715476p+0"))
    t = fma32(n, -F("0x1.62e4p-1"), x)
    t = fma32(n, -F("0x1.7f7d1cp-20"), t)
    p = np.full(x.shape, F("0x1.6a2434p-10"))
    for c in _EXP:
        p = fma32(p, t, c)
    y = (p.astype(f64) * np.ldexp(1.0, n.astype(np.int32))).astype(f32)  # exact: the result is normal
    return np.where(nan, f32(np.nan), np.where(low, f32(0), y))


def sigmoid(x):
    return f32(1) / (f32(1) + exp32(-np.asarray(x, f32)))


def swiglu(g, u):
    return (g / (f32(1) + exp32(-g))) * u


def swiglu_gpt_oss(g, u):
    g = np.minimum(g, f32(7))
    u = np.clip(u, f32(-7), f32(7))
    return (g / (f32(1) + exp32(-(f32(1.702) * g)))) * (u + f32(1))


def inverse_sqrt(d, times=1.0):
    """1/sqrt(d) in binary64, times the YaRN factor, rounded once."""
    return f32((1.0 / np.sqrt(f64(d))) * times)


# ------------------------------------------------------------------------------------------------------------- rope


def rope_frequencies(theta, d):
    j = np.arange(d // 2, dtype=f64)
    return pow64(f64(theta), -((2.0 * j) / f64(d)))


def yarn_m(c, factor):
    return 1.0 if factor <= 1 else float(0.1 * f64(c) * ln64(f64(factor)) + 1.0)


def yarn_frequencies(theta, d, factor, original, fast=32, slow=1, truncate=True):
    def corr(beta):
        return (f64(d) * ln64(f64(original) / (2.0 * PI * f64(beta)))) / (2.0 * ln64(f64(theta)))

    low, high = corr(fast), corr(slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0.0), min(high, d - 1.0)
    if low == high:
        high = high + 0.001
    j = np.arange(d // 2, dtype=f64)
    r = np.clip((j - low) / (high - low), 0.0, 1.0)
    f = rope_frequencies(theta, d)
    return f * (1.0 - r) + (f / f64(factor)) * r


def rope_table(frequencies, positions, times=1.0):
    """cos and sin as binary32, [positions, d/2]."""
    angle = np.asarray(positions, f64)[:, None] * frequencies[None, :]
    sine, cosine = sincos64(angle)
    return (cosine * times).astype(f32), (sine * times).astype(f32)


def rope(x, cos, sin, interleaved):
    """Rotates the last axis (d numbers); cos and sin broadcast against the pairs."""
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    a2, b2 = fma32(a, cos, -(b * sin)), fma32(b, cos, a * sin)
    y = np.empty_like(x)
    if interleaved:
        y[..., 0::2], y[..., 1::2] = a2, b2
    else:
        y[..., :half], y[..., half:] = a2, b2
    return y


# --------------------------------------------------------------------------------- 8-bit products, page section 1


def quantise8(x):
    """x [.., n] -> q [.., groups, 64] (integers held as binary32), s [.., groups], fault [..] (a NaN or infinity)."""
    x = np.asarray(x, f32)
    bad = ~np.isfinite(x)
    fault = bad.any(-1)
    if fault.any():
        x = np.where(bad, f32(0), x)
    x = pad_to(x, 64)
    x = x.reshape(x.shape[:-1] + (x.shape[-1] // 64, 64))
    a = np.abs(x).max(-1)
    zero = a < f32(2.0 ** -60)
    r = f32(127) / np.where(zero, f32(1), a)
    q = np.clip(np.rint(x * r[..., None]), f32(-127), f32(127))
    q = np.where(zero[..., None], f32(0), q) + f32(0)  # no -0: these are integers
    return q, np.where(zero, f32(0), a / f32(127)), fault


def block_of(group):
    """Weight block for a scale group; 0 stands for one scale per row."""
    if group in (0, 64, 128, 256):
        return 64
    if group in (16, 32):
        return group
    raise ValueError(f"scale group {group} is refused")


def accumulate(isum, c, per_segment):
    """isum and c: lists over blocks. Segments of 512 inputs."""
    total = np.zeros(np.shape(isum[0]), f32)
    for start in range(0, len(isum), per_segment):
        acc = np.zeros(np.shape(isum[0]), f32)
        for k in range(start, min(start + per_segment, len(isum))):
            acc = fma32(isum[k], c[k], acc)
        total = total + acc
    return total


class Quantised:
    """A weight matrix of integers [O, n] with scales [O, groups]; group 0 = the whole row."""

    def __init__(self, q, scales, group):
        self.q, self.group = np.asarray(q, np.int8), group
        self.rows, self.n = self.q.shape
        size = group or self.n
        self.scales = np.asarray(scales, f32).reshape(self.rows, -(-self.n // size))
        self.block = block_of(group)
        blocks = -(-self.n // self.block)
        wide = np.zeros((self.rows, blocks * self.block), f32)
        wide[:, :self.n] = self.q
        self._w = np.ascontiguousarray(wide.reshape(self.rows, blocks, self.block).transpose(1, 2, 0))
        which = np.arange(blocks) * self.block // size
        self._s = np.ascontiguousarray(self.scales[:, which].T)  # [blocks, O]

    def float_values(self):
        which = np.arange(self.n) // (self.group or self.n)
        return self.q.astype(f32) * self.scales[:, which]

    def embedding(self, ids):
        which = np.arange(self.n) // (self.group or self.n)
        return self.q[ids].astype(f32) * self.scales[ids][:, which]

    def take_rows(self, rows):
        return Quantised(self.q[rows], self.scales[rows], self.group)

    def rowdot(self, q, s):
        """q [R, groups, 64], s [R, groups] of quantise8 -> [R, O]."""
        out = np.empty((q.shape[0], self.rows), f32)
        blocks = self._w.shape[0]
        which = np.arange(blocks) * self.block // 64
        step = max(1, (1 << 22) // max(1, blocks * self.rows))
        for r in range(0, q.shape[0], step):
            x = q[r:r + step].reshape(-1, q.shape[1] * 64)[:, :blocks * self.block]
            x = x.reshape(-1, blocks, self.block).transpose(1, 0, 2)
            # integers below 2^24: exact in any order, so a library may do it
            isum = np.matmul(x, self._w)
            c = [self._s[k][None, :] * s[r:r + step, which[k]][:, None] for k in range(blocks)]
            out[r:r + step] = accumulate(list(isum), c, 512 // self.block)
        return out


def column_sum(p, w):
    """Column sum: p [.., T], w a Quantised of T rows -> y [.., n], fault."""
    p = np.asarray(p, f32)
    y = np.zeros(p.shape[:-1] + (w.n,), f32)
    fault = np.zeros(p.shape[:-1], bool)
    size = w.group or w.n
    rows = pad_to(w.q.T.astype(f32), 64).reshape(w.n, -1, 64)  # [n, groups of t, 64]
    for g in range(w.scales.shape[1]):
        columns = slice(g * size, min((g + 1) * size, w.n))
        q, s, bad = quantise8(p * w.scales[:, g])
        fault |= bad
        isum = [np.matmul(q[..., k, :], rows[columns, k].T) for k in range(q.shape[-2])]
        y[..., columns] = accumulate(isum, [s[..., k, None] for k in range(q.shape[-2])], 8)
    return y, fault


def column_fma(p, w):
    """The same product with a float matrix w [T, n]: y_c = fma(w_tc, p_t, acc), t ascending from +0."""
    acc = np.zeros(p.shape[:-1] + (w.shape[1],), f32)
    for t in range(w.shape[0]):
        acc = fma32(w[t], p[..., t, None], acc)
    return acc


# -------------------------------------------------------------------------------------- attention, page section 3


def merge_blocks(m, s, z, present, sink=None):
    """m, s [.., B], z [.., B, L], present [.., B] -> [.., L]."""
    top = np.where(present, m, -np.inf).max(-1).astype(f32)
    if sink is not None:
        top = np.maximum(top, sink)
    total = np.zeros(top.shape, f32)
    out = np.zeros(top.shape + (z.shape[-1],), f32)
    for b in range(m.shape[-1]):
        here = present[..., b]
        f = exp32(np.where(here, m[..., b] - top, f32(0)))
        total = np.where(here, fma32(s[..., b], f, total), total)
        out = np.where(here[..., None], fma32(z[..., b, :], f[..., None], out), out)
    if sink is not None:
        total = total + exp32(sink - top)
    return out / total[..., None]


def _blocks_of_selection(selected):
    """Lists of ascending positions -> ranks padded to blocks of 256: index [R, B, 256], present [R, B, 256]."""
    blocks = max(-(-len(s) // 256) for s in selected)
    index = np.zeros((len(selected), blocks * 256), i64)
    there = np.zeros(index.shape, bool)
    for r, s in enumerate(selected):
        index[r, :len(s)] = s
        there[r, :len(s)] = True
    shape = (len(selected), blocks, 256)
    return index.reshape(shape), there.reshape(shape)


def _softmax_parts(scores, index, there):
    """scores [R, H, T] -> p [R, H, B, 256], m [R, H, B], s [R, H, B], present [R, H, B]."""
    rows, blocks = index.shape[:2]
    flat = np.take_along_axis(scores, index.reshape(rows, 1, -1), -1)
    flat = flat.reshape(flat.shape[:2] + (blocks, 256))
    there = there[:, None]
    m = np.where(there, flat, -np.inf).max(-1).astype(f32)
    present = np.broadcast_to(there.any(-1), m.shape)
    m = np.where(present, m, f32(0))
    p = np.where(there, exp32(np.where(there, flat - m[..., None], f32(0))), f32(0))
    return p, m, sum32(p), present


def all_scores(query, keys, scales, scale):
    """Row dots of cached rows with quantised queries: query = (q [R,H,G,64], s), keys [T,G,64] -> [R,H,T]."""
    q, s = query
    groups = keys.shape[1]
    isum = [np.matmul(q[:, :, k], keys[:, k].T) for k in range(groups)]
    c = [scales[None, None, :, k] * s[:, :, k, None] for k in range(groups)]
    return accumulate(isum, c, 8) * scale


def attention(qa, qrope, cache, selected, scale):
    """Quantised attention. qa [R,H,L], qrope [R,H,D]; cache = (cq [T,GL,64], cs, kq [T,GD,64], ks);
    selected: ascending positions per row. Returns z [R,H,L], faults (quantise [R], score [R])."""
    cq, cs, kq, ks = cache
    latent = qa.shape[-1]
    query = np.concatenate([pad_to(qa, 64), pad_to(qrope, 64)], -1)
    q, s, fault = quantise8(query)
    keys, scales = np.concatenate([cq, kq], 1), np.concatenate([cs, ks], 1)
    z = np.empty(qa.shape, f32)
    score_fault = np.zeros(qa.shape[0], bool)
    qfault = fault.any(-1)
    longest = max(len(p) for p in selected)
    step = max(1, (1 << 23) // (longest * cq.shape[1] * 64))
    for r in range(0, qa.shape[0], step):
        part = selected[r:r + step]
        top = max(int(p[-1]) for p in part) + 1
        scores = all_scores((q[r:r + step], s[r:r + step]), keys[:top], scales[:top], scale)
        index, there = _blocks_of_selection(part)
        bad = ~np.isfinite(scores)
        if bad.any():
            chosen = np.take_along_axis(bad, index.reshape(len(part), 1, -1), -1)
            score_fault[r:r + step] = (chosen & there.reshape(len(part), 1, -1)).any((1, 2))
            scores = np.where(bad, f32(0), scores)
        p, m, sums, present = _softmax_parts(scores, index, there)
        zb = np.empty(p.shape[:3] + (cq.shape[1], 64), f32)
        for g in range(cq.shape[1]):
            a = p * cs[:, g][index][:, None]
            aq, as_, bad = quantise8(a)
            qfault[r:r + step] |= bad.any((1, 2))
            values = cq[:, g][index]  # [R, B, 256, 64]
            values = values.reshape(values.shape[:2] + (4, 64, 64))
            isum = np.matmul(aq.transpose(0, 2, 3, 1, 4), values)  # [R, B, 4, H, 64]
            isum = isum.transpose(2, 0, 3, 1, 4)
            zb[:, :, :, g] = accumulate(list(isum), [as_[..., k, None] for k in range(4)], 8)
        zb = zb.reshape(zb.shape[:3] + (-1,))[..., :latent]
        z[r:r + step] = merge_blocks(m, sums, zb, present)
    return z, qfault, score_fault


def attention_float(qa, qrope, c, k, selected, scale):
    """Float session: c [T, L], k [T, D] binary32."""
    rows, heads, latent = qa.shape
    z = np.empty(qa.shape, f32)
    score_fault = np.zeros(rows, bool)
    query, keys = np.concatenate([qa, qrope], -1), np.concatenate([c, k], -1)
    for r in range(rows):
        chosen = np.asarray(selected[r])
        scores = np.zeros((1, heads, keys.shape[0]), f32)
        scores[0][:, chosen] = dot32_matrix(query[r], keys[chosen]) * scale
        bad = ~np.isfinite(scores)
        if bad.any():
            score_fault[r] = True
            scores = np.where(bad, f32(0), scores)
        index, there = _blocks_of_selection([chosen])
        p, m, sums, present = _softmax_parts(scores, index, there)
        zb = np.zeros(p.shape[:3] + (latent,), f32)[0]  # [H, B, L]
        values = np.where(there[0][..., None], c[index[0]], f32(0))  # [B, 256, L]
        for t in range(min(256, len(chosen))):
            live = there[0][:, t]
            zb[:, live] = fma32(p[0][:, live, t, None], values[live, t], zb[:, live])
        z[r] = merge_blocks(m, sums, zb[None], present)[0]
    return z, score_fault


def order(values):
    """The total order: value descending, then index ascending."""
    return np.argsort(-np.asarray(values), kind="stable")


def index_scores(dots, w, index_heads):
    """dots [R, H, T] already times d^-0.5; w [R, H] unscaled -> [R, T]."""
    w = w * inverse_sqrt(index_heads)
    acc = np.zeros((dots.shape[0], dots.shape[2]), f32)
    for h in range(dots.shape[1]):
        x = np.where(dots[:, h] > 0, dots[:, h], f32(0))
        acc = fma32(w[:, h, None], x, acc)
    return acc


# ----------------------------------------------------------------------------- routers and experts, page section 4


def limit_groups(choice, groups, keep):
    """choice [E]: the mask of experts that stay, and the groups kept in ascending order."""
    each = choice.reshape(groups, -1)
    ranked = np.sort(each, 1)[:, ::-1]
    score = ranked[:, 0] + ranked[:, 1] if ranked.shape[1] > 1 else ranked[:, 0]
    kept = np.sort(order(score)[:keep])
    mask = np.zeros(each.shape, bool)
    mask[kept] = True
    return mask.reshape(-1), kept


def choose(values, k, mask=None):
    ranked = order(values)
    if mask is not None:
        ranked = ranked[mask[ranked]]
    return ranked[:k]


def sequential_sum(values):
    total = f32(0)
    for v in values:
        total = total + f32(v)
    return total


def route_sigmoid(logits, bias, k, factor, norm=True, groups=1, keep=1):
    """One row of logits -> chosen ids in rank order, weights, s."""
    s = sigmoid(logits)
    choice = s + bias
    mask = limit_groups(choice, groups, keep)[0] if groups > 1 else None
    chosen = choose(choice, k, mask)
    g = s[chosen]
    if norm:
        g = g / (sequential_sum(g) + f32(1e-20))
    return chosen, g * f32(factor), s


def route_softmax(logits, k, factor=1.0, after=False, norm=False):
    chosen = choose(logits, k)
    if after:
        e = exp32(logits[chosen] - logits[chosen].max())
        g = e / sequential_sum(e)
    else:
        e = exp32(logits - logits.max())
        g = e[chosen] / sum32(e)
    if norm:
        g = g / sequential_sum(g)
    return chosen, g * f32(factor)


# -------------------------------------------------------------------------------------------- sampler, page section 5


def philox(key, counter):
    """Philox4x32-10: key (2 words), counter (4 arrays of words) -> 4 arrays of words."""
    k0, k1 = u64(key[0]), u64(key[1])
    c = [np.asarray(v, u64) for v in counter]
    low = u64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * u64(0xD2511F53), c[2] * u64(0xCD9E8D57)
        c = [(b >> u64(32)) ^ c[1] ^ k0, b & low, (a >> u64(32)) ^ c[3] ^ k1, a & low]
        k0, k1 = (k0 + u64(0x9E3779B9)) & low, (k1 + u64(0xBB67AE85)) & low
    return c


def race_e(seed, position, ids):
    """E of each id for the token at index `position`."""
    ids = np.asarray(ids, u64)
    zero = np.zeros(ids.shape, u64)
    words = philox((seed & 0xFFFFFFFF, seed >> 32), (zero + u64(position), ids >> u64(2), zero + u64(1), zero))
    w = np.choose((ids & u64(3)).astype(i64), words)
    return -ln64((w.astype(f64) + 0.5) * 2.0 ** -32)


class Settings:
    def __init__(self, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition=1.0, frequency=0.0, presence=0.0,
                 last_n=0, bias=(), seed=0, defined=None):
        self.temperature, self.top_k, self.top_p, self.min_p = temperature, top_k, top_p, min_p
        self.repetition, self.frequency, self.presence, self.last_n = repetition, frequency, presence, last_n
        self.bias, self.seed, self.defined = bias, seed, defined  # defined: ids that may be drawn (None: all)


def sample(logits, context, settings):
    """The id drawn after `context` (a list of ids: all tokens before it)."""
    s = settings
    l = np.asarray(logits, f32).astype(f64)
    for token, b in s.bias:
        l[token] = l[token] + b
    if s.last_n and (s.repetition != 1.0 or s.frequency or s.presence):
        recent = context[-s.last_n:]
        for token in sorted(set(recent)):
            c = float(recent.count(token))
            v = l[token] / s.repetition if l[token] > 0 else l[token] * s.repetition
            l[token] = v - (c * s.frequency + s.presence)
    ids = np.arange(len(l)) if s.defined is None else np.asarray(s.defined)
    l = l[ids]
    if s.temperature < 2.0 ** -10:
        return int(ids[order(l)[0]])
    l = l / s.temperature
    rank = order(l)
    if s.top_k:
        rank = rank[:s.top_k]
    ids, l = ids[rank], l[rank]
    p = exp64(l - l[0])
    ids, p = ids[p != 0], p[p != 0]
    if s.top_p < 1:
        weight = [int(v) for v in np.floor(p * 2.0 ** 40)]
        target, total, keep = s.top_p * float(sum(weight)), 0, 0
        while keep < len(weight):
            total += weight[keep]
            keep += 1
            if float(total) >= target:
                break
        ids, p = ids[:keep], p[:keep]
    ids, p = ids[~(p < s.min_p)], p[~(p < s.min_p)]
    time = race_e(s.seed, len(context), ids) / p
    return int(ids[np.lexsort((ids, time))[0]])


# ------------------------------------------------------------------------------------------------------------ hashes


def fnv64(data, h=14695981039346656037):
    """FNV-1a 64 over bytes. The xor works on the low byte only, so steps cannot be joined: a plain loop."""
    for byte in bytes(data):
        h = ((h ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return h


def fnv64_rows(x):
    """FNV-1a 64 of each row of a float array, all rows side by side."""
    data = np.ascontiguousarray(x, "<f4").view(np.uint8).reshape(x.shape[0], -1).T.astype(u64)
    h = np.full(x.shape[0], u64(14695981039346656037))
    for byte in data:
        h = (h ^ byte) * u64(1099511628211)
    return h


def hex64(h):
    return format(int(h), "016x")
