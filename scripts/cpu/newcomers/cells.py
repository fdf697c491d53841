"""Quantisation, integers, attention, normalisation, recurrent cells, time series."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from newcomers.corpus import program, training

# ------------------------------------------------------------------------------------ 41, 42: quantisation


@training
def lsq_straight_through():
    """Learned step sizes: 4-bit weights per channel and 8-bit activations, straight-through gradients."""

    def quantise(x, scale, low, high):
        factor = 1.0 / math.sqrt(x.numel() / scale.numel() * high)
        scale = (scale - scale * factor).detach() + scale * factor
        y = (x / scale).clamp(low, high)
        return ((y.round() - y).detach() + y) * scale

    def loss(x, target, w, ws, xs):
        y = F.conv2d(quantise(x, xs, 0, 255), quantise(w, ws.view(-1, 1, 1, 1), -8, 7), padding=1)
        return F.smooth_l1_loss(y, target, reduction="sum") / x.shape[0]

    def step(*args):
        value = loss(*args)
        return (value.detach(), *torch.autograd.grad(value, args[2:]))

    x, w = torch.rand(3, 19, 23, 27), torch.randn(32, 19, 3, 3) / 13
    target = F.conv2d(x, w, padding=1)
    ws, xs = 2 * w.abs().mean((1, 2, 3)) / math.sqrt(7), torch.tensor([1 / 255.0])
    return step, (x, target, w.requires_grad_(), ws.detach().requires_grad_(), xs.requires_grad_()), loss


@program
def nf4_blockwise_roundtrip():
    """NF4 of 64-element blocks with doubly quantised maxima, two codes to a byte, unpacked for a matmul."""
    positive = torch.erfinv(torch.linspace(0, 0.93, 9)[1:])
    negative = -torch.erfinv(torch.linspace(0, 0.93, 8)[1:])
    code = torch.cat([negative.flip(0) / -negative[-1], torch.zeros(1), positive / positive[-1]])
    middle = (code[1:] + code[:-1]) / 2

    def f(w, x):
        blocks = w.reshape(-1, 64)
        peak = blocks.abs().amax(1, keepdim=True)
        q = torch.bucketize(blocks / peak, middle).to(torch.uint8)
        packed = (q[:, 0::2] << 4) | q[:, 1::2]
        offset = peak.mean()
        step = (peak - offset).abs().max() / 127
        peak8 = torch.round((peak - offset) / step).to(torch.int8)
        unpacked = torch.stack([packed >> 4, packed & 0xF], dim=-1).reshape(-1, 64)
        restored = (code[unpacked.long()] * (peak8.float() * step + offset)).view_as(w)
        return x @ restored.T, (restored - w).square().mean()

    return f, (torch.randn(1023, 576) / 14, torch.randn(5, 576))


# --------------------------------------------------------------------------------- 43, 44: bits and integers


@program
def float_bits_ulp():
    """Exponents and mantissas of floats, bfloat16 by rounding to even in integers, distances in ulps."""

    def f(x, y):
        bits = x.view(torch.int32)
        exponent = ((bits >> 23) & 0xFF) - 127
        mantissa = bits & 0x7FFFFF
        lsb = (bits >> 16) & 1
        rounded = ((bits + 0x7FFF + lsb) & -65536).view(torch.float32)
        ordered_x = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits).long()
        other = y.view(torch.int32)
        ordered_y = torch.where(other < 0, -(other & 0x7FFFFFFF), other).long()
        return exponent, mantissa, rounded, (ordered_x - ordered_y).abs()

    x = torch.randn(1023) * torch.exp(3 * torch.randn(1023))
    return f, (x, x * (1 + 1e-6 * torch.randn(1023)))


@program
def xorshift_box_muller():
    """Sixteen draws of 257 xorshift generators in int64, turned into normals, with their moments."""

    def f(state):
        draws = []
        for _ in range(16):
            state = (state ^ (state << 13)) & 0xFFFFFFFF
            state = state ^ (state >> 17)
            state = (state ^ (state << 5)) & 0xFFFFFFFF
            draws.append(state)
        u = (torch.stack(draws) >> 8).float() / (1 << 24)
        u1, u2 = u[0::2].clamp(min=1e-7), u[1::2]
        r = torch.sqrt(-2 * torch.log(u1))
        z = torch.cat([r * torch.cos(2 * math.pi * u2), r * torch.sin(2 * math.pi * u2)])
        skew = ((z - z.mean()) ** 3).mean() / z.std() ** 3
        return state, z, z.mean(), z.var(), skew

    return f, (torch.randint(1, 2**32, (257,)),)


# --------------------------------------------------------------------------------------- 45, 46: attention


@program
def longformer_chunks_fp16():
    """Sliding-window attention by chunks of 35 and two global tokens, float16 with float32 softmax."""
    w = 35

    def f(q, k, v):
        b, h, t, d = q.shape
        n = t // w
        qc = (q * d**-0.5).view(b, h, n, w, d)
        kc = F.pad(k, (0, 0, w, w)).unfold(2, 3 * w, w)
        vc = F.pad(v, (0, 0, w, w)).unfold(2, 3 * w, w)
        scores = torch.einsum("bhnqd,bhndk->bhnqk", qc, kc).float()
        i, j = torch.arange(w)[:, None], torch.arange(3 * w)[None] - w
        at = torch.arange(n)[:, None, None] * w + j
        allowed = ((i - j).abs() <= w) & (at >= 0) & (at < t)
        scores = scores.masked_fill(~allowed, float("-inf"))
        far = torch.einsum("bhnqd,bhgd->bhnqg", qc, k[:, :, :2]).float()
        probs = torch.softmax(torch.cat([far, scores], dim=-1), dim=-1).to(q.dtype)
        out = torch.einsum("bhnqk,bhndk->bhnqd", probs[..., 2:], vc)
        out = out + torch.einsum("bhnqg,bhgd->bhnqd", probs[..., :2], v[:, :, :2])
        return out.reshape(b, h, t, d).transpose(1, 2).reshape(b, t, h * d)

    return f, tuple(torch.randn(3, 1, 3, 525, 24).half())


class _RelativeBlock(nn.Module):
    def __init__(self, dim=60, heads=5):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.kv, self.r = (nn.Linear(dim, k * dim, bias=False) for k in (1, 2, 1))
        self.u, self.v = nn.Parameter(torch.randn(heads, self.d)), nn.Parameter(torch.randn(heads, self.d))
        self.o = nn.Linear(dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 3 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3 * dim, dim))

    def forward(self, x, mem, pos):
        b, t, dim = x.shape
        both = torch.cat([mem, x], dim=1)
        s = both.shape[1]
        q = self.q(x).view(b, t, self.heads, self.d)
        k, v = self.kv(both).view(b, s, 2, self.heads, self.d).unbind(2)
        r = self.r(pos).view(s, self.heads, self.d)
        ac = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        bd = torch.einsum("bihd,jhd->bhij", q + self.v, r)
        bd = F.pad(bd, (1, 0)).view(b, self.heads, s + 1, t)[:, :, 1:].view(b, self.heads, t, s)
        mask = torch.ones(t, s, dtype=torch.bool).triu(1 + s - t)
        scores = ((ac + bd) / math.sqrt(self.d)).masked_fill(mask, -1e9)
        y = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(b, t, dim)
        x = self.n1(x + self.o(y))
        return self.n2(x + self.ff(x))


@program
def relshift_xl_block():
    """Transformer-XL's block with memory: relative positions by the shift trick, post-norm, dropout off."""
    block = _RelativeBlock().requires_grad_(False).eval()
    pos = torch.arange(73, -1, -1.0)[:, None] / 10000 ** (torch.arange(0, 60, 2) / 60)
    return block, (torch.randn(3, 37, 60), torch.randn(3, 37, 60), torch.cat([pos.sin(), pos.cos()], -1))


