"""How many pictures a second other programs decode, crop (224), flip and normalise: PyTorch's DataLoader, tf.data.

    input_peers.py FOLDER THREADS OUT.json      FOLDER has train/CLASS/*.jpg
"""
import json
import os
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
folder, threads, out = os.path.join(sys.argv[1], "train"), int(sys.argv[2]), sys.argv[3]
BATCH, BATCHES = 64, 40
MEAN = [123.68, 116.78, 103.94]


def rate_of(iterator):
    next(iterator)  # workers are up
    begin = time.perf_counter()
    for _ in range(BATCHES):
        next(iterator)
    return BATCH * BATCHES / (time.perf_counter() - begin)


def torch_rate():
    import torch
    import torchvision.transforms as T
    from torchvision.datasets import ImageFolder
    torch.set_num_threads(1)
    transform = T.Compose([T.RandomResizedCrop(224, scale=(0.05, 1.0), ratio=(0.75, 1.33), antialias=False),
                           T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([m / 255 for m in MEAN], [1 / 255] * 3)])
    data = ImageFolder(folder, transform)
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=BATCH * (BATCHES + 8))
    best = {}
    for workers in (threads, 2 * threads):
        loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler, num_workers=workers, prefetch_factor=4)
        best[workers] = rate_of(iter(loader))
    return max(best.values()), {"torch": torch.__version__, "workers": best}


def tensorflow_rate():
    import tensorflow as tf
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]

    def load(path):
        data = tf.io.read_file(path)
        shape = tf.image.extract_jpeg_shape(data)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape, tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), min_object_covered=0.1, aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0], max_attempts=100, use_image_if_no_bounding_boxes=True)
        y, x, _ = tf.unstack(begin)
        height, width, _ = tf.unstack(size)
        image = tf.image.decode_and_crop_jpeg(data, tf.stack([y, x, height, width]), channels=3)
        image = tf.image.resize(image, [224, 224], method="bilinear")
        return tf.image.random_flip_left_right(image) - tf.constant(MEAN)

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    data = tf.data.Dataset.from_tensor_slices(files).repeat().shuffle(1000)
    data = data.map(load, num_parallel_calls=threads).batch(BATCH).prefetch(4).with_options(options)
    return rate_of(iter(data)), {"tensorflow": tf.__version__}


results = {"images_per_s": {}, "about": {}}
for name, measure in (("dataloader", torch_rate), ("tf_data", tensorflow_rate)):
    try:
        results["images_per_s"][name], results["about"][name] = measure()
    except ImportError as error:
        print(f"{name}: {error}", file=sys.stderr)
with open(out, "w") as file:
    json.dump(results, file)
