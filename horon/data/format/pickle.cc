#include "horon/data/format/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr size_t kMostDimensions = 8;
constexpr size_t kMostValues = 4'000'000;  // each takes about a hundred bytes

// What numpy needs to describe an array; everything else is refused.
constexpr const char* kAllowed[] = {"numpy.core.multiarray._reconstruct",
                                    "numpy._core.multiarray._reconstruct",
                                    "numpy.core.numeric._frombuffer",
                                    "numpy._core.numeric._frombuffer",
                                    "numpy.ndarray",
                                    "numpy.dtype",
                                    "_codecs.encode",
                                    "collections.OrderedDict"};

class Parser {
 public:
  explicit Parser(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Pickle parse() {
    while (true) {
      const uint8_t code = byte();
      if (code == '.') break;
      if (!simple(code) && !number(code) && !text(code) && !container(code) && !memory(code) &&
          !object(code))
        fail(fmt::format("operation 0x{:02x} is not allowed", code));
    }
    made_.root = pop();
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("pickle: {} at byte {}", what, at_ == 0 ? 0 : at_ - 1),
                ExitCode::kData);
  }

  // --- bytes
  std::span<const uint8_t> take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("cut off");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  uint8_t byte() { return take(1)[0]; }
  uint64_t little(size_t count) {
    uint64_t value = 0;
    const auto from = take(count);
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
    return value;
  }
  std::string string_of(uint64_t count) {
    const auto from = take(count);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::string line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), '\n');
    if (end == rest.end()) fail("cut off in a line");
    std::string text = string_of(static_cast<uint64_t>(end - rest.begin()));
    take(1);
    return text;
  }

  // --- stack
  template <typename T>
  void push(T value) {
    if (made_.values.size() >= kMostValues) fail("too many values");
    made_.values.push_back(PickleValue{std::move(value)});
    stack_.push_back(&made_.values.back());
  }
  PickleValue* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back()))
      fail("the stack is empty");
    PickleValue* top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<PickleValue*> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<PickleValue*> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()),
                                    stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  template <typename T>
  T& as(PickleValue* value, const char* what) {
    T* found = std::get_if<T>(&value->is);
    if (found == nullptr) fail(fmt::format("{} expected", what));
    return *found;
  }
  PickleValue* top() {
    PickleValue* value = pop();
    stack_.push_back(value);
    return value;
  }

  bool simple(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        if (byte() > 5) fail("a protocol of the future");
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case 'N':
        return push(PickleNone()), true;
      case 0x88:
        return push(true), true;
      case 0x89:
        return push(false), true;
      case '0':
        return pop(), true;
      case '1':
        return pop_to_mark(), true;
      case '2':
        return stack_.push_back(top()), true;
      case '(':
        return marks_.push_back(stack_.size()), true;
      default:
        return false;
    }
  }

  int64_t parse_line_number(std::string digits) {
    if (digits.ends_with('L')) digits.pop_back();
    const auto value = parse_number(digits);
    if (!value || !(std::abs(*value) <= 9e15)) fail("an invalid number");
    return static_cast<int64_t>(*value);
  }
  int64_t long_of(uint64_t count) {
    if (count > 8) fail("a number of more than 64 bits");
    uint64_t value = little(count);
    if (count > 0 && count < 8 && (value >> (8 * count - 1) & 1) != 0)
      value |= ~0ULL << (8 * count);
    return static_cast<int64_t>(value);
  }

  bool number(uint8_t code) {
    switch (code) {
      case 'I': {
        const std::string digits = line();
        if (digits == "00" || digits == "01") return push(digits == "01"), true;
        return push(parse_line_number(digits)), true;
      }
      case 'L':
        return push(parse_line_number(line())), true;
      case 'J':
        return push(static_cast<int64_t>(static_cast<int32_t>(little(4)))), true;
      case 'K':
        return push(static_cast<int64_t>(byte())), true;
      case 'M':
        return push(static_cast<int64_t>(little(2))), true;
      case 0x8a:
        return push(long_of(byte())), true;
      case 0x8b:
        return push(long_of(little(4))), true;
      case 'F': {
        const auto value = parse_number(line());
        if (!value) fail("an invalid number");
        return push(*value), true;
      }
      case 'G': {
        uint64_t bits = 0;
        for (const uint8_t one : take(8)) bits = bits << 8 | one;
        return push(std::bit_cast<double>(bits)), true;
      }
      default:
        return false;
    }
  }

  // 'it\'s' -> it's; of the escapes only those of quotes, backslashes and \xNN.
  std::string unquoted(const std::string& quoted) {
    if (quoted.size() < 2 || quoted.front() != quoted.back() ||
        (quoted.front() != '\'' && quoted.front() != '"'))
      fail("a string without quotes");
    std::string out;
    for (size_t i = 1; i + 1 < quoted.size(); ++i) {
      if (quoted[i] != '\\') {
        out += quoted[i];
        continue;
      }
      const char next = quoted[++i];
      if (next == 'x' && i + 3 < quoted.size()) {
        out += static_cast<char>(std::strtol(quoted.substr(i + 1, 2).c_str(), nullptr, 16));
        i += 2;
      } else if (next == 'n') {
        out += '\n';
      } else {
        out += next;
      }
    }
    return out;
  }

  // Text of protocol 0: single bytes are characters, others are escaped by number. Becomes UTF-8.
  static std::string unescaped(const std::string& raw) {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      auto code = static_cast<uint32_t>(static_cast<uint8_t>(raw[i]));
      if (raw[i] == '\\' && i + 5 < raw.size() && raw[i + 1] == 'u') {
        code = static_cast<uint32_t>(std::strtoul(raw.substr(i + 2, 4).c_str(), nullptr, 16));
        i += 5;
      }
      if (code < 0x80) {
        out += static_cast<char>(code);
      } else if (code < 0x800) {
        out += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      } else {
        out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
                static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
    return out;
  }

  bool text(uint8_t code) {
    switch (code) {
      case 'S':
        return push(unquoted(line())), true;
      case 'V':
        return push(unescaped(line())), true;
      case 'T':
      case 'X':
      case 'B':
        return push(string_of(little(4))), true;
      case 'U':
      case 'C':
      case 0x8c:
        return push(string_of(byte())), true;
      case 0x8d:
      case 0x8e:
      case 0x96:
        return push(string_of(little(8))), true;
      default:
        return false;
    }
  }

  void set_items(PickleDict& dict, const std::vector<PickleValue*>& items) {
    if (items.size() % 2 != 0) fail("a key without a value");
    for (size_t i = 0; i < items.size(); i += 2) dict.items.emplace_back(items[i], items[i + 1]);
  }
  void tuple_of(size_t count) {
    PickleList list;
    list.items.resize(count);
    for (size_t i = count; i-- > 0;) list.items[i] = pop();
    push(std::move(list));
  }

  bool container(uint8_t code) {
    switch (code) {
      case '}':
        return push(PickleDict()), true;
      case ']':
      case ')':
        return push(PickleList()), true;
      case 'l':
      case 't':
        return push(PickleList{pop_to_mark()}), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return tuple_of(code - 0x84U), true;
      case 'd': {
        PickleDict dict;
        set_items(dict, pop_to_mark());
        return push(std::move(dict)), true;
      }
      case 's': {
        PickleValue* value = pop();
        PickleValue* key = pop();
        as<PickleDict>(top(), "a dict").items.emplace_back(key, value);
        return true;
      }
      case 'u': {
        const auto items = pop_to_mark();
        set_items(as<PickleDict>(top(), "a dict"), items);
        return true;
      }
      case 'a': {
        PickleValue* value = pop();
        as<PickleList>(top(), "a list").items.push_back(value);
        return true;
      }
      case 'e': {
        const auto items = pop_to_mark();
        auto& list = as<PickleList>(top(), "a list").items;
        list.insert(list.end(), items.begin(), items.end());
        return true;
      }
      default:
        return false;
    }
  }

  void recall(uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail(fmt::format("memo {} was never set", number));
    stack_.push_back(found->second);
  }

  bool memory(uint8_t code) {
    switch (code) {
      case 'q':
        return memo_[byte()] = top(), true;
      case 'r':
        return memo_[little(4)] = top(), true;
      case 'p':
        return memo_[static_cast<uint64_t>(parse_line_number(line()))] = top(), true;
      case 0x94:
        return memo_[memo_.size()] = top(), true;
      case 'h':
        return recall(byte()), true;
      case 'j':
        return recall(little(4)), true;
      case 'g':
        return recall(static_cast<uint64_t>(parse_line_number(line()))), true;
      default:
        return false;
    }
  }

  void global(const std::string& module, const std::string& name) {
    const std::string whole = module + "." + name;
    const bool allowed = std::any_of(std::begin(kAllowed), std::end(kAllowed),
                                     [&](const char* one) { return whole == one; });
    if (!allowed) fail(fmt::format("'{}' is not allowed: only plain data is read", whole));
    push(PickleGlobal{whole});
  }

  bool object(uint8_t code) {
    switch (code) {
      case 'c': {
        const std::string module = line();
        global(module, line());
        return true;
      }
      case 0x93: {
        const std::string name = as<std::string>(pop(), "a name");
        global(as<std::string>(pop(), "a name"), name);
        return true;
      }
      case 'R': {
        PickleValue* arguments = pop();
        const std::string name = as<PickleGlobal>(pop(), "a function's name").name;
        reduce(name, as<PickleList>(arguments, "a tuple").items);
        return true;
      }
      case 'b': {
        PickleValue* state = pop();
        build(top(), *state);
        return true;
      }
      default:
        return false;
    }
  }

  // What numpy's constructors would make of their arguments.
  void reduce(const std::string& name, const std::vector<PickleValue*>& arguments) {
    if (name.ends_with("._reconstruct")) return push(PickleArray());
    if (name == "collections.OrderedDict") return push(PickleDict());
    if (name == "numpy.dtype" && !arguments.empty()) {
      const std::string& type = as<std::string>(arguments[0], "a type's name");
      if (type.size() > 16) fail("a type with a long name");
      return push(PickleDtype{type});
    }
    if (name == "_codecs.encode" && !arguments.empty()) {
      // Bytes that were written as text: each character is one.
      return push(latin1(as<std::string>(arguments[0], "text")));
    }
    if (name.ends_with("._frombuffer") && arguments.size() >= 3) {
      PickleArray array;
      array.bytes = as<std::string>(arguments[0], "bytes");
      array.dtype = as<PickleDtype>(arguments[1], "a type").name;
      set_shape(array, arguments[2]);
      return push(std::move(array));
    }
    fail(fmt::format("'{}' is not called with these arguments", name));
  }

  // One string may be used again and again: all copies together stay in proportion.
  void charge(size_t bytes) {
    copied_ += bytes;
    if (copied_ > 4 * bytes_.size()) fail("the same bytes too often");
  }

  std::string latin1(const std::string& utf8) {
    charge(utf8.size());
    std::string out;
    for (size_t i = 0; i < utf8.size(); ++i) {
      const auto first = static_cast<uint8_t>(utf8[i]);
      if (first < 0x80) {
        out += utf8[i];
      } else if ((first == 0xc2 || first == 0xc3) && i + 1 < utf8.size()) {
        out += static_cast<char>((first & 0x03) << 6 | (static_cast<uint8_t>(utf8[++i]) & 0x3f));
      } else {
        fail("text that is no bytes");
      }
    }
    return out;
  }

  void set_shape(PickleArray& array, PickleValue* shape) {
    charge(array.bytes.size());
    const auto& sizes = as<PickleList>(shape, "a shape").items;
    if (sizes.size() > kMostDimensions) fail("an array of too many dimensions");
    const auto width = array.dtype.empty() ? std::nullopt : parse_number(array.dtype.substr(1));
    uint64_t bytes = width && *width >= 1 && *width <= 8 ? static_cast<uint64_t>(*width) : 0;
    if (bytes == 0) fail(fmt::format("an array of type '{}'", array.dtype));
    for (PickleValue* size : sizes) {
      const int64_t one = as<int64_t>(size, "a size");
      if (one < 0 || static_cast<uint64_t>(one) > bytes_.size())
        fail("an array of impossible size");
      array.shape.push_back(static_cast<uint64_t>(one));
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(one), &bytes))
        fail("an array of impossible size");
    }
    if (bytes != array.bytes.size())
      fail(
          fmt::format("an array of {} bytes with {} bytes of contents", bytes, array.bytes.size()));
  }

  void build(PickleValue* target, const PickleValue& state) {
    if (std::holds_alternative<PickleDtype>(target->is)) return;  // byte order: '|' or '<' in CIFAR
    auto& array = as<PickleArray>(target, "an array");
    const auto* parts = state.as<PickleList>();
    if (parts == nullptr || parts->items.size() != 5) fail("an array's state of another form");
    array.dtype = as<PickleDtype>(parts->items[2], "a type").name;
    if (const auto* fortran = parts->items[3]->as<bool>(); fortran != nullptr && *fortran)
      fail("an array in Fortran's order");
    array.bytes = as<std::string>(parts->items[4], "bytes");
    array.shape.clear();
    set_shape(array, parts->items[1]);
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  Pickle made_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  uint64_t copied_ = 0;
};

}  // namespace

const PickleValue* PickleDict::find(const std::string& key) const {
  for (const auto& [name, value] : items) {
    const auto* text = name->as<std::string>();
    if (text != nullptr && *text == key) return value;
  }
  return nullptr;
}

Pickle parse_pickle(std::span<const uint8_t> bytes) { return Parser(bytes).parse(); }

}  // namespace horon