# ----------------------------------------------------------------------------------- 47, 48: normalisation


@program
def ibn_filter_response():
    """IBN (instance norm for half of the channels, batch norm for the rest), then filter response norm."""

    def f(x, g1, b1, mean, var, g2, b2, gamma, beta, tau):
        first, second = torch.split(x, [17, 17], dim=1)
        first = F.instance_norm(first.contiguous(), weight=g1, bias=b1)
        second = F.batch_norm(second, mean, var, g2, b2, training=False)
        x = F.leaky_relu(torch.cat([first, second], dim=1), 0.1)
        nu2 = x.square().mean((2, 3), keepdim=True)
        x = x * torch.rsqrt(nu2 + 1e-6)
        return torch.maximum(gamma * x + beta, tau)

    x = torch.randn(1, 34, 15, 11).to(memory_format=torch.channels_last)
    half_size = [torch.rand(17) + 0.5 for _ in range(6)]
    return f, (x, *half_size, *(torch.randn(1, 34, 1, 1) for _ in range(3)))


@training
def weight_standard_gn_step():
    """Convolutions with standardised weights and group norms, a residual, backward to all parameters."""

    class Conv(nn.Conv2d):
        def forward(self, x):
            w = self.weight
            w = w - w.mean((1, 2, 3), keepdim=True)
            w = w / (w.flatten(1).std(1).view(-1, 1, 1, 1) + 1e-5)
            return F.conv2d(x, w, self.bias, self.stride, self.padding)

    stem, c1, c2 = Conv(3, 24, 3, stride=2, padding=1), Conv(24, 24, 3, padding=1), Conv(24, 24, 3, padding=1)
    n1, n2, n3, fc = nn.GroupNorm(6, 24), nn.GroupNorm(6, 24), nn.GroupNorm(6, 24), nn.Linear(24, 7)
    net = nn.ModuleList([stem, c1, c2, n1, n2, n3, fc])

    def loss(x, y):
        h = F.relu(n1(stem(x)))
        h = F.relu(h + n3(c2(F.relu(n2(c1(h))))))
        return F.cross_entropy(fc(h.mean((2, 3))), y)

    def step(x, y):
        net.zero_grad()
        value = loss(x, y)
        value.backward()
        grads = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        return (value.detach(), *grads)

    return step, (torch.randn(5, 3, 29, 31), torch.randint(0, 7, (5,))), loss


