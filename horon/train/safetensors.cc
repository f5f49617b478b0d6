#include "horon/train/safetensors.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"

namespace horon::train {
namespace {

uint64_t width_of(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  return dtype == "U8" || dtype == "I8" || dtype == "BOOL" ? 1 : 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(fmt::format("{}: no safetensors file: {}", path, what), ExitCode::kCheckpoint);
}

uint64_t bytes_of(const NamedTensor& tensor, const std::string& path) {
  uint64_t bytes = width_of(tensor.dtype);
  if (bytes == 0) refuse(path, fmt::format("type '{}'", tensor.dtype));
  for (const uint64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) refuse(path, "an invalid shape");
  }
  return bytes;
}

}  // namespace

std::string pack_safetensors(const TensorMap& tensors) {
  nlohmann::json header = nlohmann::json::object();
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    require(bytes_of(tensor, name) == tensor.bytes.size(),
            "a tensor with other bytes than its shape");
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += text;
  file.reserve(file.size() + offset);
  for (const auto& [name, tensor] : tensors) file += tensor.bytes;
  return file;
}

TensorMap unpack_safetensors(const std::string& file, const std::string& path) {
  uint64_t length = 0;
  if (file.size() < 8) refuse(path, "it is too short");
  std::memcpy(&length, file.data(), 8);
  if (length > file.size() - 8 || length > 100U << 20) refuse(path, "its header is cut off");
  const auto header = nlohmann::json::parse(file.substr(8, length), nullptr, false);
  if (!header.is_object()) refuse(path, "its header is no JSON object");
  const uint64_t start = 8 + length;
  TensorMap tensors;
  uint64_t used = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    NamedTensor tensor;
    uint64_t first = 0;
    uint64_t last = 0;
    try {
      tensor.dtype = entry.at("dtype").get<std::string>();
      tensor.shape = entry.at("shape").get<std::vector<uint64_t>>();
      first = entry.at("data_offsets").at(0).get<uint64_t>();
      last = entry.at("data_offsets").at(1).get<uint64_t>();
    } catch (const nlohmann::json::exception&) {
      refuse(path, fmt::format("tensor '{}' is not described", name));
    }
    if (first > last || last > file.size() - start || last - first != bytes_of(tensor, path))
      refuse(path, fmt::format("tensor '{}' is outside the file", name));
    tensor.bytes = file.substr(start + first, last - first);
    used += tensor.bytes.size();
    tensors[name] = std::move(tensor);
  }
  if (used != file.size() - start) refuse(path, "there are bytes of no tensor");
  return tensors;
}

}  // namespace horon::train
