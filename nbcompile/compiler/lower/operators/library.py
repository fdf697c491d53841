"""Operators that are rightly called in ATen as themselves, each with the reason.

Loops of our own would be slower (matrix products), would need an algorithm rather than a loop (sorting,
factorizations), or have a size that only the data tell (nonzero, unique).
"""

from __future__ import annotations

from nbcompile.compiler.lower.registry import library, overload
from nbcompile.compiler.marked import marked


def _declare(reason: str, names: str) -> None:
    """Declare the operators ``names`` (``packet`` or ``packet.overload``, those this torch has)."""
    library(reason, *map(overload, names.split()))


_declare(
    "matrix product: the BLAS does it best",
    "mm mm.dtype bmm bmm.dtype addmm addmm.dtype baddbmm baddbmm.dtype addbmm addmv addr mv dot vdot "
    "_addmm_activation linear linear_backward _int_mm _scaled_mm _scaled_grouped_mm _grouped_mm "
    "_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu _dyn_quant_matmul_4bit "
    "mkldnn_linear mkldnn_linear_backward _trilinear",
)
_declare(
    "convolution: oneDNN picks a blocked algorithm for it",
    "convolution convolution_backward convolution_overrideable convolution_backward_overrideable "
    "_convolution mkldnn_convolution _slow_conv2d_forward _slow_conv2d_backward.output_mask "
    "slow_conv3d_forward "
    "conv_depthwise3d _conv_depthwise2d slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d "
    "slow_conv_dilated3d conv_tbc conv_tbc_backward",
)
_declare(
    "attention: one tiled kernel that never stores the scores",
    "scaled_dot_product_attention _scaled_dot_product_attention_math "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward "
    "_scaled_dot_product_fused_attention_overrideable "
    "_scaled_dot_product_fused_attention_overrideable_backward _scaled_dot_product_attention_math_for_mps "
    "_flash_attention_forward _flash_attention_backward _efficient_attention_forward "
    "_efficient_attention_backward _native_multi_head_attention _transformer_encoder_layer_fwd",
)
_declare(
    "factorization or solve: LAPACK's algorithm",
    "linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve _cholesky_solve_helper linalg_lu "
    "linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve lu_unpack linalg_ldl_factor_ex linalg_ldl_solve "
    "linalg_solve_triangular triangular_solve _linalg_solve_ex linalg_inv_ex linalg_pinv.atol_rtol_tensor "
    "linalg_qr geqrf ormqr linalg_householder_product linalg_eig _linalg_eigvals linalg_eigvals "
    "_linalg_eigh _linalg_svd _linalg_det _linalg_slogdet linalg_matrix_exp _linalg_check_errors "
    "linalg_lstsq linalg_tensorsolve",
)
_declare(
    "complex numbers on their way to or from a library or a caller",
    "view_as_real view_as_complex",
)
library("what the caller sees marked as a conjugate or a negative, as in eager", marked())
_declare(
    "Fourier transform: the FFT library's algorithm",
    "_fft_r2c _fft_c2r _fft_c2c stft istft",
)
_declare(
    "sorting or selection: an algorithm, not a loop over elements",
    "sort sort.stable argsort argsort.stable topk kthvalue median median.dim nanmedian nanmedian.dim mode "
    "msort searchsorted.Tensor searchsorted.Scalar bucketize.Tensor bucketize.Scalar histc "
    "histogram.bin_ct histogram.bins_tensor _histogramdd_bin_edges _histogramdd_from_bin_cts "
    "_histogramdd_from_bin_tensors bincount isin.Tensor_Tensor",
)
_declare(
    "scan: each element needs the one before it",
    "_cummax_helper _cummin_helper cumulative_trapezoid.x cumulative_trapezoid.dx segment_reduce "
    "_segment_reduce_backward",
)
_declare(
    "the size of its result depends on the data",
    "nonzero nonzero_static masked_select unique_dim unique_consecutive _unique _unique2 "
    "unique_dim_consecutive repeat_interleave.Tensor _local_scalar_dense masked_scatter "
    "masked_scatter_backward _ctc_loss _ctc_loss.Tensor _ctc_loss_backward _ctc_loss_backward.Tensor "
    "_use_cudnn_ctc_loss",
)
_declare(
    "recurrent layer: each step needs the one before it",
    "mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward miopen_rnn "
    "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell "
    "_thnn_fused_gru_cell_backward _lstm_mps",
)
_declare(
    "bags of rows of several lengths",
    "_embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward "
    "_embedding_bag_sparse_backward _embedding_bag_per_sample_weights_backward",
)
_declare(
    "distances of all pairs: blocked like a matrix product",
    "_cdist_forward _cdist_backward _pdist_forward _pdist_backward _euclidean_dist",
)
_declare(
    "sampling at computed places, with a tuned kernel in ATen",
    "grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward "
    "_grid_sampler_2d_cpu_fallback _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward "
    "_upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward",
)
_declare(
    "windows of several sizes",
    "adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward "
    "fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d "
    "fractional_max_pool3d_backward",
)
_declare(
    "a check that the program asks for: it raises, or nothing comes of it",
    "_assert_async _assert_async.msg _functional_assert_async.msg _assert_scalar _functional_assert_scalar",
)
