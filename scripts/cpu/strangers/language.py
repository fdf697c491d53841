"""Language models: rotary phases, gates, caches, beams, sequence losses."""

import math

import torch
import torch.nn.functional as F

from strangers.corpus import program


@program
def rope_complex_prefill():
    """Llama's rotary embedding by view_as_complex on queries and keys, and causal scores."""

    def precompute(dim, end, theta=10000.0):
        freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
        t = torch.arange(end)
        return torch.polar(torch.ones(end, dim // 2), torch.outer(t, freqs))

    def apply(x, freqs_cis):
        x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(x_ * freqs_cis[None, :, None, :]).flatten(3).type_as(x)

    def f(q, k, freqs_cis):
        q, k = apply(q, freqs_cis), apply(k, freqs_cis)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        mask = torch.full(scores.shape[-2:], float("-inf")).triu(1)
        return torch.softmax(scores + mask, dim=-1), q, k

    return f, (torch.randn(1, 128, 4, 64), torch.randn(1, 128, 4, 64), precompute(64, 128))


@program
def kv_cache_append_attend():
    """One decoding step: keys and values written into a copy of the cache, attention up to each length."""

    def f(q, k_new, v_new, k_cache, v_cache, lengths):
        b = torch.arange(q.shape[0])
        k_cache, v_cache = k_cache.clone(), v_cache.clone()
        k_cache[b, :, lengths] = k_new
        v_cache[b, :, lengths] = v_new
        att = torch.einsum("bhd,bhtd->bht", q, k_cache) * q.shape[-1] ** -0.5
        valid = torch.arange(k_cache.shape[2])[None] <= lengths[:, None]
        att = att.masked_fill(~valid[:, None], torch.finfo(att.dtype).min)
        out = torch.einsum("bht,bhtd->bhd", att.float().softmax(-1).to(v_cache.dtype), v_cache)
        return out.flatten(1), k_cache, v_cache

    q, k, v = torch.randn(3, 4, 6, 32).bfloat16()
    cache = torch.randn(2, 4, 6, 160, 32).bfloat16()
    return f, (q, k, v, cache[0], cache[1], torch.tensor([17, 90, 143, 3]))


@program
def beam_search_step():
    """A step of beam search: finished beams frozen, top candidates, backpointers, length penalty."""

    def f(logits, beam_scores, finished, lengths, tokens, eos=2):
        b, k, v = logits.shape
        logp = F.log_softmax(logits, dim=-1)
        frozen = torch.full_like(logp, -1e9)
        frozen[:, :, eos] = 0.0
        logp = torch.where(finished[:, :, None], frozen, logp)
        total = beam_scores[:, :, None] + logp
        top, flat = total.view(b, k * v).topk(k, dim=1)
        parent = torch.div(flat, v, rounding_mode="floor")
        tok = flat % v
        fin = finished.gather(1, parent)
        new_len = lengths.gather(1, parent) + (~fin).long()
        seqs = torch.cat([tokens.gather(1, parent[..., None].expand_as(tokens)), tok[..., None]], dim=-1)
        penalised = top / ((5.0 + new_len) / 6.0) ** 0.6
        return seqs, top, fin | (tok == eos), new_len, penalised

    b, k, v = 4, 5, 3001
    fin = torch.rand(b, k) < 0.2
    lens = torch.randint(4, 12, (b, k))
    return f, (2 * torch.randn(b, k, v), -5 * torch.rand(b, k), fin, lens, torch.randint(0, v, (b, k, 12)))


@program
def label_smoothing_z_loss():
    """Label-smoothed cross entropy with padding, a z-loss, and token accuracy."""

    def f(logits, target, smoothing=0.1, pad=0):
        logits = logits.view(-1, logits.size(-1))
        target = target.reshape(-1)
        lse = torch.logsumexp(logits, dim=-1)
        nll = lse - logits.gather(-1, target[:, None]).squeeze(-1)
        smooth = lse - logits.mean(dim=-1)
        keep = target.ne(pad)
        loss = (1 - smoothing) * nll + smoothing * smooth + 1e-4 * lse.pow(2)
        loss = loss.masked_fill(~keep, 0.0)
        n = keep.sum()
        acc = ((logits.argmax(-1) == target) & keep).sum() / n
        return loss.sum() / n, acc, torch.exp((nll * keep).sum() / n)

    return f, (torch.randn(8, 64, 2000), torch.randint(0, 2000, (8, 64)) * (torch.rand(8, 64) > 0.15))


@program
def switch_router_capacity():
    """Switch Transformer's top-1 router: capacity by cumsum, dispatch and combine, balancing losses."""

    def f(x, w_gate, w_up, w_down):
        n_exp, n_tok = w_gate.shape[1], x.shape[0]
        cap = int(1.25 * n_tok / n_exp)
        logits = x @ w_gate
        probs = logits.softmax(-1)
        gate, idx = probs.max(-1)
        one_hot = F.one_hot(idx, n_exp)
        pos = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        fits = pos < cap
        slot = F.one_hot(pos.clamp(max=cap - 1), cap) * fits[:, None]
        dispatch = (one_hot[:, :, None] * slot[:, None, :]).to(x.dtype)
        inp = torch.einsum("tec,td->ecd", dispatch, x)
        out = torch.bmm(F.gelu(torch.bmm(inp, w_up)), w_down)
        y = torch.einsum("tec,ecd->td", dispatch * gate[:, None, None], out)
        aux = n_exp * (one_hot.float().mean(0) * probs.mean(0)).sum()
        return y, aux, logits.logsumexp(-1).pow(2).mean(), fits

    d, e = 32, 8
    w = 0.2 * torch.randn(e, d, 64), 0.2 * torch.randn(e, 64, d)
    return f, (torch.randn(250, d), torch.randn(d, e), *w)
