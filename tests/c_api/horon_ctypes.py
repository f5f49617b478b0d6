"""libhoron.so by ctypes, as far as the tests need it: structs, and one call for each operation that they use."""
import ctypes
import os

F32, I32 = 7, 3


class Buffer(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32), ("data", ctypes.c_void_p), ("count", ctypes.c_uint64),
                ("dtype", ctypes.c_int32), ("device", ctypes.c_int32), ("device_index", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("stream", ctypes.c_void_p), ("ready", ctypes.c_void_p), ("done", ctypes.c_void_p)]


def buffer_at(address, count, dtype):
    return Buffer(ctypes.sizeof(Buffer), 1, address, count, dtype)


class Library:
    def __init__(self):
        self.c = ctypes.CDLL(os.environ["HORON_LIBRARY"])
        for name in ("all_reduce", "all_gather", "broadcast", "next_done"):
            getattr(self.c, "horon_" + name).restype = ctypes.c_int64
        self.c.horon_last_error.restype = ctypes.c_char_p
        for name in ("horon_wait", "horon_release", "horon_poll"):
            getattr(self.c, name).argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def init(self):
        assert self.c.horon_init() == 0, self.error()

    def shutdown(self):
        assert self.c.horon_shutdown() == 0, self.error()

    def error(self):
        return self.c.horon_last_error().decode()

    def ask(self, what):
        return getattr(self.c, "horon_" + what)(None)

    def all_reduce(self, name, buffer):
        return self.c.horon_all_reduce(None, name, None, ctypes.byref(buffer), None)

    def all_gather(self, name, buffer):
        return self.c.horon_all_gather(None, name, ctypes.byref(buffer), None, None)

    def broadcast(self, name, buffer, root):
        return self.c.horon_broadcast(None, name, None, ctypes.byref(buffer), root, None)

    def wait(self, handle):
        return self.c.horon_wait(None, handle) if handle > 0 else int(-handle)
