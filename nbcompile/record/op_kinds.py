"""A first guess at what an operator is, by its name alone: a call into a library, a view."""

from __future__ import annotations

LIBRARY_OPS = frozenset(
    "mm addmm bmm baddbmm addbmm addmv mv dot vdot convolution convolution_backward _convolution sort "
    "topk kthvalue median nanmedian mode unique _unique2 cumsum cumprod cummax cummin logcumsumexp "
    "nonzero masked_select bincount histc searchsorted bucketize multinomial cholesky triangular_solve "
    "_grid_sampler_2d_cpu_fallback mkldnn_rnn_layer _cdist_forward _embedding_bag "
    "_embedding_bag_forward_only linear_cross_entropy scale_gradient".split()
)
"""ATen ops that are a call into a library whatever the compiler: lowering decides."""
LIBRARY_PREFIXES = ("linalg_", "_linalg_", "_fft_", "_scaled_dot_product", "_flash", "_efficient")

FX_VIEWS = frozenset(
    "view reshape permute transpose t T mT squeeze unsqueeze expand expand_as narrow select flatten "
    "unflatten swapaxes movedim getitem chunk split unbind diagonal view_as contiguous getattr".split()
)
FX_LIBRARY = frozenset(
    "linear matmul mm bmm addmm baddbmm einsum bilinear conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d scaled_dot_product_attention multi_head_attention_forward sort "
    "argsort topk cumsum".split()
)

ATEN_VIEWS = frozenset(
    "alias as_strided detach diagonal expand lift_fresh narrow permute real imag select slice split "
    "split_with_sizes squeeze t transpose unbind unfold unsqueeze view view_as_real view_as_complex "
    "_unsafe_view _reshape_alias".split()
)
"""ATen ops whose result shares its input's memory: for graphs of which only the text is there."""
