"""The augmentation written a second time, in numpy, and compared with horon_augment_dump.

Choices are made in float32, as the program makes them; pixels are computed in float64.
HORON_BIN: the folder of the program (build/release/bin by default).
"""

import functools
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("HORON_BIN", ROOT / "build/release/bin")) / "horon_augment_dump"
GEOMETRY, FLIP, COLOUR, CUTOUT = 1, 2, 3, 4
F = np.float32
LOW32 = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & LOW32, (p0 >> 32) ^ c3 ^ k1, p0 & LOW32
        k0, k1 = (k0 + 0x9E3779B9) & LOW32, (k1 + 0xBB67AE85) & LOW32
    return [c0, c1, c2, c3]


class Draws:
    """The random numbers of one operation on one sample in one epoch."""

    def __init__(self, seed, epoch, sample, operation):
        self.key = (seed & LOW32, seed >> 32)
        self.counter = [sample & LOW32, sample >> 32, epoch & LOW32, operation << 20]
        self.block = []

    def word(self):
        if not self.block:
            self.block = philox(self.counter, self.key)
            self.counter[3] += 1
        return self.block.pop(0)

    def between(self, low, high):
        return F(low) + (F(high) - F(low)) * (F(self.word() >> 8) * F(2.0**-24))

    def below(self, bound):
        unfair = (2**32 - bound) % bound
        product = self.word() * bound
        while product & LOW32 < unfair:
            product = self.word() * bound
        return product >> 32

    def coin(self):
        return bool(self.word() & 1)


NORMAL = {"cifar": ((125.3, 123.0, 113.9), (63.0, 62.1, 66.7)), "vgg": ((123.68, 116.78, 103.94), (1,) * 3),
          "official_resnet": ((123.68, 116.78, 103.94), (1,) * 3), "inception": ((127.5,) * 3,) * 2,
          "lenet": ((128,) * 3,) * 2}
COLOURS = {"cifarnet": (63, 0.2, 1.8), "inception": (32, 0.5, 1.5)}


