"""Sampling of tokens, attention with caches, sequences of tokens."""

import math

import torch
import torch.nn.functional as F

from guests.corpus import program, training

# ----------------------------------------------------------------------------------------- 23, 24: sampling


@program
def speculative_verify_tokens():
    """Five drafted tokens accepted by given uniforms, the first refused drawn anew from the residual."""

    def f(draft_logits, target_logits, drafted, uniforms, gumbel):
        q, p = draft_logits.softmax(-1), target_logits.softmax(-1)
        k = drafted.shape[1]
        q_taken = q.gather(-1, drafted[..., None]).squeeze(-1)
        p_taken = p[:, :k].gather(-1, drafted[..., None]).squeeze(-1)
        accepted = uniforms * q_taken <= p_taken
        length = accepted.int().cumprod(1).sum(1)
        rows = torch.arange(drafted.shape[0])
        residual = (p - F.pad(q, (0, 0, 0, 1)))[rows, length].clamp(min=0)
        residual = residual / residual.sum(-1, keepdim=True)
        extra = (torch.log(residual + 1e-20) + gumbel).argmax(-1)
        where = torch.arange(k + 1)
        tokens = torch.where(where < length[:, None], F.pad(drafted, (0, 1)), -1)
        return torch.where(where == length[:, None], extra[:, None], tokens), length

    target = 2 * torch.randn(3, 6, 83)
    draft = target[:, :5] + torch.randn(3, 5, 83)
    gumbel = -torch.log(-torch.log(torch.rand(3, 83)))
    return f, (draft, target, draft.argmax(-1), torch.rand(3, 5), gumbel)


@program
def nucleus_minp_penalties():
    """Repetition and frequency penalties, top-k, top-p and min-p over sorted logits, drawn by given noise."""

    def f(logits, history, gumbel):
        seen = torch.gather(logits, 1, history)
        logits = logits.scatter(1, history, torch.where(seen < 0, seen * 1.2, seen / 1.2))
        counts = torch.zeros_like(logits).scatter_add_(1, history, torch.ones_like(seen))
        logits = (logits - 0.1 * counts - 0.2 * (counts > 0)) / 0.8
        floor = logits.topk(200, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, float("-inf"))
        ranked, order = torch.sort(logits, descending=True, dim=-1)
        probs = ranked.softmax(-1)
        drop = probs.cumsum(-1) - probs > 0.92
        drop |= probs < 0.02 * probs[:, :1]
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), float("-inf"))
        token = (logits + gumbel).argmax(-1, keepdim=True)
        return token, logits.log_softmax(-1).gather(1, token), (~drop).sum(-1)

    gumbel = -torch.log(-torch.log(torch.rand(7, 5003)))
    return f, (3 * torch.randn(7, 5003), torch.randint(5003, (7, 61)), gumbel)


# ---------------------------------------------------------------------------------------- 25, 26: attention


@program
def sink_window_gqa_bf16():
    """Grouped-query attention of bfloat16: YaRN's rotations, a window of 24 with four sinks, soft cap."""
    half = 20
    ramp = ((torch.arange(half) - 4) / 9).clamp(0, 1)
    base = 10000 ** (-torch.arange(half) / half)
    frequency = base * (1 - ramp) + base / 4 * ramp

    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

    def f(x, wq, wk, wv, wo):
        batch, length, _ = x.shape
        q = F.linear(x, wq).view(batch, length, 6, 2 * half).transpose(1, 2)
        k = F.linear(x, wk).view(batch, length, 2, 2 * half).transpose(1, 2)
        v = F.linear(x, wv).view(batch, length, 2, 2 * half).transpose(1, 2)
        angle = torch.arange(length)[:, None] * frequency
        cos, sin = 1.07 * angle.cos(), 1.07 * angle.sin()
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(2 * half)
        scores = 30 * torch.tanh(scores / 30)
        i, j = torch.arange(length)[:, None], torch.arange(length)[None]
        visible = (j <= i) & ((i - j < 24) | (j < 4))
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1).to(v.dtype)
        return F.linear((weights @ v).transpose(1, 2).reshape(batch, length, -1), wo)

    shapes = [(1, 67, 72), (240, 72), (80, 72), (80, 72), (72, 240)]
    return f, tuple((torch.randn(shape) / (1 if i == 0 else 9)).bfloat16() for i, shape in enumerate(shapes))


