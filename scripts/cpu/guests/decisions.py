"""Finance, reinforcement learning, recommender systems, survival analysis."""

import math

import torch
import torch.nn.functional as F

from guests.corpus import program, training

# -------------------------------------------------------------------------------------------- 1, 2: finance


@training
def sabr_smile_step():
    """Hagan's lognormal SABR smiles of seven expiries against quotes, a descent step of raw parameters."""
    beta = 0.5

    def smile(raw, forward, strikes, expiry):
        alpha, rho, nu = F.softplus(raw[:, :1]), torch.tanh(raw[:, 1:2]), F.softplus(raw[:, 2:])
        log_fk = torch.log(forward / strikes)
        fk = (forward * strikes) ** ((1 - beta) / 2)
        at_money = log_fk.abs() < 1e-4
        z = nu / alpha * fk * torch.where(at_money, torch.ones_like(log_fk), log_fk)
        x = torch.log((torch.sqrt(1 - 2 * rho * z + z**2) + z - rho) / (1 - rho))
        ratio = torch.where(at_money, torch.ones_like(z), z / x)
        drift = (1 - beta) ** 2 * alpha**2 / (24 * fk**2) + 0.25 * rho * beta * nu * alpha / fk
        drift = drift + (2 - 3 * rho**2) * nu**2 / 24
        wings = 1 + (1 - beta) ** 2 * log_fk**2 / 24 + (1 - beta) ** 4 * log_fk**4 / 1920
        return alpha * ratio * (1 + drift * expiry) / (fk * wings)

    def loss(raw, forward, strikes, expiry, quotes):
        vega = torch.exp(-0.5 * (torch.log(forward / strikes) / (quotes * expiry.sqrt())) ** 2)
        error = smile(raw, forward, strikes, expiry) - quotes
        return (vega * error**2).sum() / vega.sum() * 1e4

    def step(raw, *market):
        value = loss(raw, *market)
        (slope,) = torch.autograd.grad(value, raw)
        return value.detach(), slope, raw.detach() - 0.01 * slope

    forward = 2.5 + 0.5 * torch.rand(7, 1)
    strikes = forward * torch.linspace(0.7, 1.3, 11)
    expiry = torch.tensor([1 / 12, 0.25, 0.5, 1, 2, 5, 10]).view(7, 1)
    quotes = 0.25 + 0.1 * (strikes / forward - 1.05) ** 2 + 0.01 * torch.rand(7, 11)
    raw = torch.tensor([-0.8, -0.3, 0.1]) + 0.1 * torch.randn(7, 3)
    return step, (raw.requires_grad_(), forward, strikes, expiry, quotes), loss


@program
def longstaff_schwartz_put():
    """An American put by least squares on in-the-money antithetic paths, backwards over 20 dates, float64."""
    rate, sigma, dt, strike = 0.05, 0.3, 1 / 20, 105.0

    def f(noise):
        z = torch.cat([noise, -noise])
        log_s = ((rate - 0.5 * sigma**2) * dt + sigma * math.sqrt(dt) * z).cumsum(1)
        s = 100.0 * log_s.exp()
        payoff = (strike - s).clamp(min=0)
        cash = payoff[:, -1]
        when = torch.full_like(cash, s.shape[1], dtype=torch.int64)
        for t in range(s.shape[1] - 2, -1, -1):
            cash = cash * math.exp(-rate * dt)
            itm = payoff[:, t] > 0
            x = s[:, t] / strike
            basis = torch.stack([torch.ones_like(x), 1 - x, 1 - 2 * x + x * x / 2], dim=1)
            weighted = basis * itm[:, None]
            gram = weighted.T @ basis + 1e-8 * torch.eye(3, dtype=x.dtype)
            held = basis @ torch.linalg.solve(gram, weighted.T @ cash)
            exercise = itm & (payoff[:, t] > held)
            cash = torch.where(exercise, payoff[:, t], cash)
            when = torch.where(exercise, t + 1, when)
        values = cash * math.exp(-rate * dt)
        return values.mean(), values.std() / math.sqrt(values.shape[0]), when

    return f, (torch.randn(1501, 20, dtype=torch.float64),)


# ---------------------------------------------------------------------------- 3, 4: reinforcement learning