# ----------------------------------------------------------------------------------- 49, 50: recurrent cells


@program
def mingru_log_scan():
    """minGRU trained in parallel: gates in log space, the recurrence by cumulative sums and logcumsumexp."""
    gates, out = nn.Linear(48, 2 * 48).requires_grad_(False), nn.Linear(48, 48).requires_grad_(False)

    def log_g(x):
        return torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))

    def f(x, h0):
        hidden, gate = gates(x).chunk(2, dim=-1)
        log_z, log_keep = -F.softplus(-gate), -F.softplus(gate)
        log_values = torch.cat([log_g(h0), log_z + log_g(hidden)], dim=1)
        a_star = F.pad(log_keep.cumsum(1), (0, 0, 1, 0))
        log_h = a_star + (log_values - a_star).logcumsumexp(1)
        h = log_h.exp()[:, 1:]
        return out(h) + x, h[:, -1:]

    return f, (torch.randn(3, 255, 48), torch.randn(3, 1, 48))


@program
def peephole_lstm_ln():
    """An LSTM with peepholes and layer-normalised gates over 14 steps, frozen where a sequence ends."""
    n = 40

    def f(x, lengths, wx, wh, peep, gain):
        b, t, _ = x.shape
        h, c = x.new_zeros(b, n), x.new_zeros(b, n)
        inputs = F.layer_norm(x @ wx, (4 * n,))
        outputs = []
        for k in range(t):
            z = inputs[:, k] + F.layer_norm(h @ wh, (4 * n,)) * gain
            i, f_, g, o = z.chunk(4, dim=1)
            i = torch.sigmoid(i + peep[0] * c)
            f_ = torch.sigmoid(f_ + peep[1] * c + 1.0)
            c_new = f_ * c + i * torch.tanh(g)
            h_new = torch.sigmoid(o + peep[2] * c_new) * torch.tanh(F.layer_norm(c_new, (n,)))
            live = (k < lengths)[:, None]
            h, c = torch.where(live, h_new, h), torch.where(live, c_new, c)
            outputs.append(h * live)
        return torch.stack(outputs, dim=1), c

    args = (torch.randn(28, 160) / 5, torch.randn(40, 160) / 6, torch.randn(3, 40) / 3, torch.rand(160) + 0.5)
    return f, (torch.randn(7, 14, 28), torch.tensor([14, 3, 9, 14, 1, 12, 7]), *args)


# ------------------------------------------------------------------------------------- 51, 52: time series


@training
def holt_winters_sse():
    """Triple exponential smoothing of 11 weekly series, gradients of the one-step errors, one update."""
    season = 7

    def loss(raw, y):
        alpha, beta, gamma = torch.sigmoid(raw).unbind(0)
        level = y[:, :season].mean(1)
        trend = (y[:, season : 2 * season].mean(1) - level) / season
        seasonal = list((y[:, :season] - level[:, None]).unbind(1))
        errors = []
        for t in range(season, y.shape[1]):
            s = seasonal[t - season]
            error = y[:, t] - (level + trend + s)
            errors.append(error)
            new = alpha * (y[:, t] - s) + (1 - alpha) * (level + trend)
            trend = beta * (new - level) + (1 - beta) * trend
            seasonal.append(gamma * (y[:, t] - new) + (1 - gamma) * s)
            level = new
        return torch.stack(errors, 1).square().mean(1).sum()

    def step(raw, y):
        value = loss(raw, y)
        (grad,) = torch.autograd.grad(value, raw)
        with torch.no_grad():
            return value.detach(), raw - 0.1 * grad.clamp(-1, 1)

    t = torch.arange(35.0)
    y = 0.05 * t + torch.sin(2 * math.pi * t / 7) + 0.3 * torch.randn(11, 35)
    return step, (torch.randn(3, 11).requires_grad_(), y), loss


@program
def rolling_detrend_zscore():
    """Windows of 63 of transposed series: gaps filled, trend removed, z-scores, lag-one correlation."""
    w = 63

    def f(columns):
        x = columns.t()
        missing = torch.isnan(x)
        filled = torch.where(missing, torch.zeros_like(x), x)
        mean = filled.sum(1, keepdim=True) / (~missing).sum(1, keepdim=True)
        x = torch.where(missing, mean, x)
        win = x.unfold(1, w, 1)
        t = torch.arange(w) - (w - 1) / 2
        centre = win.mean(-1, keepdim=True)
        slope = (win * t).sum(-1, keepdim=True) / (t * t).sum()
        resid = win - centre - slope * t
        std = resid.std(-1)
        z = (resid[..., -1] / std).clamp(-3, 3)
        lag1 = (resid[..., 1:] * resid[..., :-1]).sum(-1) / resid.square().sum(-1)
        alarm = (z.abs() > 2) & ~missing[:, w - 1 :]
        return z, slope.squeeze(-1), lag1, alarm.sum(1)

    columns = torch.randn(1501, 9).cumsum(0)
    columns[torch.rand(1501, 9) < 0.02] = float("nan")
    return f, (columns,)