@program
def paged_kv_decode():
    """A token each for three requests with paged keys and values: written to slots, gathered by table."""

    def f(q, k, v, pool_k, pool_v, table, lengths):
        page = pool_k.shape[1]
        pool_k, pool_v = pool_k.clone(), pool_v.clone()
        block = table.gather(1, (lengths // page)[:, None]).squeeze(1)
        pool_k[block, lengths % page] = k
        pool_v[block, lengths % page] = v
        keys, values = pool_k[table].flatten(1, 2), pool_v[table].flatten(1, 2)
        grouped = q.unflatten(1, (keys.shape[2], -1))
        scores = grouped @ keys.permute(0, 2, 3, 1) * q.shape[-1] ** -0.5
        hidden = torch.arange(keys.shape[1]) > lengths[:, None]
        scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
        out = scores.softmax(-1) @ values.transpose(1, 2)
        return out.flatten(1), pool_k, pool_v

    pool = torch.randn(2, 13, 6, 2, 24)
    table = torch.randperm(13)[:12].view(3, 4)
    new = (torch.randn(3, 6, 24), torch.randn(3, 2, 24), torch.randn(3, 2, 24))
    return f, (*new, pool[0], pool[1], table, torch.tensor([7, 22, 16]))


# ------------------------------------------------------------------------------------------- 27, 28: tokens


@training
def packed_documents_step():
    """Documents packed into rows: masks and positions from end tokens, a block, cross entropy, gradients."""
    end, heads = 0, 3

    def norm(x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    def loss(p, tokens):
        length = tokens.shape[1]
        ends = tokens == end
        document = ends.cumsum(1) - ends.long()
        column = torch.arange(length)
        starts = torch.where(F.pad(ends, (1, 0), value=True)[:, :-1], column, 0).cummax(1).values
        x = p["embed"][tokens] + p["position"][(column - starts).clamp(max=31)]
        q, k, v = F.linear(norm(x, p["norm1"]), p["qkv"]).chunk(3, dim=-1)
        q, k, v = (a.unflatten(-1, (heads, -1)).transpose(1, 2) for a in (q, k, v))
        mask = (document[:, :, None] == document[:, None]) & (column[:, None] >= column)
        x = x + F.linear(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2).flatten(2),
            p["out"],
        )
        gate, up = F.linear(norm(x, p["norm2"]), p["up"]).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * up, p["down"])
        logits = F.linear(x[:, :-1], p["embed"])
        target = tokens[:, 1:].masked_fill(ends[:, :-1], -100)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)

    def step(p, tokens):
        value = loss(p, tokens)
        return (value.detach(), *torch.autograd.grad(value, list(p.values())))

    shapes = {"embed": (307, 48), "position": (32, 48), "qkv": (144, 48), "out": (48, 48)}
    shapes |= {"up": (200, 48), "down": (48, 100)}
    p = {name: (torch.randn(shape) / 7).requires_grad_() for name, shape in shapes.items()}
    p |= {name: torch.ones(48).requires_grad_() for name in ("norm1", "norm2")}
    tokens = torch.randint(1, 307, (3, 75))
    return step, (p, tokens.masked_fill(torch.rand(3, 75) < 0.06, end)), loss


@program
def trigram_block_logits():
    """Continuations that would repeat a trigram banned beam by beam, with the share of distinct bigrams."""

    def f(tokens, logits):
        windows = tokens.unfold(1, 3, 1)
        last = tokens[:, -2:]
        repeats = (windows[..., :2] == last[:, None]).all(-1)
        ban = torch.zeros_like(logits, dtype=torch.bool)
        ban = ban.int().scatter_add(1, windows[..., 2], repeats.int()).bool()
        pairs = tokens[:, :-1] * logits.shape[1] + tokens[:, 1:]
        ordered = pairs.sort(dim=1).values
        distinct = (1 + (ordered.diff(dim=1) != 0).sum(1)) / ordered.shape[1]
        scores, best = logits.masked_fill(ban, float("-inf")).log_softmax(-1).topk(3, dim=-1)
        return scores, best, ban, distinct

    return f, (torch.randint(6, (5, 29)), torch.randn(5, 57))