@program
def sumtree_prioritized_batch():
    """Stratified draws from a sum tree with given uniforms, importance weights, and the new priorities."""

    def f(priorities, uniforms, td_error):
        levels = [priorities]
        while levels[-1].numel() > 2:
            levels.append(levels[-1].view(-1, 2).sum(1))
        total = levels[-1].sum()
        n = uniforms.shape[0]
        mass = (torch.arange(n) + uniforms) / n * total
        index = torch.zeros(n, dtype=torch.long)
        for level in reversed(levels):
            left = level[2 * index]
            right = mass > left
            mass = torch.where(right, mass - left, mass)
            index = 2 * index + right
        weights = (priorities.numel() * priorities[index] / total) ** -0.4
        updated = priorities.clone()
        updated[index] = (td_error.abs().clamp(max=1.0) + 1e-2) ** 0.6
        return index, weights / weights.max(), updated

    return f, (torch.rand(16) * 0.1 + 0.5, torch.rand(5), torch.randn(5))


@training
def grpo_masked_step():
    """Group-relative policy optimisation: normalised rewards, asymmetric clipping, k3 penalty, masks."""

    def loss(head, hidden, tokens, old, ref, rewards, lengths):
        logits = F.linear(hidden, head) / 0.9
        logp = torch.log_softmax(logits, dim=-1)
        entropy = -(logp.exp() * logp).sum(-1)
        taken = logp.gather(-1, tokens[..., None]).squeeze(-1)
        advantage = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        advantage = advantage.flatten()[:, None]
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        ratio = torch.exp(taken - old)
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        delta = ref - taken
        per_token = -surrogate + 0.04 * (delta.exp() - delta - 1) - 0.001 * entropy
        return (per_token * mask).sum() / mask.sum()

    def step(head, *batch):
        weight = head.detach().requires_grad_()
        value = loss(weight, *batch)
        value.backward()
        norm = weight.grad.norm()
        return value.detach(), norm, weight.grad * (1.0 / norm).clamp(max=1.0)

    hidden, head = torch.randn(12, 37, 56), torch.randn(701, 56) / 8
    tokens = torch.randint(701, (12, 37))
    now = torch.log_softmax(hidden @ head.T / 0.9, -1).gather(-1, tokens[..., None])[..., 0]
    old, ref = now + 0.1 * torch.randn(12, 37), now + 0.2 * torch.randn(12, 37)
    lengths = torch.randint(9, 38, (12,))
    return step, (head.requires_grad_(), hidden, tokens, old, ref, torch.rand(3, 4), lengths), loss


# ---------------------------------------------------------------------------------------- 5, 6: recommenders


@training
def two_tower_logq_step():
    """Histories as bags against items in the batch: softmax corrected by log Q, accidental hits masked."""

    def loss(p, history, offsets, ages, items, log_q):
        user = F.embedding_bag(history, p["items"], offsets, mode="sum", per_sample_weights=0.97**ages)
        user = F.relu(F.linear(user, p["user_in"], p["user_bias"]))
        user = F.normalize(F.linear(user, p["user_out"]), dim=-1)
        item = F.normalize(F.linear(F.embedding(items, p["items"]), p["item_out"]), dim=-1)
        logits = user @ item.T / 0.07 - log_q
        same = items[:, None] == items[None, :]
        accidental = same & ~torch.eye(len(items), dtype=torch.bool)
        return F.cross_entropy(logits.masked_fill(accidental, float("-inf")), torch.arange(len(items)))

    def step(p, *batch):
        value = loss(p, *batch)
        return (value.detach(), *torch.autograd.grad(value, list(p.values())))

    lengths = torch.randint(1, 23, (150,))
    offsets = lengths.cumsum(0) - lengths
    history, items = torch.randint(1203, (int(lengths.sum()),)), torch.randint(307, (150,))
    p = {
        "items": torch.randn(1203, 24) / 5,
        "user_in": torch.randn(72, 24) / 5,
        "user_bias": torch.zeros(72),
        "user_out": torch.randn(40, 72) / 8,
        "item_out": torch.randn(40, 24) / 5,
    }
    p = {name: tensor.requires_grad_() for name, tensor in p.items()}
    log_q = torch.log_softmax(torch.randn(307), 0)[items]
    return step, (p, history, offsets, torch.rand(history.numel()) * 30, items, log_q), loss


