#include "horon/data/image/decode.h"

#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"

namespace horon {

void decode_record(const Record& record, Picture& out) {
  if (record.form == PixelForm::kJpeg) return decode_jpeg(record.bytes, out);
  if (record.form == PixelForm::kPng) return decode_png(record.bytes, out);
  out.height = record.height;
  out.width = record.width;
  out.channels = record.channels;
  const size_t count = static_cast<size_t>(record.height) * static_cast<size_t>(record.width);
  const auto channels = static_cast<size_t>(record.channels);
  out.pixels.assign(record.bytes.begin(), record.bytes.end());
  if (record.form != PixelForm::kChw || channels == 1) return;
  for (size_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < count; ++i) out.pixels[channels * i + c] = record.bytes[c * count + i];
}

}  // namespace horon
