#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// Reads Python pickles (protocols 0 to 5) of plain data: dicts, lists, tuples, bytes, text,
// numbers, numpy arrays. Never imports or calls anything: everything else is refused with name and
// offset.
namespace horon {

struct PickleValue;

struct PickleNone {};
struct PickleList {  // or tuple
  std::vector<PickleValue*> items;
};
struct PickleDict {
  std::vector<std::pair<PickleValue*, PickleValue*>> items;
  // Finds by text or bytes; null if missing.
  const PickleValue* find(const std::string& key) const;
};
struct PickleArray {  // numpy, C order
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  std::string bytes;
};
struct PickleDtype {
  std::string name;
};
struct PickleGlobal {  // the name of a permitted class or function; never looked up
  std::string name;
};

struct PickleValue {
  std::variant<PickleNone, bool, int64_t, double, std::string, PickleList, PickleDict, PickleArray,
               PickleDtype, PickleGlobal>
      is;
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&is);
  }
};

// Owns all its values; references between them may be cyclic.
struct Pickle {
  std::deque<PickleValue> values;
  PickleValue* root = nullptr;
};

// Error (exit code 12) for anything damaged or not permitted.
Pickle parse_pickle(std::span<const uint8_t> bytes);

}  // namespace horon
