"""Vision: losses, colour, warps, boxes."""

import math

import torch
import torch.nn.functional as F

from strangers.corpus import program


@program
def ciou_matched_boxes():
    """Complete-IoU loss between matched xyxy boxes."""

    def f(pred, target, weight, eps=1e-7):
        x1, y1, x2, y2 = pred.unbind(-1)
        x1g, y1g, x2g, y2g = target.unbind(-1)
        inter_w = (torch.min(x2, x2g) - torch.max(x1, x1g)).clamp(min=0)
        inter_h = (torch.min(y2, y2g) - torch.max(y1, y1g)).clamp(min=0)
        inter = inter_w * inter_h
        union = (x2 - x1) * (y2 - y1) + (x2g - x1g) * (y2g - y1g) - inter
        iou = inter / (union + eps)
        cw = torch.max(x2, x2g) - torch.min(x1, x1g)
        ch = torch.max(y2, y2g) - torch.min(y1, y1g)
        diag = cw**2 + ch**2 + eps
        dist = ((x1 + x2 - x1g - x2g) ** 2 + (y1 + y2 - y1g - y2g) ** 2) / 4
        wp, hp = x2 - x1, y2 - y1
        wg, hg = x2g - x1g, y2g - y1g
        v = (4 / math.pi**2) * (torch.atan(wg / hg) - torch.atan(wp / hp)) ** 2
        alpha = v / (1 - iou + v + eps)
        loss = 1 - iou + dist / diag + alpha * v
        return (loss * weight).sum() / weight.sum(), iou

    xy = torch.rand(2000, 2) * 500
    wh = torch.rand(2000, 2) * 90 + 10
    gt = torch.cat([xy, xy + wh], -1)
    return f, (gt + 4 * torch.rand(2000, 4), gt, torch.rand(2000))


@program
def ssim_gaussian_window():
    """SSIM with an 11x11 Gaussian window, as in pytorch-ssim, mixed with L1."""

    def gaussian(size, sigma):
        x = torch.arange(size) - size // 2
        g = torch.exp(-(x.float() ** 2) / (2 * sigma**2))
        return g / g.sum()

    def f(img1, img2):
        ch = img1.size(1)
        g = gaussian(11, 1.5)
        window = torch.outer(g, g).expand(ch, 1, 11, 11).contiguous()
        mu1 = F.conv2d(img1, window, padding=5, groups=ch)
        mu2 = F.conv2d(img2, window, padding=5, groups=ch)
        mu1_sq, mu2_sq, mu12 = mu1.pow(2), mu2.pow(2), mu1 * mu2
        s1 = F.conv2d(img1 * img1, window, padding=5, groups=ch) - mu1_sq
        s2 = F.conv2d(img2 * img2, window, padding=5, groups=ch) - mu2_sq
        s12 = F.conv2d(img1 * img2, window, padding=5, groups=ch) - mu12
        c1, c2 = 0.01**2, 0.03**2
        ssim = ((2 * mu12 + c1) * (2 * s12 + c2)) / ((mu1_sq + mu2_sq + c1) * (s1 + s2 + c2))
        return 0.8 * F.l1_loss(img1, img2) + 0.2 * (1.0 - ssim.mean())

    a = torch.rand(1, 3, 128, 128)
    return f, (a, (a + 0.1 * torch.randn_like(a)).clamp(0, 1))


@program
def rgb_to_lab_delta_e():
    """sRGB to CIELAB of two images and their Delta E, mean and map."""
    to_xyz = torch.tensor(
        [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
    )

    def to_lab(rgb, m):
        lin = torch.where(rgb > 0.04045, ((rgb + 0.055) / 1.055).pow(2.4), rgb / 12.92)
        xyz = torch.einsum("ij,bjhw->bihw", m, lin)
        xyz = xyz / torch.tensor([0.95047, 1.0, 1.08883]).view(1, 3, 1, 1)
        fx = torch.where(xyz > 0.008856, xyz.clamp(min=0.008856).pow(1 / 3), 7.787 * xyz + 4.0 / 29.0)
        x, y, z = fx[:, 0], fx[:, 1], fx[:, 2]
        return torch.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], dim=1)

    def f(a, b, m):
        diff = to_lab(a, m) - to_lab(b, m)
        de = diff.pow(2).sum(1).add(1e-8).sqrt()
        return de.mean(dim=(1, 2)), de

    return f, (torch.rand(2, 3, 240, 320), torch.rand(2, 3, 240, 320), to_xyz)


@program
def homography_grid_warp():
    """A batch of images warped by homographies through grid_sample, with a coverage mask."""

    def f(img, hom):
        b, _, h, w = img.shape
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        pts = torch.stack([xs, ys, torch.ones_like(xs)], dim=-1).view(1, -1, 3)
        warped = pts @ hom.transpose(1, 2)
        grid = (warped[..., :2] / warped[..., 2:].clamp(min=1e-6)).view(b, h, w, 2)
        out = F.grid_sample(img, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
        mask = F.grid_sample(torch.ones_like(img[:, :1]), grid, padding_mode="zeros", align_corners=True)
        return out, (out * mask).sum((2, 3)) / mask.sum((2, 3))

    hom = torch.eye(3).repeat(2, 1, 1) + 0.08 * torch.randn(2, 3, 3)
    return f, (torch.rand(2, 3, 240, 251), hom)
