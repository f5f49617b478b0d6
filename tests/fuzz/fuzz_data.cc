// Bytes as files of every kind that is read: errors, never crashes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "horon/base/error.h"
#include "horon/data/format/example.h"
#include "horon/data/format/pickle.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/file/file.h"

namespace {

void read_as(uint8_t kind, std::span<const uint8_t> bytes) {
  horon::Picture picture;
  switch (kind % 5) {
    case 0:
      horon::parse_pickle(bytes);
      return;
    case 1:
      horon::parse_example(bytes);
      return;
    case 2:
      horon::decode_jpeg(bytes, picture);
      horon::decode_jpeg_region(bytes, {1, 1, 2, 3}, picture);
      return;
    case 3:
      horon::decode_png(bytes, picture);
      return;
    default: {
      horon::file::write("mem://fuzz", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      horon::RecordReader reader(horon::file::open("mem://fuzz"));
      std::span<const uint8_t> record;
      while (reader.next(record)) {
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read_as(data[0], {data + 1, size - 1});
  } catch (const horon::Error&) {  // what it should be
  }
  return 0;
}
