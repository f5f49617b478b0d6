"""The C interface from Python by ctypes: all-reduces of numpy arrays between the ranks of a job."""
import sys

import numpy

from horon_ctypes import Library, buffer_at

DTYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 7, "float64": 8}

horon = Library()
horon.init()
rank, size = horon.ask("rank"), horon.ask("size")
for step in range(5):
    arrays = {f"{dtype}-{i}": numpy.full(100 + i, rank + step, dtype=dtype) for dtype in DTYPES for i in range(3)}
    buffers = {name: buffer_at(array.ctypes.data, array.size, DTYPES[array.dtype.name]) for name, array in arrays.items()}
    names = list(arrays)
    numpy.random.default_rng(rank + step).shuffle(names)  # every rank in an order of its own
    for handle in [horon.all_reduce(name.encode(), buffers[name]) for name in names]:
        if horon.wait(handle) != 0:
            sys.exit(horon.error())
    for name, array in arrays.items():
        want = sum(range(size)) + size * step
        assert (array == want).all(), (name, array[0], want)
horon.shutdown()
print(f"rank {rank} of {size}: numpy {numpy.__version__} ok")
