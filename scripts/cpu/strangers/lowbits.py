"""Quantised, half-precision, integer and boolean programs, and odd shapes."""

import torch
import torch.nn.functional as F

from strangers.corpus import program


@program
def int8_per_row_linear_bf16():
    """An int8 linear layer with per-row weight scales and bfloat16 activations, bias and GELU."""

    def f(x, w_int8, scale, bias):
        w = w_int8.to(x.dtype) * scale[:, None]
        return F.gelu(F.linear(x, w, bias), approximate="tanh")

    w = torch.randint(-127, 128, (64, 96), dtype=torch.int8)
    x = torch.randn(8, 96).bfloat16()
    return f, (x, w, (torch.rand(64) * 0.002 + 0.0005).bfloat16(), torch.randn(64).bfloat16())


@program
def ternary_bitnet_packed():
    """BitNet: two-bit ternary weights unpacked by shifts, int32 accumulation over int8 activations."""

    def f(x_q, x_scale, packed, w_scale):
        shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)
        w = ((packed[:, :, None] >> shifts) & 3).to(torch.int32).flatten(1) - 1
        acc = (x_q.to(torch.int32)[:, None, :] * w[None]).sum(-1, dtype=torch.int32)
        return acc.to(torch.float32) * x_scale[:, None] * w_scale

    vals = torch.randint(0, 3, (24, 16, 4))
    packed = (vals << torch.tensor([0, 2, 4, 6])).sum(-1).to(torch.uint8)
    x_q = torch.randint(-127, 128, (4, 64), dtype=torch.int8)
    return f, (x_q, torch.rand(4) * 0.02, packed, torch.tensor(0.7))


@program
def bf16_residual_postnorm_chain():
    """A bfloat16 chain: bias, dropout mask given, residual, layer norm, GEGLU, layer scale."""

    def f(x, residual, bias, keep, w, b, gate_w, gamma):
        h = (x + bias) * keep * (1 / 0.9)
        h = F.layer_norm(residual + h, (x.shape[-1],), w, b)
        a, g = (h @ gate_w).chunk(2, -1)
        return residual + gamma * (a * F.gelu(g)), h

    d = 32
    ts = torch.randn(16, d), torch.randn(16, d), torch.randn(d), (torch.rand(16, d) > 0.1).float()
    ws = torch.rand(d) + 0.5, torch.zeros(d), torch.randn(d, 2 * d) / 10, torch.full((d,), 0.1)
    return f, tuple(t.bfloat16() for t in ts + ws)


@program
def fp16_volume_instance_norm():
    """A float16 CT volume windowed, instance-normalised, max-pooled and projected along each axis."""

    def f(vol, lo, hi):
        x = (vol - lo) / (hi - lo)
        x = x.clamp(0, 1)
        mean = x.float().mean(dim=(2, 3, 4), keepdim=True)
        var = x.float().var(dim=(2, 3, 4), keepdim=True, unbiased=False)
        x = ((x.float() - mean) * torch.rsqrt(var + 1e-5)).half()
        x = torch.where(x > 0, x, 0.01 * x)
        pooled = F.max_pool3d(x, 2)
        return pooled, x.amax(2), x.amax(3), x.float().mean(4).half()

    vol = (torch.randn(1, 2, 48, 64, 72) * 400).half()
    return f, (vol, torch.tensor(-500.0).half(), torch.tensor(600.0).half())


@program
def murmur_bloom_filter():
    """Two murmur-like finalisers in int64 fill and query a Bloom filter's bits."""

    def mix(h, seed):
        h = (h ^ seed) & 0xFFFFFFFF
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        h = ((h ^ (h >> 13)) * 0x2B2AE35) & 0xFFFFFFFF
        return h ^ (h >> 16)

    def f(keys, queries, n_bits=4096, k=4):
        h1, h2 = mix(keys, 17), mix(keys, 91) | 1
        i = torch.arange(k)[:, None]
        bits = torch.zeros(n_bits, dtype=torch.bool)
        bits[((h1 + i * h2) % n_bits).flatten()] = True
        q1, q2 = mix(queries, 17), mix(queries, 91) | 1
        return bits[(q1 + i * q2) % n_bits].all(0), bits.sum()

    return f, (torch.randint(0, 2**31, (300,)), torch.randint(0, 2**31, (300,)))


@program
def elementary_automaton_rule110():
    """Thirty generations of rule 110 on a ring, with running densities."""

    def f(state, rule):
        rows = [state]
        for _ in range(30):
            left, right = torch.roll(state, 1, -1), torch.roll(state, -1, -1)
            state = rule[(left << 2 | state << 1 | right).long()]
            rows.append(state)
        world = torch.stack(rows, 1)
        return world, world.sum(-1)

    rule = torch.tensor([110 >> i & 1 for i in range(8)], dtype=torch.uint8)
    return f, (torch.randint(0, 2, (3, 251), dtype=torch.uint8), rule)


