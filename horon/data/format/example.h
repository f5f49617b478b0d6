#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// tf.Example in protobuf's wire format, without protobuf: names with lists of bytes, floats or
// integers.
namespace horon {

// One field of a tf.Example.
struct Feature {
  enum class Kind : uint8_t { kNone, kBytes, kFloat, kInt64 };
  Kind kind = Kind::kNone;
  std::vector<std::string_view> bytes;  // into the record
  std::vector<float> floats;
  std::vector<int64_t> integers;
};

using Example = std::map<std::string, Feature, std::less<>>;

// Accepts packed and unpacked lists, fields in any order, and skips unknown fields. Error (exit
// code 12) with the offset for bytes that are not a tf.Example.
Example parse_example(std::span<const uint8_t> record);

// Builds a tf.Example; fields are written in order of their names.
class ExampleBuilder {
 public:
  ExampleBuilder& add_bytes(std::string_view name, std::string_view value);
  ExampleBuilder& add_integer(std::string_view name, int64_t value);
  ExampleBuilder& add_float(std::string_view name, float value);
  std::string build() const;

 private:
  void add(std::string_view name, std::string feature);
  std::map<std::string, std::string> features_;
};

}  // namespace horon
