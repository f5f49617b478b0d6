#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// Reads Python pickles (protocols 0 to 5) that hold plain data: dicts, lists, tuples, bytes, text,
// numbers, numpy arrays. Nothing is ever imported or called: what is not on the list is refused by
// name and offset.
namespace horon {

struct PickleValue;

struct PickleNone {};
struct PickleList {  // or tuple
  std::vector<PickleValue*> items;
};
struct PickleDict {
  std::vector<std::pair<PickleValue*, PickleValue*>> items;
  // By text or bytes; null if it is not there.
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
struct PickleGlobal {  // the name of a class or function on the list; never looked up
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

// Owns all its values; they may refer to each other in circles.
struct Pickle {
  std::deque<PickleValue> values;
  PickleValue* root = nullptr;
};

// Error (exit code 12) for anything that is damaged or not on the list.
Pickle parse_pickle(std::span<const uint8_t> bytes);

}  // namespace horon