@program
def binary_dilate_components():
    """A binary volume closed with a cross, then labels spread for a few steps (bool and int32)."""

    def dilate(m):
        p = F.pad(m, (1, 1, 1, 1, 1, 1))
        c = slice(1, -1)
        out = m | p[:-2, c, c] | p[2:, c, c] | p[c, :-2, c] | p[c, 2:, c]
        return out | p[c, c, :-2] | p[c, c, 2:]

    def f(mask):
        closed = ~dilate(~dilate(mask))
        ids = torch.arange(1, mask.numel() + 1, dtype=torch.int32).view_as(mask)
        labels = torch.where(closed, ids, 0)
        for _ in range(3):
            for d in range(3):
                nxt = torch.maximum(torch.roll(labels, 1, d), torch.roll(labels, -1, d))
                labels = torch.where(closed, torch.maximum(labels, nxt), labels)
        return closed, labels

    return f, (torch.rand(40, 48, 56) > 0.93,)


@program
def stream_compaction_rle():
    """Runs found and numbered by prefix sums, run lengths by scatter, kept values compacted."""

    def f(x):
        change = torch.ones_like(x, dtype=torch.bool)
        change[:, 1:] = x[:, 1:] != x[:, :-1]
        run = change.cumsum(1) - 1
        lengths = torch.zeros_like(x).scatter_add_(1, run, torch.ones_like(x))
        values = torch.zeros_like(x).scatter_(1, run, x)
        keep = x > 2
        slot = torch.where(keep, keep.cumsum(1) - 1, x.shape[1])
        packed = x.new_full((x.shape[0], x.shape[1] + 1), -1).scatter_(1, slot, x)[:, :-1]
        return lengths, values, packed, run[:, -1] + 1

    return f, (torch.randint(0, 5, (2, 48)),)


@program
def othello_bitboard_moves():
    """Legal Othello moves of many boards by shifting int64 bitboards in eight directions."""

    def shift(x, s):
        return x << s if s > 0 else (x >> -s) & ((1 << (64 + s)) - 1)

    def f(own, opp):
        empty = ~(own | opp)
        inner = opp & 0x7E7E7E7E7E7E7E7E
        moves = torch.zeros_like(own)
        for s in (1, -1, 8, -8, 7, -7, 9, -9):
            mask = opp if abs(s) == 8 else inner
            t = mask & shift(own, s)
            for _ in range(5):
                t = t | (mask & shift(t, s))
            moves = moves | (shift(t, s) & empty)
        bits = (moves[:, None] >> torch.arange(64)) & 1
        return moves, bits.sum(1)

    own = torch.randint(-(2**62), 2**62, (500,)) & torch.randint(-(2**62), 2**62, (500,))
    return f, (own, torch.randint(-(2**62), 2**62, (500,)) & ~own)


@program
def hamming_binary_retrieval():
    """Binary codes packed in uint8, Hamming distances by a popcount table, a majority vote."""

    def f(query, base, labels):
        table = torch.arange(256)
        table = sum((table >> i) & 1 for i in range(8)).to(torch.uint8)
        dist = table[(query[:, None] ^ base[None]).int()].sum(-1, dtype=torch.int32)
        key = dist.long() * base.shape[0] + torch.arange(base.shape[0])
        near = key.topk(9, largest=False).indices
        votes = F.one_hot(labels[near], 6).sum(1)
        return near, votes, dist.amin(1)

    base = torch.randint(0, 256, (3001, 16), dtype=torch.uint8)
    return f, (base[:40] ^ 5, base, torch.randint(0, 6, (3001,)))


@program
def levenshtein_antidiagonals():
    """Edit distances of a batch of padded strings by antidiagonals, read off at their lengths."""

    def f(a, b, len_a, len_b):
        n, m = a.shape[1], b.shape[1]
        i = torch.arange(n + 1)
        big = 10**6
        prev2 = torch.full((a.shape[0], n + 1), big)
        prev = prev2.clone()
        prev[:, 0] = 0
        out = torch.where(len_a + len_b == 0, 0, big)
        for s in range(1, n + m + 1):
            j = s - i
            cost = (a[:, (i - 1).clamp(0, n - 1)] != b[:, (j - 1).clamp(0, m - 1)]).long()
            up = F.pad(prev[:, :-1], (1, 0), value=big)
            diag = F.pad(prev2[:, :-1], (1, 0), value=big)
            cur = torch.minimum(torch.minimum(up, prev) + 1, diag + cost)
            cur = torch.where((i == 0) | (j == 0), s, cur)
            cur = torch.where((j < 0) | (j > m), big, cur)
            hit = (len_a[:, None] == i) & (len_b[:, None] == j)
            out = torch.minimum(out, torch.where(hit, cur, big).amin(1))
            prev2, prev = prev, cur
        return out

    a, b = torch.randint(0, 4, (2, 24, 18))
    return f, (a, b, torch.randint(5, 19, (24,)), torch.randint(5, 19, (24,)))


@program
def transposed_zscore_lags():
    """A transposed panel of returns: z-scores across names, lagged products on strided slices."""

    def f(panel, vol):
        x = panel.t()
        z = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        z = z.clamp(-3, 3) / vol
        lag = (z[2::2] * z[:-2:2]).mean(0)
        corr = z.T @ z / z.shape[0]
        return lag, corr.diagonal(), z[::5].contiguous()

    vol = (torch.rand(97) + 0.5).expand(251, 97)
    return f, (torch.randn(97, 251), vol)
