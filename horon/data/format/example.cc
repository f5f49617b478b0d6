#include "horon/data/format/example.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "horon/base/error.h"

namespace horon {
namespace {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

// A view of one message; offsets are counted from the beginning of the record.
class Message {
 public:
  Message(std::span<const uint8_t> bytes, size_t offset) : bytes_(bytes), offset_(offset) {}
  bool done() const { return at_ == bytes_.size(); }

  // The next field's number and wire type.
  std::pair<uint32_t, uint32_t> field() {
    const uint64_t key = varint();
    if (key >> 3 == 0 || key >> 3 > 536'870'911) fail("an invalid field number");
    return {static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(key & 7)};
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (done()) fail("cut off in a number");
      const uint8_t byte = bytes_[at_++];
      if (shift == 63 && byte > 1) fail("a number of more than 64 bits");
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail("a number of more than 64 bits");
  }
  float fixed32() {
    uint32_t bits = 0;
    std::memcpy(&bits, take(4).data(), 4);
    return std::bit_cast<float>(bits);
  }
  std::span<const uint8_t> delimited() { return take(varint()); }
  Message message() {
    const auto inner = delimited();
    return {inner, offset_ + at_ - inner.size()};
  }
  void skip(uint32_t wire) {
    if (wire == kVarint) {
      varint();
    } else if (wire == kFixed64) {
      take(8);
    } else if (wire == kDelimited) {
      delimited();
    } else if (wire == kFixed32) {
      take(4);
    } else {
      fail(fmt::format("wire type {}", wire));
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("no tf.Example: {} at byte {}", what, offset_ + at_), ExitCode::kData);
  }

 private:
  std::span<const uint8_t> take(uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("{} bytes expected, {} found", count, bytes_.size() - at_));
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  std::span<const uint8_t> bytes_;
  size_t offset_;
  size_t at_ = 0;
};

void parse_bytes_list(Message list, Feature& out) {
  out.kind = Feature::Kind::kBytes;
  while (!list.done()) {
    const auto [number, wire] = list.field();
    if (number != 1) {
      list.skip(wire);
      continue;
    }
    if (wire != kDelimited) list.fail("a byte string of another wire type");
    const auto bytes = list.delimited();
    out.bytes.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
}

void parse_float_list(Message list, Feature& out) {
  out.kind = Feature::Kind::kFloat;
  while (!list.done()) {
    const auto [number, wire] = list.field();
    if (number == 1 && wire == kFixed32) {
      out.floats.push_back(list.fixed32());
    } else if (number == 1 && wire == kDelimited) {
      Message packed = list.message();
      while (!packed.done()) out.floats.push_back(packed.fixed32());
    } else {
      list.skip(wire);
    }
  }
}

void parse_integer_list(Message list, Feature& out) {
  out.kind = Feature::Kind::kInt64;
  while (!list.done()) {
    const auto [number, wire] = list.field();
    if (number == 1 && wire == kVarint) {
      out.integers.push_back(static_cast<int64_t>(list.varint()));
    } else if (number == 1 && wire == kDelimited) {
      Message packed = list.message();
      while (!packed.done()) out.integers.push_back(static_cast<int64_t>(packed.varint()));
    } else {
      list.skip(wire);
    }
  }
}

Feature parse_feature(Message feature) {
  Feature out;
  while (!feature.done()) {
    const auto [number, wire] = feature.field();
    if (number > 3 || wire != kDelimited) {
      feature.skip(wire);
      continue;
    }
    out = {};  // of several kinds the last one counts
    if (number == 1) parse_bytes_list(feature.message(), out);
    if (number == 2) parse_float_list(feature.message(), out);
    if (number == 3) parse_integer_list(feature.message(), out);
  }
  return out;
}

void parse_entry(Message entry, Example& out) {
  std::string name;
  Feature value;
  while (!entry.done()) {
    const auto [number, wire] = entry.field();
    if (number == 1 && wire == kDelimited) {
      const auto bytes = entry.delimited();
      name.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else if (number == 2 && wire == kDelimited) {
      value = parse_feature(entry.message());
    } else {
      entry.skip(wire);
    }
  }
  out[name] = std::move(value);
}

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

std::string delimited(int number, std::string_view bytes) {
  std::string out;
  put_varint(out, static_cast<uint64_t>(number) << 3 | kDelimited);
  put_varint(out, bytes.size());
  return out.append(bytes);
}

}  // namespace

Example parse_example(std::span<const uint8_t> record) {
  Example example;
  Message top(record, 0);
  while (!top.done()) {
    const auto [number, wire] = top.field();
    if (number != 1 || wire != kDelimited) {
      top.skip(wire);
      continue;
    }
    Message features = top.message();
    while (!features.done()) {
      const auto [inner, inner_wire] = features.field();
      if (inner == 1 && inner_wire == kDelimited) {
        parse_entry(features.message(), example);
      } else {
        features.skip(inner_wire);
      }
    }
  }
  return example;
}

void ExampleBuilder::add(std::string_view name, std::string feature) {
  features_[std::string(name)] = std::move(feature);
}

ExampleBuilder& ExampleBuilder::add_bytes(std::string_view name, std::string_view value) {
  add(name, delimited(1, delimited(1, value)));
  return *this;
}

ExampleBuilder& ExampleBuilder::add_integer(std::string_view name, int64_t value) {
  std::string packed;
  put_varint(packed, static_cast<uint64_t>(value));
  add(name, delimited(3, delimited(1, packed)));
  return *this;
}

ExampleBuilder& ExampleBuilder::add_float(std::string_view name, float value) {
  add(name, delimited(2, delimited(1, {reinterpret_cast<const char*>(&value), sizeof(value)})));
  return *this;
}

std::string ExampleBuilder::build() const {
  std::string entries;
  for (const auto& [name, feature] : features_)
    entries += delimited(1, delimited(1, name) + delimited(2, feature));
  return delimited(1, entries);
}

}  // namespace horon
