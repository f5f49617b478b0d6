"""The C interface from Python by ctypes: all-reduces of numpy arrays between the ranks of a job."""
import ctypes
import os
import sys

import numpy

library = ctypes.CDLL(os.environ["HORON_LIBRARY"])
library.horon_all_reduce.restype = ctypes.c_int64
library.horon_last_error.restype = ctypes.c_char_p
DTYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 7, "float64": 8}


def check(code):
    if code < 0 or (code > 0 and code < 100):
        sys.exit(f"error {code}: {library.horon_last_error().decode()}")


def start(name, array):
    return library.horon_all_reduce(name.encode(), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(array.size),
                                    DTYPES[array.dtype.name], None)


check(library.horon_init())
rank, size = library.horon_rank(), library.horon_size()
for step in range(5):
    arrays = {f"{dtype}-{i}": numpy.full(100 + i, rank + step, dtype=dtype) for dtype in DTYPES for i in range(3)}
    names = list(arrays)
    numpy.random.default_rng(rank + step).shuffle(names)  # every rank in an order of its own
    handles = [start(name, arrays[name]) for name in names]
    for handle in handles:
        if handle <= 0:
            sys.exit(library.horon_last_error().decode())
        check(library.horon_wait(ctypes.c_int64(handle)))
    for name, array in arrays.items():
        want = sum(range(size)) + size * step
        assert (array == want).all(), (name, array[0], want)
check(library.horon_shutdown())
print(f"rank {rank} of {size}: numpy {numpy.__version__} ok")
