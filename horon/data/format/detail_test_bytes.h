#pragma once

#include <random>
#include <string>
#include <vector>

#include "horon/data/format/example.h"

// Bytes that the tests of formats and of data sets read.
namespace horon {

inline std::string bytes_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(count, '\0');
  for (char& one : out) one = static_cast<char>(random());
  return out;
}

inline std::string workshop_example(int64_t label, unsigned seed) {
  return ExampleBuilder()
      .add_bytes("image", bytes_of(3072, seed))
      .add_integer("label", label)
      .build();
}

// What Python writes for {b'data': uint8 array of n x 3072, b'labels': [...]}, protocol 2.
inline std::string cifar_pickle(const std::string& pixels, const std::vector<int>& labels) {
  const auto little = [](size_t value) {
    std::string out(4, '\0');
    for (size_t i = 0; i < 4; ++i) out[i] = static_cast<char>(value >> (8 * i));
    return out;
  };
  std::string out =
      "\x80\x02}q\x01(U\x04"
      "dataq\x02";
  out +=
      "cnumpy.core.multiarray\n_reconstruct\nq\x03"
      "cnumpy\nndarray\nq\x04K";
  out += std::string(
             "\0\x85q\x05U\x01"
             "bq\x06\x87q\x07Rq\x08(K\x01J",
             19) +
         little(labels.size());
  out += "M" + std::string("\x00\x0c", 2) +
         "\x86q\x09"
         "cnumpy\ndtype\nq\x0aU\x02u1q\x0bK";
  out += std::string(
      "\0K\x01\x87q\x0cRq\x0d(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T", 34);
  out += little(pixels.size()) + pixels + "tbU\x06labels](";
  for (const int label : labels) out += std::string("K") + static_cast<char>(label);
  return out + "eu.";
}

}  // namespace horon
