"""Backward operators of convolution and image resizing on NumPy arrays."""

from gradops_cy._config import show_config
from gradops_cy._threads import get_num_threads, set_num_threads
from gradops_cy._version import __version__
from gradops_cy.convolution import (
    ConvolutionPlan,
    conv_transpose_backward_data,
    conv_transpose_backward_data_plan,
    convolution_backward_data,
    convolution_backward_data_plan,
)
from gradops_cy.interpolation import (
    InterpolationPlan,
    interpolate_backprop,
    interpolate_backward,
    interpolate_backward_plan,
    resize_bilinear_v2_grad,
)

__all__ = [
    "ConvolutionPlan",
    "InterpolationPlan",
    "__version__",
    "conv_transpose_backward_data",
    "conv_transpose_backward_data_plan",
    "convolution_backward_data",
    "convolution_backward_data_plan",
    "get_num_threads",
    "interpolate_backprop",
    "interpolate_backward",
    "interpolate_backward_plan",
    "resize_bilinear_v2_grad",
    "set_num_threads",
    "show_config",
]
