"""PNGs of every kind against PIL: the same pixels as its convert("RGB")."""
import io
import itertools
import os
import struct
import subprocess
import tempfile
import unittest
import zlib

import numpy
from PIL import Image

HORON = os.path.join(os.environ["HORON_BIN"], "horon")
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rows(values, depth):
    """Values (height x width x channels) as lines of a PNG without filters."""
    out = b""
    for row in values:
        flat = row.reshape(-1)
        if depth == 16:
            out += b"\0" + flat.astype(">u2").tobytes()
        elif depth == 8:
            out += b"\0" + flat.astype(numpy.uint8).tobytes()
        else:
            bits = ((flat[:, None] >> numpy.arange(depth - 1, -1, -1)) & 1).astype(numpy.uint8).reshape(-1)
            out += b"\0" + numpy.packbits(bits).tobytes()
    return out


def png(values, kind, depth, interlaced=False, extra=b""):
    height, width = values.shape[:2]
    if interlaced:
        parts = [values[y::down, x::right] for x, y, right, down in ADAM7]
        data = b"".join(rows(part, depth) for part in parts if part.size)
    else:
        data = rows(values, depth)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))) + extra +
            chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def kinds():
    """(name, file, pixels that must come out, or None: those of PIL)"""
    random = numpy.random.RandomState(1)
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    for kind, depth in itertools.chain(((GREY, d) for d in (1, 2, 4, 8, 16)), ((PALETTE, d) for d in (1, 2, 4, 8)),
                                       ((k, d) for k in (RGB, GREY_ALPHA, RGBA) for d in (8, 16))):
        values = random.randint(0, 2 ** depth, (13, 19, CHANNELS[kind]))
        palette = b""
        if kind == PALETTE:
            palette = chunk(b"PLTE", random.randint(0, 256, 3 * 2 ** depth, numpy.uint8).tobytes())
        transparent = {PALETTE: chunk(b"tRNS", bytes([0, 100])), GREY: chunk(b"tRNS", struct.pack(">H", 1)),
                       RGB: chunk(b"tRNS", struct.pack(">HHH", *map(int, values[0, 0])) if kind == RGB else b"")}.get(kind, b"")
        # PIL clips 16 bits of grey at 255; here they are what they are in colour: the upper 8.
        want = numpy.repeat(values >> 8, 3, axis=2) if (kind, depth) == (GREY, 16) else None
        for interlaced, with_gamma, with_transparent in itertools.product((False, True), repeat=3):
            if with_transparent and not transparent:
                continue
            extra = (gamma if with_gamma else b"") + palette + (transparent if with_transparent else b"")
            name = f"{kind}-{depth:02}-{interlaced:d}-{with_gamma:d}-{with_transparent:d}.png"
            yield name, png(values, kind, depth, interlaced, extra), want


class Pictures(unittest.TestCase):
    def test_pngs_have_the_pixels_that_pil_sees(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "train", "all"))
            wanted = []
            for name, data, want in sorted(kinds(), key=lambda one: one[0]):
                with open(os.path.join(folder, "train", "all", name), "wb") as file:
                    file.write(data)
                seen = numpy.array(Image.open(io.BytesIO(data)).convert("RGB"))
                wanted.append((name, seen if want is None else want))
            subprocess.run([HORON, "data", "convert", "--dataset", "image_folder", "--data_dir", folder, "--format", "npy", "--to",
                            os.path.join(folder, "out")], check=True, capture_output=True, timeout=60)
            images = numpy.load(os.path.join(folder, "out", "train_images.npy"))
            self.assertEqual(len(images), len(wanted))
            self.assertGreater(len(wanted), 80)
            for mine, (name, want) in zip(images, wanted):
                self.assertTrue((mine == want).all(), f"{name}: up to {abs(mine.astype(int) - want).max()} levels apart")


if __name__ == "__main__":
    unittest.main(verbosity=2)
