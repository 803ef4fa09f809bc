"""The table of names that PyTorch and NumPy have and graphc spells otherwise."""

from __future__ import annotations

import re

OTHER_NAMES = {
    "absolute": "abs",
    "addbmm": "baddbmm",
    "adjoint": "matrix_transpose",
    "affine_grid_generator": "affine_grid",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "arg_max": "argmax",
    "argwhere": "where",
    "as_strided": "getitem",
    "as_strided_scatter": "slice_scatter",
    "binomial": "bernoulli",
    "bmm": "matmul",
    "broadcast_tensors": "broadcast_arrays",
    "cat": "concat",
    "chain_matmul": "multi_dot",
    "clamp": "clip",
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "concatenate": "concat",
    "constant_pad_nd": "pad",
    "conv_tbc": "conv1d",
    "convolution": "conv2d",
    "convolution_add_relu": "conv2d",
    "convolution_relu": "conv2d",
    "convolution_transpose": "conv_transpose2d",
    "cross_entropy_loss": "cross_entropy",
    "depthwise_convolution": "conv2d",
    "detach": "stop_gradient",
    "div": "divide",
    "dot": "vecdot",
    "dsmm": "matmul",
    "embedding_bag": "embedding",
    "embedding_renorm": "embedding",
    "empty": "zeros",
    "empty_like": "zeros_like",
    "empty_permuted": "zeros",
    "empty_strided": "zeros",
    "eq": "equal",
    "expit": "sigmoid",
    "feature_dropout": "dropout2d",
    "fix": "trunc",
    "fractional_max_pool2d": "adaptive_max_pool2d",
    "fractional_max_pool3d": "max_pool3d",
    "frexp": "log2",
    "frobenius_norm": "norm",
    "from_dlpack": "as_tensor",
    "from_file": "as_tensor",
    "from_numpy": "as_tensor",
    "gammaln": "lgamma",
    "frombuffer": "as_tensor",
    "ge": "greater_equal",
    "ger": "outer",
    "grid_sampler": "grid_sample",
    "grid_sampler_2d": "grid_sample",
    "grid_sampler_3d": "grid_sample",
    "gru": "gru_cell",
    "gt": "greater",
    "histogram": "histc",
    "histogramdd": "histc",
    "hsmm": "matmul",
    "hspmm": "matmul",
    "igamma": "lgamma",
    "igammac": "lgamma",
    "index_put": "scatter",
    "index_reduce": "scatter_reduce",
    "is_tensor": "as_tensor",
    "is_nonzero": "not_equal",
    "le": "less_equal",
    "lstm": "lstm_cell",
    "lt": "less",
    "masked_scatter": "where",
    "masked_select": "where",
    "max_pool1d_with_indices": "max_pool1d",
    "max_unpool2d": "interpolate",
    "mm": "matmul",
    "movedim": "moveaxis",
    "mul": "multiply",
    "multi_head_attention_forward": "scaled_dot_product_attention",
    "mv": "matmul",
    "mvlgamma": "multigammaln",
    "native_channel_shuffle": "permute_dims",
    "ne": "not_equal",
    "neg": "negative",
    "nonzero": "where",
    "norm_except_dim": "norm",
    "permute": "permute_dims",
    "poisson": "randint",
    "power": "pow",
    "psi": "digamma",
    "put": "scatter",
    "range": "arange",
    "relu_": "relu",
    "repeat_interleave": "repeat",
    "resize_as": "reshape",
    "rnn": "lstm_cell",
    "rnn_layer": "lstm_cell",
    "rnn_relu": "rnn_tanh_cell",
    "rnn_tanh": "rnn_tanh_cell",
    "row_stack": "vstack",
    "rrelu_": "leaky_relu",
    "rsub": "subtract",
    "saddmm": "addmm",
    "scalar_tensor": "as_tensor",
    "scaled_grouped_mm": "grouped_mm",
    "scaled_mm": "matmul",
    "segment_reduce": "scatter_reduce",
    "sgn": "sign",
    "slice": "getitem",
    "smm": "matmul",
    "split_with_sizes": "split",
    "spmm": "matmul",
    "sspaddmm": "addmm",
    "sub": "subtract",
    "swapdims": "swapaxes",
    "take_along_dim": "take_along_axis",
    "tensor": "as_tensor",
    "trapz": "trapezoid",
    "true_divide": "divide",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
    "upsample": "interpolate",
    "upsample_bilinear": "interpolate",
    "upsample_nearest": "interpolate",
    "vdot": "vecdot",
    "vector_norm": "norm",
    "view": "reshape",
    "view_as": "reshape",
}
"""Names without a function here -> the nearest one."""

