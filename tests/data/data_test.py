"""Data sets and files as people meet them: commands, other programs that read what was written, an http server."""
import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

import numpy
from PIL import Image

sys.path.insert(0, os.path.dirname(__file__))
from server import Server  # noqa: E402

HORON = os.path.join(os.environ["HORON_BIN"], "horon")


def run(*arguments, code=0):
    done = subprocess.run([HORON, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def records(path):
    """A TFRecord reader of its own, with checksums by the definition of CRC-32C."""
    def crc(data):
        value = 0xffffffff
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = (value >> 1) ^ (0x82f63b78 if value & 1 else 0)
        value ^= 0xffffffff
        return (((value >> 15) | (value << 17)) + 0xa282ead8) & 0xffffffff

    with open(path, "rb") as file:
        while header := file.read(12):
            length, length_crc = struct.unpack("<QI", header)
            assert crc(header[:8]) == length_crc
            data = file.read(length)
            assert len(data) == length
            (data_crc,) = struct.unpack("<I", file.read(4))
            yield data, data_crc, crc


def fields(message):
    """Protobuf's wire form, of the kinds that tf.Example has."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, message[at:at + size]
            at += size
        else:
            yield key >> 3, varint()


def example(data):
    found = {}
    (_, features), = fields(data)
    for _, entry in fields(features):
        (_, name), (_, feature) = fields(entry)
        (kind, values), = fields(feature)
        found[name.decode()] = [value for _, value in fields(values)][0] if kind == 1 else list(values)
    return found


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = lambda *names: os.path.join(self.folder.name, *names)

    def tearDown(self):
        self.folder.cleanup()

    def test_what_is_written_is_read_by_other_programs(self):
        run("data", "make", "--to", self.at("c"), "--samples", 60)
        raw = open(self.at("c", "data_batch_1.bin"), "rb").read()
        self.assertEqual(len(raw), 12 * 3073)
        source = ["--dataset", "cifar10", "--data_dir", self.at("c")]
        run("data", "convert", *source, "--format", "tfrecord", "--to", self.at("t"), "--shards", 3)
        run("data", "convert", *source, "--format", "tfrecord_raw", "--to", self.at("w"), "--shards", 1)
        run("data", "convert", *source, "--format", "npy", "--to", self.at("n"))
        run("data", "convert", *source, "--format", "image_folder", "--to", self.at("f"))
        images, labels = numpy.load(self.at("n", "train_images.npy")), numpy.load(self.at("n", "train_labels.npy"))
        self.assertEqual((images.shape, labels.shape, labels.dtype), ((60, 32, 32, 3), (60,), numpy.int64))
        first = numpy.frombuffer(raw[1:3073], numpy.uint8).reshape(3, 32, 32).transpose(1, 2, 0)
        self.assertTrue((first == images[0]).all())
        seen = 0
        for data, crc, compute in records(self.at("w", "train-00000-of-00001")):
            found = example(data)
            self.assertEqual(compute(data), crc)
            pixels = numpy.frombuffer(found["image"], numpy.uint8).reshape(3, 32, 32).transpose(1, 2, 0)
            self.assertTrue((pixels == images[seen]).all())
            self.assertEqual(found["label"][-1], labels[seen])
            seen += 1
            if seen == 5:
                break
        for shard in range(3):
            for data, _, _ in records(self.at("t", f"train-0000{shard}-of-00003")):
                found = example(data)
                picture = Image.open(io.BytesIO(found["image/encoded"]))
                self.assertEqual((picture.format, picture.size), ("JPEG", (32, 32)))
                self.assertTrue(1 <= found["image/class/label"][-1] <= 10)
                break
        pictures = [os.path.join(path, name) for path, _, names in os.walk(self.at("f")) for name in names
                    if name.endswith(".png")]
        self.assertEqual(len(pictures), 60)
        self.assertEqual(Image.open(pictures[0]).size, (32, 32))
        kind = subprocess.run(["file", pictures[0]], capture_output=True, text=True).stdout
        self.assertIn("PNG image data, 32 x 32", kind)

    def test_stats_agree_with_numpy(self):
        run("data", "make", "--to", self.at("n"), "--format", "npy", "--samples", 200)
        images = numpy.load(self.at("n", "train_images.npy")).astype(float)
        found = json.loads(run("data", "stats", "--dataset", "npy", "--data_dir", self.at("n"), "--json"))
        self.assertTrue(numpy.allclose(found["mean"], images.mean(axis=(0, 1, 2))))
        self.assertTrue(numpy.allclose(found["deviation"], images.std(axis=(0, 1, 2))))
        self.assertEqual(found["histogram"], numpy.bincount(numpy.load(self.at("n", "train_labels.npy"))).tolist())
        self.assertEqual((found["usual_recipe"], found["usual_side"]), ("cifar", 32))
        run("data", "make", "--to", self.at("again"), "--format", "npy", "--samples", 200)
        run("data", "make", "--to", self.at("other"), "--format", "npy", "--samples", 200, "--seed", 1)
        digests = [json.loads(run("data", "stats", "--dataset", "npy", "--data_dir", self.at(name), "--json"))["index_digest"]
                   for name in ("n", "again", "other")]
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_show_is_a_picture(self):
        run("data", "make", "--to", self.at("n"), "--format", "npy", "--samples", 20)
        images = numpy.load(self.at("n", "train_images.npy"))
        sheets = []
        for more in ([], ["--augment", "cifar"], ["--augment", "inception"]):
            run("data", "show", "--dataset", "npy", "--data_dir", self.at("n"), "-o", self.at("s.png"), "--columns", 5, "--rows", 2,
                "--side", 32, *more)
            sheet = numpy.array(Image.open(self.at("s.png")))
            self.assertEqual(sheet.shape, (2 * 36 + 4, 5 * 36 + 4, 3))
            sheets.append([sheet[4 + 36 * (i // 5):, 4 + 36 * (i % 5):][:32, :32] for i in range(10)])
        for i, tile in enumerate(sheets[0]):
            self.assertTrue((tile == images[i]).all(), f"tile {i}")
        for tiles in sheets[1:]:  # each is changed, and still a picture
            for i, tile in enumerate(tiles):
                self.assertGreater(tile.std(), 5)
                self.assertFalse((tile == images[i]).all())

    def test_verify_finds_damage_and_duplicates(self):
        run("data", "make", "--to", self.at("t"), "--format", "tfrecord", "--samples", 40)
        source = ["--dataset", "tfrecord", "--data_dir", self.at("t"), "--num_classes", 10]
        self.assertIn("40 good, 0 bad, 0 duplicates", run("data", "verify", *source))
        path = self.at("t", "train-00000-of-00001")
        data = bytearray(open(path, "rb").read())
        data[len(data) // 2] ^= 1
        open(path, "wb").write(data)
        said = run("data", "verify", *source, code=12)
        self.assertIn("39 good, 1 bad", said)
        self.assertIn("at offset", said)
        run("data", "make", "--to", self.at("n"), "--format", "npy", "--samples", 10)
        images = numpy.load(self.at("n", "train_images.npy"))
        images[7] = images[3]
        numpy.save(self.at("n", "train_images.npy"), images)
        said = run("data", "verify", "--dataset", "npy", "--data_dir", self.at("n"))
        self.assertIn("1 duplicates", said)
        self.assertIn("sample 7: the same image as", said)

    def test_interrupted_conversions_go_on(self):
        run("data", "make", "--to", self.at("c"), "--samples", 90)
        arguments = ["data", "convert", "--dataset", "cifar10", "--data_dir", self.at("c"), "--format", "tfrecord", "--to",
                     self.at("t"), "--shards", 9]
        run(*arguments)
        kept, gone = self.at("t", "train-00002-of-00009"), self.at("t", "train-00005-of-00009")
        before, contents = os.stat(kept).st_mtime_ns, open(gone, "rb").read()
        os.remove(gone)
        run(*arguments)
        self.assertEqual(os.stat(kept).st_mtime_ns, before)
        self.assertEqual(open(gone, "rb").read(), contents)

    def test_pictures_keep_their_shape_and_their_classes(self):
        for name, size, count in (("wide", (200, 50), 6), ("small", (32, 32), 20)):
            for i in range(count):
                os.makedirs(self.at(name, "train", "ab"[i % 2]), exist_ok=True)
                ramp = numpy.arange(size[0] * size[1] * 3).reshape(size[1], size[0], 3) // (7 + i)
                Image.fromarray(ramp.astype(numpy.uint8)).save(self.at(name, "train", "ab"[i % 2], f"{i:02}.jpg"), quality=95)
        wide = ["--dataset", "image_folder", "--data_dir", self.at("wide")]
        run("data", "convert", *wide, "--format", "npy", "--to", self.at("n"))
        run("data", "convert", *wide, "--format", "tfrecord_raw", "--to", self.at("w"))
        raw = ["--dataset", "tfrecord", "--data_dir", self.at("w")]
        run("data", "convert", *raw, "--format", "npy", "--to", self.at("back"))
        self.assertEqual(numpy.load(self.at("n", "train_images.npy")).shape, (6, 50, 200, 3))
        self.assertTrue((numpy.load(self.at("n", "train_images.npy")) == numpy.load(self.at("back", "train_images.npy"))).all())
        self.assertEqual(len(json.loads(run("data", "stats", *raw, "--json"))["histogram"]), 2)
        small = ["--dataset", "image_folder", "--data_dir", self.at("small")]
        run("data", "convert", *small, "--format", "cifar10", "--to", self.at("c"), "-j", 3)
        run("data", "convert", *small, "--format", "npy", "--to", self.at("m"))
        cifar = b"".join(open(self.at("c", f"data_batch_{i}.bin"), "rb").read() for i in range(1, 6))
        pixels = numpy.frombuffer(cifar, numpy.uint8).reshape(20, 3073)[:, 1:].reshape(20, 3, 32, 32).transpose(0, 2, 3, 1)
        self.assertTrue((pixels == numpy.load(self.at("m", "train_images.npy"))).all())
        for schema in ("tfrecord", "tfrecord_raw"):
            run("data", "make", "--to", self.at(schema), "--format", schema, "--samples", 40)
            said = run("data", "stats", "--dataset", "tfrecord", "--data_dir", self.at(schema))
            self.assertIn("40 samples, 10 classes", said)
            self.assertIn("half_disc", said)

    def test_damaged_files_are_counted_and_the_rest_is_used(self):
        run("data", "make", "--to", self.at("t"), "--format", "tfrecord", "--samples", 40)
        path = self.at("t", "train-00000-of-00001")
        whole = open(path, "rb").read()
        offsets, at = [], 0
        while at < len(whole):
            offsets.append(at)
            at += struct.unpack("<Q", whole[at:at + 8])[0] + 16
        source = ["--dataset", "tfrecord", "--data_dir", self.at("t")]
        broken = bytearray(whole)
        broken[offsets[30]] ^= 1
        for data in (bytes(broken), whole[:offsets[30] + 200], gzip.compress(bytes(broken))):
            open(path, "wb").write(data)
            said = run("data", "verify", *source, code=12)
            self.assertIn(f"{path}, record 30 at offset {offsets[30]}: ", said)
            self.assertIn("30 samples: 30 good, 0 bad, 0 duplicates; 1 file(s) not read to the end", said)
            for command in (["stats"], ["convert", "--format", "npy", "--to", self.at("x")]):
                self.assertIn("the rest of the file is lost", run("data", *command, *source, code=12))
        broken = bytearray(whole)
        broken[offsets[7] + 100] ^= 1
        open(path, "wb").write(gzip.compress(bytes(broken)))
        self.assertIn("40 samples: 39 good, 1 bad", run("data", "verify", *source, code=12))

    def test_a_folder_of_something_else_is_refused(self):
        run("data", "make", "--to", self.at("t"), "--format", "tfrecord_raw", "--samples", 20, "--seed", 1)
        before = open(self.at("t", "train-00000-of-00001"), "rb").read()
        said = run("data", "make", "--to", self.at("t"), "--format", "tfrecord_raw", "--samples", 20, "--seed", 2, code=2)
        self.assertIn("contains other data", said)
        self.assertEqual(open(self.at("t", "train-00000-of-00001"), "rb").read(), before)
        run("data", "make", "--to", self.at("f"), "--format", "image_folder", "--samples", 40)
        run("data", "make", "--to", self.at("n"), "--format", "npy", "--samples", 40)
        mine = [json.loads(run("data", "stats", "--dataset", kind, "--data_dir", self.at(where), "--json"))
                for kind, where in (("image_folder", "f"), ("npy", "n"))]
        self.assertEqual(mine[0]["histogram"][:10], (mine[1]["histogram"] + [0] * 10)[:10])  # the same numbers of classes

    def test_real_pickles(self):
        """CIFAR's python version as Python itself writes it, all protocols."""
        run("data", "make", "--to", self.at("n"), "--format", "npy", "--samples", 50)
        images = numpy.load(self.at("n", "train_images.npy")).transpose(0, 3, 1, 2).reshape(50, 3072)
        labels = numpy.load(self.at("n", "train_labels.npy"))
        keys = ("samples", "mean", "deviation", "histogram")
        numbers = lambda *source: {key: json.loads(run("data", "stats", *source, "--json"))[key] for key in keys}
        want = numbers("--dataset", "npy", "--data_dir", self.at("n"))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            folder = self.at(f"p{protocol}", "cifar-10-batches-py")
            os.makedirs(folder)
            for i in range(5):
                part = slice(10 * i, 10 * i + 10)
                batch = {b"batch_label": b"x", b"data": numpy.ascontiguousarray(images[part]), b"labels": labels[part].tolist(),
                         b"filenames": [b"a.png"] * 10}
                with open(os.path.join(folder, f"data_batch_{i + 1}"), "wb") as file:
                    pickle.dump(batch, file, protocol)
            self.assertEqual(numbers("--dataset", "cifar10", "--data_dir", self.at(f"p{protocol}")), want)

    def test_shards_are_explained(self):
        said = run("data", "shard", "--samples", 1003, "--batch_size", 64, "--ranks", 4)
        self.assertIn("of 1003 samples 0 are missed (0.0 %), 0 are read more than once", said)
        self.assertIn("split_steps", said)
        run("data", "shard", "--samples", 10, "--batch_size", 0, code=2)

    def test_mistakes_are_one_line(self):
        self.assertIn("did you mean 'cifar10'", run("data", "stats", "--dataset", "cifar1", "--data_dir", "x", code=2))
        self.assertIn("horon data download cifar10", run("data", "stats", "--dataset", "cifar10", "--data_dir", self.folder.name, code=2))
        self.assertIn("--validation_split", run("data", "stats", "--dataset", "shapes10", "--split", "validation", code=2))
        self.assertIn("No such file", run("cat", self.at("none"), code=14))
        for flags in (["--samples", "-5"], ["--samples", "0"], ["--samples", "99999999999"], ["--samples", 10 ** 30], ["--seed", "-1"]):
            said = run("data", "make", "--to", self.at("x"), *flags, code=2)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn(flags[0].lstrip("-"), said)
        for flags in (["stats", "--samples", "-1"], ["stats", "--num_classes", "-3"], ["verify", "--validation_split", "-3"],
                      ["convert", "--format", "npy", "--to", self.at("x"), "--shards", "-1"]):
            self.assertIn("not in range", run("data", *flags, "--dataset", "shapes10", code=2))
        for flags in (["--samples", "-4", "--batch_size", 2], ["--samples", 10 ** 15, "--batch_size", 2], ["--samples", 4, "--batch_size", "-2"]):
            self.assertIn("not in range", run("data", "shard", *flags, code=2))
        self.assertIn("cannot be generated", run("data", "make", "cifar10", "--to", self.at("x"), code=2))
        self.assertIn("for shapes10 and synthetic", run("data", "stats", "--dataset", "npy", "--data_dir", self.at("x"), "--samples", 5, code=2))
        self.assertFalse(os.path.exists(self.at("x")))

    def test_what_is_misspelt_is_named_rightly(self):
        for near, *arguments in (("'--threads'", "cp", "--thread", 2, "a", "b"), ("'--recursive'", "ls", "--recursiv"),
                                 ("'--recursive'", "rm", "--recusive", "x"), ("'--samples'", "data", "make", "--to", "x", "--sample", 5),
                                 ("'--json'", "data", "stats", "--dataset", "shapes10", "--jsn"), ("'make'", "data", "mkae")):
            self.assertIn("did you mean " + near, run(*arguments, code=2))
        self.assertIn("unexpected argument 'c'", run("cp", "a", "b", "c", code=2))
        self.assertIn("make, convert", run("data", code=2))

    def test_cp_ls_cat_and_rm(self):
        os.makedirs(self.at("a", "b"))
        for i in range(20):
            open(self.at("a", "b", f"{i}"), "wb").write(os.urandom(1000 * i))
        self.assertIn("20 file(s) copied", run("cp", "-j", 4, self.at("a"), self.at("z")))
        self.assertIn("20 there already", run("cp", self.at("a"), self.at("z")))
        self.assertEqual(open(self.at("z", "b", "19"), "rb").read(), open(self.at("a", "b", "19"), "rb").read())
        os.remove(self.at("z", "b", "3"))
        os.mkdir(self.at("z", "b", "3"))
        said = run("cp", self.at("a"), self.at("z"), code=1)
        self.assertIn("failed: ", said)
        self.assertIn("1 failed", said)
        self.assertIn("20 entries", run("ls", "-r", self.at("a")))
        self.assertIn("10 entries", run("ls", self.at("a", "b", "1?")))
        run("rm", self.at("a"), code=2)
        run("rm", "-r", self.at("a"))
        self.assertFalse(os.path.exists(self.at("a")))

    def test_odd_names_and_links(self):
        os.makedirs(self.at("odd[1]"))
        open(self.at("odd[1]", "x*y"), "w").write("star")
        open(self.at("private"), "w").write("1")
        os.chmod(self.at("private"), 0o400)
        os.symlink("nowhere", self.at("dangling"))
        os.symlink("odd[1]", self.at("tree"))
        self.assertIn("1 entries", run("ls", self.at("odd[1]")))
        self.assertIn("x*y", run("ls", self.at("odd[1]")))
        self.assertIn("x*y", run("ls", self.at("odd[1]", "x*")))
        self.assertEqual(run("cat", self.at("odd[1]", "x*y")), "star")
        self.assertIn("dangling (a dangling link)", run("ls", self.folder.name))
        said = run("cp", self.folder.name, self.at("copy"))
        self.assertIn(f"left out: {self.at('dangling')}: a dangling link", said)
        self.assertIn(f"left out: {self.at('tree')}: a link to a folder", said)
        self.assertEqual(os.stat(self.at("copy", "private")).st_mode & 0o777, 0o400)
        for i in range(30):
            os.symlink("..", self.at("odd[1]", str(i)))
        self.assertIn("left out: 30 links in all", run("cp", self.at("odd[1]"), self.at("again")))
        run("rm", self.at("dangling"))
        run("rm", self.at("tree"))  # the link, not the folder
        self.assertFalse(os.path.lexists(self.at("dangling")) or os.path.lexists(self.at("tree")))
        run("rm", "-r", self.at("odd[1]"))
        self.assertFalse(os.path.exists(self.at("odd[1]")))


class OverHttp(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = lambda *names: os.path.join(self.folder.name, *names)
        os.makedirs(self.at("www"))
        self.server = Server(self.at("www"))

    def tearDown(self):
        self.server.close()
        self.folder.cleanup()

    def serve(self, name, data):
        open(self.at("www", name), "wb").write(data)
        return hashlib.md5(data).hexdigest()

    def archive(self, files):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    def test_files_are_read_and_cut_transfers_go_on(self):
        data = os.urandom(5_000_000)
        self.serve("big", data)
        self.assertIn("1 file(s) copied", run("cp", self.server.url + "/big", self.at("one")))
        self.assertEqual(open(self.at("one"), "rb").read(), data)
        self.server.cut_after = 3_000_000
        self.assertIn("failed: ", run("cp", self.server.url + "/big", self.at("two"), code=1))
        self.assertFalse(os.path.exists(self.at("two")))
        self.server.requests.clear()
        run("cp", self.server.url + "/big", self.at("two"))
        self.assertEqual(open(self.at("two"), "rb").read(), data)
        ranges = [one for command, _, one in self.server.requests if command == "GET"]
        self.assertEqual(len(ranges), 1)
        self.assertGreater(int(ranges[0].removeprefix("bytes=").split("-")[0]), 2_000_000)
        # What was fetched is not believed: four bytes of it are others now.
        self.server.cut_after = 3_000_000
        run("cp", self.server.url + "/big", self.at("three"), code=1)
        part, = [name for name in os.listdir(self.folder.name) if name.endswith(".horon-part")]
        with open(self.at(part), "r+b") as file:
            file.seek(1_500_000)
            file.write(bytes(255 - byte for byte in data[1_500_000:1_500_004]))
        run("cp", self.server.url + "/big", self.at("three"))
        self.assertEqual(open(self.at("three"), "rb").read(), data)
        self.assertIn("No such file", run("cp", self.server.url + "/none", self.at("x"), code=14))
        self.assertIn("No such file", run("ls", self.server.url + "/", code=14))
        self.assertIn("read, one by one", run("ls", self.server.url + "/*", code=2))

    def test_a_server_without_ranges(self):
        data = os.urandom(2_000_000)
        self.serve("big", data)
        plain = Server(self.at("www"), ranges=False)
        plain.cut_after = 1_000_000
        run("cp", plain.url + "/big", self.at("x"), code=1)
        run("cp", plain.url + "/big", self.at("x"))
        self.assertEqual(open(self.at("x"), "rb").read(), data)
        plain.close()

    def test_downloads_are_checked_and_unpacked(self):
        batch = b"".join(bytes([i % 10]) + os.urandom(3072) for i in range(4))
        names = ["batches.meta.txt"] + [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
        files = {f"cifar-10-batches-bin/{name}": batch if name.endswith(".bin") else b"x" for name in names}
        md5 = self.serve("cifar-10-binary.tar.gz", self.archive(files))
        sums = self.at("sums")
        arguments = ["data", "download", "cifar10", "--data_dir", self.at("d"), "--mirror", self.server.url]
        self.assertIn("MD5", run(*arguments, code=12))  # not the real one
        self.assertFalse(os.path.exists(self.at("d", "cifar-10-binary.tar.gz")))
        open(sums, "w").write(f"{md5}  cifar-10-binary.tar.gz\n")
        run(*arguments, "--checksum-file", sums)
        self.assertIn("20 samples", run("data", "stats", "--dataset", "cifar10", "--data_dir", self.at("d")))
        self.server.requests.clear()
        run(*arguments, "--checksum-file", sums)
        self.assertEqual(self.server.requests, [])  # it is there
        self.assertIn("did you mean 'mnist'", run("data", "download", "mnits", "--data_dir", "x", code=2))

    def test_mnist_is_downloaded_and_read(self):
        pixels = os.urandom(6 * 28 * 28)
        lines = []
        for split, count in (("train", 4), ("t10k", 2)):
            images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels[:count * 784]
            labels = struct.pack(">II", 0x801, count) + bytes(range(count))
            for name, data in ((f"{split}-images-idx3-ubyte.gz", images), (f"{split}-labels-idx1-ubyte.gz", labels)):
                lines.append(f"{self.serve(name, gzip.compress(data))}  {name}\n")
        open(self.at("sums"), "w").writelines(lines)
        run("data", "download", "mnist", "--data_dir", self.at("m"), "--mirror", self.server.url, "--checksum-file", self.at("sums"))
        self.assertIn("2 samples", run("data", "stats", "--dataset", "mnist", "--split", "test", "--data_dir", self.at("m")))

    def test_hostile_archives_write_nothing_outside(self):
        md5 = self.serve("cifar-10-binary.tar.gz", self.archive({"../evil": b"x"}))
        open(self.at("sums"), "w").write(f"{md5}  cifar-10-binary.tar.gz\n")
        said = run("data", "download", "cifar10", "--data_dir", self.at("d"), "--mirror", self.server.url, "--checksum-file",
                   self.at("sums"), code=12)
        self.assertIn("'../evil' would be written outside", said)
        self.assertFalse(os.path.exists(self.at("evil")))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
