"""Optimisers, quantisation, integer codes, calibration."""

import torch
import torch.nn.functional as F

from guests.corpus import program, training

# --------------------------------------------------------------------------------------- 29, 30: optimisers


@training
def sophia_hutchinson_step():
    """Sophia on a two-layer network: Hutchinson's Hessian diagonal with given signs, clipped updates."""

    def loss(weights, x, y):
        w1, b1, w2, b2 = weights
        return F.cross_entropy(torch.tanh(x @ w1 + b1) @ w2 + b2, y)

    def step(weights, signs, momenta, curvatures, x, y):
        value = loss(weights, x, y)
        slopes = torch.autograd.grad(value, weights, create_graph=True)
        inner = sum((g * s).sum() for g, s in zip(slopes, signs))
        products = torch.autograd.grad(inner, weights)
        out = []
        for w, g, s, hs, m, h in zip(weights, slopes, signs, products, momenta, curvatures):
            m = 0.96 * m + 0.04 * g.detach()
            h = 0.99 * h + 0.01 * s * hs
            move = (m / (0.05 * h).clamp(min=1e-12)).clamp(-1, 1)
            out += [w.detach() * (1 - 1e-3) - 1e-3 * move, h]
        return (value.detach(), *out)

    weights = [torch.randn(33, 70) / 6, torch.zeros(70), torch.randn(70, 11) / 8, torch.zeros(11)]
    signs = [torch.randn_like(w).sign() for w in weights]
    momenta, curvatures = ([torch.randn_like(w) / 50 for w in weights] for _ in range(2))
    weights = [w.requires_grad_() for w in weights]
    x, y = torch.randn(203, 33), torch.randint(11, (203,))
    return step, (weights, signs, momenta, curvatures, x, y), loss, (weights, x, y)


@program
def schedule_free_adamw():
    """A schedule-free AdamW update of three tensors, iterates and averages, warm-up included."""
    lr, beta1, beta2, decay, t = 2.5e-3, 0.9, 0.999, 0.01, 37

    def f(ys, zs, squares, slopes, weight_sum):
        rate = lr * min(1.0, t / 100) * (1 - beta2**t) ** 0.5
        weight_sum = weight_sum + rate**2
        share = rate**2 / weight_sum
        out = []
        for y, z, v, g in zip(ys, zs, squares, slopes):
            v = v.clone().mul_(beta2).addcmul_(g, g, value=1 - beta2)
            g = (g / v.sqrt().add_(1e-8)).add_(y, alpha=decay)
            y = torch.lerp(y, z, share)
            y.add_(g, alpha=rate * (beta1 - 1)).addcmul_(g, share, value=-beta1 * rate)
            out += [y, z - rate * g, v]
        return (*out, weight_sum)

    shapes = [(45, 31), (45,), (7, 45)]
    ys, zs, slopes = ([torch.randn(s) / 7 for s in shapes] for _ in range(3))
    return f, (ys, zs, [torch.rand(s) / 50 for s in shapes], slopes, torch.tensor(2e-4))


# ------------------------------------------------------------------------------------- 31, 32: quantisation


@program
def gptq_column_block():
    """GPTQ of 24 columns to 4 bits: the inverse Hessian's factor spreads each column's error onwards."""

    def f(weight, x):
        w = weight.clone()
        hessian = 2 * x.T @ x / x.shape[0]
        dead = hessian.diagonal() == 0
        hessian.diagonal().add_(0.01 * hessian.diagonal().mean() + dead)
        order = hessian.diagonal().argsort(descending=True)
        w, hessian = w[:, order], hessian[order][:, order]
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
        upper = torch.linalg.cholesky(inverse, upper=True)
        low, high = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
        scale = (high - low) / 15
        zero = torch.round(-low / scale)
        quantised, losses = torch.zeros_like(w), torch.zeros_like(w[:, 0])
        for i in range(w.shape[1]):
            column = w[:, i]
            q = scale * (torch.clamp(torch.round(column / scale) + zero, 0, 15) - zero)
            error = (column - q) / upper[i, i]
            w[:, i:] -= error[:, None] * upper[None, i, i:]
            quantised[:, i] = q
            losses += error**2 / 2
        return quantised[:, order.argsort()], losses

    return f, (torch.randn(95, 24), torch.randn(211, 24) @ torch.randn(24, 24) / 5)


@training
def qlora_int4_step():
    """Adapters beside a packed 4-bit weight dequantised to bfloat16: the step's gradients in float32."""

    def dequantise(packed, scale, zero):
        codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).to(torch.bfloat16)
        groups = codes.unflatten(1, (scale.shape[1], -1))
        return ((groups - zero[..., None]) * scale[..., None]).flatten(1)

    def loss(a, b, x, keep, packed, scale, zero, target):
        base = F.linear(x, dequantise(packed, scale, zero))
        dropped = x * keep / 0.9
        update = F.linear(F.linear(dropped, a.bfloat16()), b.bfloat16())
        return F.mse_loss((base + 2.0 * update).float(), target)

    def step(a, b, *batch):
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        value = loss(a, b, *batch)
        value.backward()
        norm = torch.sqrt(a.grad.square().sum() + b.grad.square().sum())
        clip = (0.3 / (norm + 1e-6)).clamp(max=1.0)
        return value.detach(), norm, a.grad * clip, b.grad * clip

    a, b = torch.randn(8, 192) / 14, torch.randn(160, 8) / 30
    x = torch.randn(5, 39, 192).bfloat16()
    packed = torch.randint(256, (160, 96), dtype=torch.uint8)
    scale, zero = (torch.rand(160, 6) / 50).bfloat16(), torch.full((160, 6), 7.5, dtype=torch.bfloat16)
    batch = (x, torch.rand(5, 39, 192) < 0.9, packed, scale, zero, torch.randn(5, 39, 160))
    return step, (a.requires_grad_(), b.requires_grad_(), *batch), loss