_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        "i?r?fft|istft|stft",
        "graphc.fft has fft, ifft, rfft and irfft, of real and imaginary parts as two tensors",
    ),
    (
        "real|imag|angle|polar|complex|is_complex|isreal|is_conj|is_neg|"
        "conj.*|resolve_.*|view_as_(real|complex).*",
        "numbers are real: keep real and imaginary parts as two tensors",
    ),
    (
        "cholesky.*|det|eig.*|geqrf|inv|inverse|lobpcg|logdet|slogdet|lstsq|lu|lu_.*|"
        "matrix_(exp|rank)|nuclear_norm|orgqr|ormqr|pca_lowrank|pinverse|qr|solve|svd.*|symeig|"
        "triangular_solve",
        "graphc.linalg factors matrices: cholesky, det, eigh, inv, qr, slogdet, solve, svd, "
        "triangular_solve",
    ),
    (
        "unique.*|nonzero_static|masked_select",
        "shapes are static, and do not depend on elements: graphc.where keeps the shape",
    ),
    (
        "sparse_.*|(.*_)?(indices|values)_copy|resize_as_sparse_",
        "tensors are dense: graphc.take and graphc.scatter_add work by indices",
    ),
    (
        ".*quant.*|q_.*|fbgemm_.*|int_repr|choose_qparams.*",
        'there are no quantized numbers: use x.astype("int8")',
    ),
    (
        ".*seed|.*_rng_state|Generator|thread_safe_generator",
        "graphc.seed(number) sets initial values and draws, compile's seed= those of one program",
    ),
    (
        ".*autocast.*|GradScaler",
        "compile's mixed= says in which two-byte dtype products are computed",
    ),
    (
        "set_float32_.*|get_float32_.*",
        "compile's precision= says what products are computed in",
    ),
    (
        ".*(grad_enabled|_grad|inference.*|anomaly.*|is_inference)",
        "only what an update rule or graphc.grad asks for is differentiated",
    ),
    (
        ".*(num|interop|init)_threads|get_device.*|.*default_device|.*_default_(dtype|tensor_type)|"
        "set_flush_denormal|.*determinis.*|device|Stream|Event",
        "compile's device=, threads= and streams= say where and how a program runs; its results "
        "are the same each time",
    ),
    (
        "save",
        "program.save writes a program, graphc.save_weights a model's weights, "
        "graphc.save_checkpoint a training run",
    ),
    (
        "cuda|cpu|backends|mps|xpu|distributed|accelerator",
        "compile's device= says where a program runs",
    ),
    ("amp", "compile's precision= says what products are computed in"),
    ("jit|fx|_?dynamo|export", "graphc.compile makes a program and runs it"),
    ("func", "graphc.grad and graphc.value_and_grad give gradients"),
    (
        "utils",
        "programs are called with arrays, from any loader; optim's rules have clip_grad_norm=",
    ),
    (
        "(float|int|bfloat|uint)[0-9]+|half|double|long|short",
        'dtypes are names: x.astype("float32"), graphc.spec(shape, "int64")',
    ),
    ("numel", "use x.size"),
    ("t|t_copy", "use x.T"),
    ("clone", "tensors never change: use x itself"),
    (
        "typename|is_floating_point|is_(same_size|signed|storage)|[fi]info|dtype",
        "see x.dtype, x.shape",
    ),
    (
        "can_cast|promote_types|result_type",
        "dtypes are promoted as PyTorch does: see (x + y).dtype",
    ),
    (".*_window", "give the window to the program as an array: NumPy and SciPy make it"),
    ("unravel_index", "use graphc.remainder and graphc.floor_divide by the extents"),
    (".+ctc_loss", "graphc.ctc_loss is for every device"),
    (
        "functional_call",
        "load_state_dict gives a model other weights; where they are computed in the program, "
        "write the function of tensors and pass them as arguments",
    ),
    (
        "batch_norm_.*|fork|wait|import_ir_.*|parse_.*|sym_.*|merge_type_.*|unify_type_list|"
        "is_(distributed|vulkan.*|warn_always_enabled)|set_(printoptions|warn_always|vital)|"
        "prepare_.*|profiler_.*|compiled_.*|classproperty|get_file_path|to_dlpack|"
        "cudnn_is_acceptable|.*_linear_backward_weights|compile_.*|[A-Z].*|autocast|layout|"
        "memory_format|qscheme|norm_.*|native_norm|alias_copy|slice_inverse",
        "that is machinery of PyTorch's; graphc.compile makes a program and runs it",
    ),
)
"""Patterns of names that nothing stands for -> what to do instead; the first that fits."""


def remedy(name: str) -> str:
    """What to do for want of `name`, or ""."""
    return next((text for pattern, text in _REMEDIES if re.fullmatch(pattern, name)), "")