def find_recipe(name, training, height, width):
    """The settings of a recipe, as a dictionary."""
    small = name in ("cifar", "official_cifar", "cifarnet")
    large = name in ("vgg", "official_resnet", "inception")
    recipe = {"height": height, "width": width, "geometry": "centre" if large else "resize", "flip": "none",
              "side_low": max(height, width) * 256 // 224, "standardises": small and name != "cifar", "cutout": 0}
    recipe["mean"], recipe["deviation"] = NORMAL.get(name, ((0,) * 3, (1,) * 3))
    colours = COLOURS.get(name, (0, 1, 1)) if training else (0, 1, 1)
    recipe["brightness"], recipe["contrast_low"], recipe["contrast_high"] = colours
    if training and (small or large):
        recipe.update(flip="random", geometry="pad" if small else "side" if name == "vgg" else "window")
    return recipe


def rounded(value):
    """To the nearest integer; halves go up. For numbers that are not negative."""
    return int(np.floor(np.float64(value) + 0.5))


def window_axis(start, length, out):
    return {"origin": F(start), "step": F(length) / F(out), "low": start, "high": start + length - 1}


def choose_window(draws, height, width):
    """A random window (x, y, width, height); the whole picture where no attempt fits."""
    for _ in range(100):
        wanted = F(height * width) * draws.between(0.05, 1)
        aspect = draws.between(0.75, 1.33)
        w, h = rounded(np.sqrt(wanted * aspect)), rounded(np.sqrt(wanted / aspect))
        if 0 < w <= width and 0 < h <= height:
            x = draws.below(width - w + 1)
            return x, draws.below(height - h + 1), w, h
    return 0, 0, width, height


def choose_geometry(recipe, height, width, draws):
    """The axes x and y, and the padded crop."""
    out_h, out_w, kind = recipe["height"], recipe["width"], recipe["geometry"]
    if kind == "pad":
        x = draws.below(width + 8 - out_w + 1) - 4
        y = draws.below(height + 8 - out_h + 1) - 4
        unused = {"origin": F(0), "step": F(1), "low": 0, "high": 0}
        return unused, unused, [x, y, out_w, out_h]
    if kind in ("resize", "window"):
        x, y, w, h = (0, 0, width, height) if kind == "resize" else choose_window(draws, height, width)
        return window_axis(x, w, out_w), window_axis(y, h, out_h), [0] * 4
    side = recipe["side_low"]
    if kind == "side":
        side += draws.below(side + 1)  # up to twice as long
    axes = []
    for source, out in ((width, out_w), (height, out_h)):
        scaled = max(out, rounded(F(source * side) / F(min(height, width))))
        start = draws.below(scaled - out + 1) if kind == "side" else (scaled - out) // 2
        step = F(source) / F(scaled)
        axes.append({"origin": F(start) * step, "step": step, "low": 0, "high": source - 1})
    return axes[0], axes[1], [0] * 4


def choose(recipe, height, width, seed, epoch, sample):
    """Everything that is decided before a pixel is touched, under the names that the program prints."""
    x, y, padded = choose_geometry(recipe, height, width, Draws(seed, epoch, sample, GEOMETRY))
    flip = recipe["flip"] == "random" and Draws(seed, epoch, sample, FLIP).coin()
    if recipe["flip"] == "alternating":
        flip = Draws(seed, 0, sample, FLIP).coin() != bool(epoch % 2)
    colour = Draws(seed, epoch, sample, COLOUR)
    brightness = colour.between(-recipe["brightness"], recipe["brightness"])
    contrast = colour.between(recipe["contrast_low"], recipe["contrast_high"])
    hole, side = [0] * 4, recipe["cutout"]
    if side:
        place = Draws(seed, epoch, sample, CUTOUT)
        start = [place.below(recipe[one]) - side // 2 for one in ("width", "height")]
        end = [min(start[0] + side, recipe["width"]), min(start[1] + side, recipe["height"])]
        start = [max(one, 0) for one in start]
        hole = start + [end[0] - start[0], end[1] - start[1]]
    return {"x": x, "y": y, "padded": padded, "flip": flip, "brightness": brightness, "contrast": contrast,
            "cutout": hole}


def interpolate(pixels, axis, count):
    """`count` samples along the first dimension."""
    # Places are float32, as the program's: among large ones the rounding shows in the pixels.
    place = axis["origin"] + (np.arange(count, dtype=F) + F(0.5)) * axis["step"] - F(0.5)
    place = np.clip(place.astype(np.float64), axis["low"], axis["high"])
    first = np.floor(place).astype(int)
    second = np.minimum(first + 1, axis["high"])
    part = (place - first)[:, None, None]
    return pixels[first] * (1 - part) + pixels[second] * part


def transform(recipe, choices, picture):
    """The levels, what the network sees (both height x width x 3), and the deviation between them."""
    out_h, out_w = recipe["height"], recipe["width"]
    if recipe["geometry"] == "pad":
        x, y = choices["padded"][:2]
        levels = np.pad(picture.astype(float), ((4, 4), (4, 4), (0, 0)))[y + 4:y + 4 + out_h, x + 4:x + 4 + out_w]
    else:
        rows = interpolate(picture, choices["y"], out_h)
        levels = interpolate(rows.swapaxes(0, 1), choices["x"], out_w).swapaxes(0, 1)
    if choices["flip"]:
        levels = levels[:, ::-1]
    levels = levels + float(choices["brightness"])
    mean = levels.mean((0, 1))
    levels = (levels - mean) * float(choices["contrast"]) + mean
    if recipe["standardises"]:
        mean, deviation = levels.mean(), max(levels.std(), levels.size**-0.5)
    else:
        mean, deviation = np.array(recipe["mean"]), np.array(recipe["deviation"])
    seen = (levels - mean) / deviation
    x, y, w, h = choices["cutout"]
    levels[y:y + h, x:x + w] = 0
    seen[y:y + h, x:x + w] = 0
    return levels, seen, deviation


def make_picture(height, width, seed):
    """Waves and a little noise, 0..255."""
    random = np.random.default_rng(seed)
    y, x, channel = np.mgrid[0:height, 0:width, 0:3]
    waves = np.sin(x * random.uniform(0.02, 0.3) + channel) + np.cos(y * random.uniform(0.02, 0.3) - channel)
    return np.clip(128 + 55 * waves + random.normal(0, 12, waves.shape), 0, 255).astype(np.uint8)


def unpack(data, kind):
    """Raw bytes as numbers in float64, and half a unit in the last place of each (0 for f32 and u8)."""
    if kind == "u8":
        return np.frombuffer(data, np.uint8).astype(np.float64), 0
    if kind == "bf16":
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(F).astype(np.float64)
        return values, np.ldexp(0.5, np.frexp(values)[1] - 8)
    values = np.frombuffer(data, "<f2" if kind == "f16" else "<f4")
    return values.astype(np.float64), np.spacing(np.abs(values)).astype(np.float64) / 2 if kind == "f16" else 0


DRAWN = ((1, 0, 0), (0xFEDCBA9876543210, 3, 12), (77, 2**32 + 5, 2**40 + 9), (2**64 - 1, 90, 1281166))
FORMS = (("nchw", "f32"), ("nhwc", "u8"), ("nchw", "f16"), ("nhwc", "f32"), ("nchw", "bf16"), ("nchw", "u8"),
         ("nhwc", "f16"))
SMALL = (((32, 32), (32, 32)), ((37, 53), (32, 32)), ((28, 30), (32, 32)), ((37, 53), (30, 40)))
# The last but one has few windows that fit, and the last has none.
LARGE = (((300, 400), (224, 224)), ((120, 90), (64, 48)), ((37, 53), (64, 80)), ((12, 120), (40, 48)),
         ((4, 200), (32, 24)))


class AugmentTest(unittest.TestCase):
    """Each comparison is one call of the program."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    @functools.lru_cache(maxsize=None)
    def picture(self, height, width):
        path = pathlib.Path(self.folder.name) / f"{height}x{width}.npy"
        np.save(path, make_picture(height, width, height * 1000 + width))
        return path, np.load(path)

    def dump(self, path, name, mode, size, drawn, form, **changes):
        """The raw bytes and the choices of the program."""
        out = pathlib.Path(self.folder.name) / "out"
        arguments = [PROGRAM, path, out, name, mode, *size, *drawn, *form]
        arguments += [f"{key}={value}" for key, value in changes.items()]
        done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out.read_bytes(), json.loads(done.stdout)

    def same_choice(self, expected, got, what):
        """Integers exactly; floats nearly."""
        if isinstance(expected, dict):
            self.assertEqual(expected.keys(), got.keys(), what)
            for key, value in expected.items():
                self.same_choice(value, got[key], f"{what}.{key}")
        elif isinstance(expected, F):
            # Brightness is a difference of larger numbers: it has their error.
            least = 1e-5 if what.endswith("brightness") else 0
            self.assertLessEqual(abs(float(expected) - got), max(1e-6 * abs(float(expected)), least), what)
        else:
            self.assertEqual(expected, got, what)

    def compare(self, name, mode, source, size, drawn, form, **changes):
        with self.subTest(name=name, mode=mode, source=source, size=size, drawn=drawn, form=form, **changes):
            path, picture = self.picture(*source)
            recipe = {**find_recipe(name, mode == "train", *size), **changes}
            choices = choose(recipe, *source, *drawn)
            data, printed = self.dump(path, name, mode, size, drawn, form, **changes)
            self.same_choice(choices, printed, "choices")
            levels, seen, deviation = transform(recipe, choices, picture)
            got, half = unpack(data, form[1])
            expected = np.floor(np.clip(levels + 0.5, 0, 255)) if form[1] == "u8" else seen
            order = (2, 0, 1) if form[0] == "nchw" else (0, 1, 2)
            near = np.broadcast_to(1e-3 / deviation, expected.shape).transpose(order).ravel()
            apart = np.abs(got - expected.transpose(order).ravel())
            if form[1] == "u8":
                self.assertLessEqual(apart.max(), 1)
                self.assertGreater((apart == 0).mean(), 0.99)
            else:
                self.assertLessEqual((apart - half - near).max(), 0, f"apart by up to {apart.max()}")

    def compare_all(self, names, places):
        for turn, (name, mode, place) in enumerate(itertools.product(names, ("train", "train", "eval"), places)):
            self.compare(name, mode, *place, DRAWN[(turn + turn // len(places)) % 4], FORMS[turn % 7])

    def test_philox(self):
        self.assertEqual(philox((0,) * 4, (0,) * 2), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])

    def test_small_pictures(self):
        self.compare_all(("cifar", "official_cifar", "cifarnet", "lenet", "none"), SMALL)

    def test_large_pictures(self):
        self.compare_all(("vgg", "official_resnet", "inception"), LARGE)

    def test_cutout_and_alternating_flip(self):
        for epoch in range(4):
            for form in FORMS[:2]:
                self.compare("cifar", "train", (32, 32), (32, 32), (DRAWN[1][0], epoch, 6), form, cutout=8,
                             flip="alternating")

    def test_one_colour_change_alone(self):
        for changes in ({"brightness": 40}, {"contrast_low": 0.5}, {"contrast_high": 2.5}):
            self.compare("none", "train", (37, 53), (32, 32), DRAWN[1], FORMS[3], **changes)

    def test_half_types_round_to_nearest_even(self):
        path, _ = self.picture(37, 53)
        call = functools.partial(self.dump, path, "cifar", "eval", (32, 32), DRAWN[0])
        exact = np.frombuffer(call(("nchw", "f32"))[0], "<u4")
        np.testing.assert_array_equal(np.frombuffer(call(("nchw", "f16"))[0], "<f2"), exact.view(F).astype(np.float16))
        even = (exact + 0x7FFF + (exact >> 16 & 1)) >> 16
        np.testing.assert_array_equal(np.frombuffer(call(("nchw", "bf16"))[0], "<u2"), even)


if __name__ == "__main__":
    unittest.main()