# -------------------------------------------------------------------------------------- 33, 34: integer codes


@program
def gray_reverse_bits():
    """Gray codes of 32-bit integers and back, bits reversed, lowest bits, leading zeros, rotations."""

    def f(x):
        gray = x ^ (x >> 1)
        back = gray
        for shift in (1, 2, 4, 8, 16):
            back = back ^ (back >> shift)
        turned = x
        for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
            turned = ((turned >> shift) & mask) | ((turned & mask) << shift)
        turned = ((turned >> 16) | (turned << 16)) & 0xFFFFFFFF
        _, exponent = torch.frexp(x.double())
        rotated = ((x << 7) | (x >> 25)) & 0xFFFFFFFF
        return gray, back == x, turned, x & -x, 32 - exponent, rotated

    return f, (torch.randint(1 << 32, (1003,)) >> torch.randint(30, (1003,)),)


@program
def crc_feistel_parity():
    """CRC-32 of byte strings by table, a Feistel round of the results, bits counted and parities."""
    table = torch.arange(256)
    for _ in range(8):
        table = torch.where(table & 1 == 1, (table >> 1) ^ 0xEDB88320, table >> 1)

    def f(messages, key):
        crc = torch.full(messages.shape[:1], 0xFFFFFFFF, dtype=torch.int64)
        for byte in messages.long().unbind(1):
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        crc = crc ^ 0xFFFFFFFF
        left, right = crc >> 16, crc & 0xFFFF
        mixed = right * 0x9E37 + key
        left, right = right, left ^ ((mixed ^ (mixed >> 7)) & 0xFFFF)
        shuffled = (left << 16) | right
        bits = shuffled - ((shuffled >> 1) & 0x55555555)
        bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
        bits = (((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24) & 0xFF
        return crc, shuffled, bits.to(torch.uint8), bits & 1

    return f, (torch.randint(256, (97, 6), dtype=torch.uint8), torch.randint(1 << 16, ()))


# --------------------------------------------------------------------------------------- 35, 36: calibration


@training
def temperature_vector_ece():
    """Temperature and biases fitted by five descent steps, calibration errors before and after."""

    def loss(log_t, bias, logits, labels):
        return F.cross_entropy(logits * torch.exp(-log_t) + bias, labels) + 0.01 * bias.square().sum()

    def ece(logits, labels):
        confidence, guess = logits.softmax(-1).max(-1)
        slot = (confidence * 15).long().clamp(max=14)
        right = (guess == labels).float()
        stats = torch.stack([torch.ones_like(right), right, confidence], dim=1)
        count, hits, mean = torch.zeros(15, 3).index_add(0, slot, stats).unbind(1)
        gaps = (hits - mean).abs() / count.clamp(min=1)
        return (gaps * count).sum() / count.sum(), gaps.max()

    def step(log_t, bias, logits, labels):
        t, b = log_t, bias
        values = []
        for _ in range(5):
            value = loss(t, b, logits, labels)
            slope_t, slope_b = torch.autograd.grad(value, (t, b))
            t = (t - 0.8 * slope_t).detach().requires_grad_()
            b = (b - 0.8 * slope_b).detach().requires_grad_()
            values.append(value.detach())
        with torch.no_grad():
            before, after = ece(logits, labels), ece(logits * torch.exp(-t) + b, labels)
        return torch.stack(values), t.detach(), b.detach(), *before, *after

    labels = torch.randint(37, (1511,))
    logits = 4 * torch.randn(1511, 37) + 6 * F.one_hot(labels, 37)
    return step, (torch.zeros(1).requires_grad_(), torch.zeros(37).requires_grad_(), logits, labels), loss


@program
def auroc_ap_confusion():
    """Areas under both curves from one sort, a confusion matrix and its kappa."""

    def f(scores, labels, guesses, classes):
        hit = labels[scores.argsort(descending=True)].float()
        tp, fp = hit.cumsum(0), (1 - hit).cumsum(0)
        auroc = torch.trapezoid(tp / tp[-1], fp / fp[-1])
        precision = tp / (tp + fp)
        ap = (precision * hit).sum() / tp[-1]
        confusion = torch.bincount(classes * 6 + guesses, minlength=36).view(6, 6)
        share = confusion / confusion.sum()
        chance = (share.sum(0) * share.sum(1)).sum()
        kappa = (share.trace() - chance) / (1 - chance)
        return auroc, ap, confusion, kappa

    labels, classes = torch.rand(307) < 0.3, torch.randint(6, (307,))
    guesses = torch.where(torch.rand(307) < 0.6, classes, torch.randint(6, (307,)))
    return f, (torch.randn(307) + labels, labels, guesses, classes)