@program
def ease_topk_ndcg():
    """EASE item weights in closed form, the top ten of what is unseen, NDCG of what was held out."""

    def f(seen, held):
        gram = seen.T @ seen
        gram.diagonal().add_(7.5)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        weights = inverse / -inverse.diagonal()
        weights.fill_diagonal_(0)
        scores = (seen @ weights).masked_fill(seen > 0, -1e9)
        best, where = scores.topk(10, dim=1)
        hits = held.gather(1, where)
        discount = 1 / torch.log2(torch.arange(10) + 2.0)
        relevant = held.sum(1)
        ideal = discount.cumsum(0)[(relevant.clamp(1, 10) - 1).long()]
        return where, best, (hits * discount).sum(1) / ideal

    taste = torch.randn(37, 5) @ torch.randn(5, 23) / 2 - 0.5 + torch.randn(37, 23)
    held = (taste > 0) & (torch.rand(37, 23) < 0.2)
    return f, (((taste > 0) & ~held).float(), held.float())


# --------------------------------------------------------------------------------------------- 7, 8: survival


@program
def kaplan_meier_logrank():
    """Kaplan-Meier curves of two arms over months, and the log-rank statistic's p-value, float64."""

    def f(months, event, arm):
        slot = 2 * months + arm
        both = torch.stack([torch.ones_like(event, dtype=torch.float64), event.double()], dim=1)
        table = torch.zeros(2 * 41, 2, dtype=torch.float64).index_add_(0, slot, both).view(41, 2, 2)
        leaving, deaths = table.unbind(-1)
        at_risk = leaving.flip(0).cumsum(0).flip(0)
        survival = torch.cumprod(1 - deaths / at_risk.clamp(min=1), dim=0)
        n, d = at_risk.sum(1), deaths.sum(1)
        share = at_risk[:, 1] / n.clamp(min=1)
        variance = d * share * (1 - share) * (n - d) / (n - 1).clamp(min=1)
        chi2 = (deaths[:, 1] - d * share).sum() ** 2 / variance.sum()
        return survival, chi2, torch.erfc((chi2 / 2).sqrt())

    arm = torch.randint(2, (173,))
    months = (torch.empty(173).exponential_(0.08) * (1 + 0.5 * arm)).long().clamp(max=40)
    return f, (months, torch.rand(173) < 0.7, arm)


@training
def cox_efron_step():
    """Cox's partial likelihood with Efron's ties over integer times: gradient and Hessian, a Newton step."""

    def loss(beta, x, day, event):
        eta = x @ beta
        risk = eta.exp()
        per_day = torch.zeros(61).index_add(0, day, risk)
        at_risk = per_day.flip(0).cumsum(0).flip(0)
        tied = torch.zeros(61).index_add(0, day, risk * event)
        count = torch.zeros(61).index_add(0, day, event)
        order = (F.one_hot(day, 61) * event[:, None]).cumsum(0).gather(1, day[:, None]).squeeze(1) - 1
        part = order.clamp(min=0) / count[day].clamp(min=1)
        denominator = at_risk[day] - part * tied[day]
        return ((denominator.log() - eta) * event).sum() / event.sum() + 0.01 * beta.square().sum()

    def step(beta, *data):
        slope, value = torch.func.grad_and_value(loss)(beta, *data)
        rows = []
        leaf = beta.detach().requires_grad_()
        (first,) = torch.autograd.grad(loss(leaf, *data), leaf, create_graph=True)
        for entry in first:
            rows.append(torch.autograd.grad(entry, leaf, retain_graph=True)[0])
        hessian = torch.stack(rows)
        return value.detach(), slope.detach(), beta.detach() - torch.linalg.solve(hessian, slope).detach()

    x, beta = torch.randn(509, 7), torch.randn(7) / 3
    hazard = (x @ torch.randn(7) / 2).exp()
    day = (torch.empty(509).exponential_(0.05) / hazard).long().clamp(max=60)
    return step, (beta.requires_grad_(), x, day, (torch.rand(509) < 0.8).float()), loss
