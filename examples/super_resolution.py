"""Super-resolution of a photograph by gradient descent, with this package's adjoints.

A photograph is blurred, reduced to a quarter of its width and height and given noise; the program
looks for the large image x that explains the small one y, by accelerated gradient descent on

    |R B x - y|**2 / 2  +  weight * TV(x)

with B the blur (a depthwise convolution), R the bilinear reduction and TV a smooth total
variation. The forward model is plain NumPy; its transposes, which the gradient B' R' (R B x - y)
needs, are ``convolution_backward_data`` and ``interpolate_backward``. It prints the PSNR and writes
the small, the plainly enlarged and the restored picture.

    pip install 'gradops-cy[examples]' && python super_resolution.py --output pictures
"""

import argparse
from pathlib import Path

import numpy as np
from skimage import data, io, metrics

from gradops_cy import convolution_backward_data, interpolate_backward

SCALE = 4
BLUR = 7


def gaussian(size, sigma):
    """Return a normalised two-dimensional kernel."""
    x = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    kernel = np.outer(x, x)
    return (kernel / kernel.sum()).astype(np.float32)


class Camera:
    """Blur and bilinear reduction of images (1, H, W, C), and their transpose."""

    def __init__(self, height, width, channels):
        self.shape = (1, height, width, channels)
        self.kernel = gaussian(BLUR, 1.6)
        # Depthwise weights (kh, kw, 1, C): the same kernel for every channel.
        self.weights = np.repeat(self.kernel[:, :, None, None], channels, axis=3)

    def forward(self, image):
        """Return R B image, with NumPy alone."""
        _, height, width, _ = self.shape
        pad = BLUR // 2
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        blurred = sum(
            self.kernel[i, j] * padded[:, i : i + height, j : j + width]
            for i in range(BLUR)
            for j in range(BLUR)
        )
        # Half-pixel bilinear sampling at an even scale: the mean of the two middle pixels.
        middle = SCALE // 2
        for axis in (1, 2):
            low = np.arange(middle - 1, self.shape[axis], SCALE)
            blurred = (blurred.take(low, axis) + blurred.take(low + 1, axis)) / 2
        return blurred

    def adjoint(self, residual):
        """Return B' R' residual, with this package."""
        blurred = interpolate_backward(self.shape, residual, mode="bilinear")
        return convolution_backward_data(
            blurred,
            self.weights,
            self.shape,
            strides=1,
            pads_begin=BLUR // 2,
            pads_end=BLUR // 2,
            dilations=1,
            groups=self.shape[3],
        )


def total_variation_gradient(image, softness=0.01):
    """Return the gradient of the sum of sqrt(dx**2 + dy**2 + softness**2)."""
    dy = np.diff(image, axis=1, append=image[:, -1:])
    dx = np.diff(image, axis=2, append=image[:, :, -1:])
    length = np.sqrt(dx**2 + dy**2 + softness**2)
    dy, dx = dy / length, dx / length
    return np.roll(dy, 1, 1) - dy + np.roll(dx, 1, 2) - dx


def check_adjoint(camera, rng):
    """Check <A x, y> == <x, A' y> for random x and y."""
    x = rng.standard_normal(camera.shape).astype(np.float32)
    small = (1, camera.shape[1] // SCALE, camera.shape[2] // SCALE, camera.shape[3])
    y = rng.standard_normal(small).astype(np.float32)
    left = np.vdot(camera.forward(x).astype(np.float64), y)
    right = np.vdot(x.astype(np.float64), camera.adjoint(y))
    if abs(left - right) > 1e-5 * np.linalg.norm(x) * np.linalg.norm(y):
        raise AssertionError(f"the adjoint is wrong: {left} against {right}")
    print(f"adjoint: <Ax, y> = {left:.4f}, <x, A'y> = {right:.4f}")


def enlarge(small):
    """Return the plain bilinear enlargement."""
    for axis in (1, 2):
        extent = small.shape[axis]
        at = np.clip((np.arange(extent * SCALE) + 0.5) / SCALE - 0.5, 0, extent - 1)
        low = np.minimum(at.astype(int), extent - 2)
        share = np.expand_dims((at - low).astype(np.float32), tuple(set(range(4)) - {axis}))
        small = small.take(low, axis) * (1 - share) + small.take(low + 1, axis) * share
    return small


def restore(camera, small, original, iterations, weight):
    """Minimise by Nesterov's method from the plain enlargement; print the PSNR on the way."""
    x = momentum = enlarge(small)
    # |A|**2 <= 1, and the total variation is 8/softness smooth.
    step = 1 / (1 + weight * 8 / 0.01)
    t = 1.0
    for i in range(iterations + 1):
        if i % 20 == 0:
            print(f"iteration {i:3d}: PSNR {psnr(original, x):.2f} dB")
        gradient = camera.adjoint(camera.forward(momentum) - small)
        gradient += weight * total_variation_gradient(momentum)
        new = np.clip(momentum - step * gradient, 0, 1)
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        momentum = new + np.float32((before - 1) / t) * (new - x)
        x = new
    return x


def psnr(original, image):
    return metrics.peak_signal_noise_ratio(original, np.clip(image, 0, 1), data_range=1)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="pictures", help="folder for the pictures")
    parser.add_argument("--iterations", type=int, default=120)
    arguments = parser.parse_args(argv)

    original = data.astronaut().astype(np.float32)[np.newaxis] / 255
    rng = np.random.default_rng(0)
    camera = Camera(*original.shape[1:])
    check_adjoint(camera, rng)
    small = camera.forward(original)
    small += np.float32(0.005) * rng.standard_normal(small.shape).astype(np.float32)

    plain = enlarge(small)
    restored = restore(camera, small, original, arguments.iterations, weight=2e-4)
    before, after = psnr(original, plain), psnr(original, restored)
    print(f"enlarged {before:.2f} dB, restored {after:.2f} dB")

    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"small": small, "enlarged": plain, "restored": restored, "original": original}
    for name, image in pictures.items():
        pixels = (np.clip(image[0], 0, 1) * 255).round().astype(np.uint8)
        io.imsave(folder / f"{name}.png", pixels, check_contrast=False)
    side_by_side = np.concatenate([plain, restored, original], axis=2)[0, 20:260, :]
    pixels = (np.clip(side_by_side, 0, 1) * 255).round().astype(np.uint8)
    io.imsave(folder / "side_by_side.png", pixels, check_contrast=False)
    print(f"pictures in {folder}")
    return before, after


if __name__ == "__main__":
    main()
